# Sourced by a recipe's train.sh, which sets corpus, the prefix of its files of cuts.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

common_options 1
option config file conf/train.yaml "model and training"
option exp-dir path exp "where the experiment is kept"
pass_on "options of icefall-attn-train, which override the config"
parse_options "$@"

work_dir=$exp_dir
needs "run ./prepare.sh first" "$config" data/lang/tokens.txt data/fbank/"${corpus}"_cuts_{train,dev}.jsonl.gz

run_stage 1 train icefall-attn-train --config "$config" --exp-dir "$exp_dir" "${extra[@]}"
