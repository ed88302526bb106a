# Sourced by a recipe's run.sh, which sets title and, in an array, the options that it hands on to prepare.sh
# (prepare_options, each as NAME TYPE DEFAULT HELP); and average as for decode.sh.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

common_options 3
option nj count "$(usable_cores)" "parallel jobs of the preparation"
for each in ${prepare_options[@]+"${prepare_options[@]}"}; do
  IFS='|' read -r name type default help <<<"$each"
  option "$name" "$type" "$default" "$help"
done
option config file conf/train.yaml "model and training"
option exp-dir path exp "where the experiment is kept"
option avg count "${average:-5}" "number of checkpoints to average for decoding"
pass_on "options of icefall-attn-train, which override the config"
parse_options "$@"

both=(--force "$force" --python "$python")
[ -n "$python" ] || "$tools/setup_env.sh"
prepare=()
for each in ${prepare_options[@]+"${prepare_options[@]}"}; do
  name=${each%%|*} variable=${name//-/_}
  prepare+=("--$name" "${!variable}")
done
run_part 1 ./prepare.sh "${both[@]}" --nj "$nj" "${prepare[@]}"
run_part 2 ./train.sh "${both[@]}" --config "$config" --exp-dir "$exp_dir" -- "${extra[@]}"
run_part 3 ./decode.sh "${both[@]}" --exp-dir "$exp_dir" --avg "$avg"
echo "$title: $((SECONDS - started)) s in all"
