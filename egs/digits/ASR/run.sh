#!/usr/bin/env bash
# From nothing to a table of word error rates on synthetic digits: the environment if it is missing, then
# stage 1 prepare.sh, 2 train.sh, 3 decode.sh. What was done before is not done again.
title=digits average=3
prepare_options=(
  "train-size|count|4000|utterances for training"
  "dev-size|count|104|utterances of the dev set"
  "test-size|count|240|utterances of the test set"
)
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/run.sh"
