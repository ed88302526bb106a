#!/usr/bin/env bash
# From nothing to a table of word error rates on the digits: the environment if it is missing, then
# stage 1 prepare.sh, 2 train.sh, 3 decode.sh. What was done before is not done again.
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/recipe.sh"

common_options 3
option nj count "$(usable_cores)" "parallel jobs of the preparation"
option config file conf/train.yaml "model and training"
option exp-dir path exp "where the experiment is kept"
pass_on "options of icefall-attn-train, which override the config"
parse_options "$@"

both=(--force "$force" --python "$python")
[ -n "$python" ] || "$tools/setup_env.sh"
run_part 1 ./prepare.sh "${both[@]}" --nj "$nj"
run_part 2 ./train.sh "${both[@]}" --config "$config" --exp-dir "$exp_dir" -- "${extra[@]}"
run_part 3 ./decode.sh "${both[@]}" --exp-dir "$exp_dir"
echo "digits: $((SECONDS - started)) s in all"
