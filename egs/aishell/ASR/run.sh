#!/usr/bin/env bash
# From nothing to a table of character error rates on AISHELL-1: the environment if it is missing, then
# stage 1 prepare.sh, 2 train.sh, 3 decode.sh. What was done before is not done again.
title=AISHELL-1
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/run.sh"
