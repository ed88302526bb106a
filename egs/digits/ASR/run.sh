#!/usr/bin/env bash
# From nothing to a table of word error rates on synthetic digits: the environment if it is missing, then
# stage 1 prepare.sh, 2 train.sh, 3 decode.sh. What was done before is not done again.
title=digits average=2
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/run.sh"
