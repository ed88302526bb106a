#!/usr/bin/env bash
# Trains a Conformer transducer on AN4. An interrupted training goes on where it stopped.
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/recipe.sh"

common_options 1
option config file conf/train.yaml "model and training"
option exp-dir path exp "where the experiment is kept"
pass_on "options of icefall-attn-train, which override the config"
parse_options "$@"

work_dir=$exp_dir
needs "run ./prepare.sh first" "$config" data/lang/tokens.txt data/fbank/an4_cuts_{train,dev}.jsonl.gz

run_stage 1 train icefall-attn-train --config "$config" --exp-dir "$exp_dir" "${extra[@]}"
