# Sourced by a recipe's run.sh, which sets title, and average as for decode.sh. The options in the recipe's
# local/options.sh are handed on to prepare.sh.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

common_options 3
option nj count "$(usable_cores)" "parallel jobs of the preparation"
known=${#option_names[@]}
. local/options.sh
handed_on=("${option_names[@]:known}")
option config file conf/train.yaml "model and training"
option exp-dir path exp "where the experiment is kept"
option avg count "${average:-5}" "number of checkpoints to average for decoding"
option world-size count 1 "processes that train together"
option methods string "" "searches, instead of decode.sh's own choice"
pass_on "options of icefall-attn-train, which override the config"
parse_options "$@"

both=(--force "$force" --python "$python")
[ -n "$python" ] || "$tools/setup_env.sh"
prepare=()
for name in "${handed_on[@]}"; do
  variable=${name//-/_}
  prepare+=("--$name" "${!variable}")
done
run_part 1 ./prepare.sh "${both[@]}" --nj "$nj" "${prepare[@]}"
run_part 2 ./train.sh "${both[@]}" --config "$config" --exp-dir "$exp_dir" --world-size "$world_size" \
  -- "${extra[@]}"
decode=()
[ -z "$methods" ] || decode=(--methods "$methods")
run_part 3 ./decode.sh "${both[@]}" --exp-dir "$exp_dir" --avg "$avg" "${decode[@]}"
echo "$title: $((SECONDS - started)) s in all"
