# Sourced by a recipe's run.sh, which sets title, and average as for decode.sh. The options in the recipe's
# local/options.sh are handed on to prepare.sh.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"
. "$tools/slurm/submit.sh"
. "$tools/stages/features.sh"

common_options 3
option nj count "$(usable_cores)" "parallel jobs of the preparation"
known=${#option_names[@]}
. local/options.sh
feature_options ""
handed_on=("${option_names[@]:known}")
option config file conf/train.yaml "model and training"
option exp-dir path exp "where the experiment is kept"
option avg count "${average:-5}" "number of checkpoints to average for decoding"
option world-size count 1 "processes that train together"
option methods string "" "searches, instead of decode.sh's own choice"
launcher_options
pass_on "options of icefall-attn-train, which override the config"
parse_options "$@"

both=(--force "$force" --python "$python")
[ -n "$python" ] || "$tools/setup_env.sh"
prepare=()
for name in "${handed_on[@]}"; do
  [ -n "${option_given[$name]:-}" ] || continue # prepare.sh has the same default, or one of its own
  variable=${name//-/_}
  prepare+=("--$name" "${!variable}")
done
train=(--config "$config" --exp-dir "$exp_dir" --world-size "$world_size" -- "${extra[@]}")
decode=(--exp-dir "$exp_dir" --avg "$avg")
[ -z "$methods" ] || decode+=(--methods "$methods")

# The same as jobs, each after the one before: features are the work of an array of jobs.
submit_parts() {
  local one=(--nodes=1 --ntasks=1) training
  read_cluster
  jobs_dir=$exp_dir/log job=""
  prepare+=(--nj "$cluster_cpus")
  if ((stage <= 1)); then
    submit manifests "$job" "${one[@]}" -- ./prepare.sh "${both[@]}" "${prepare[@]}" --stop-stage 2
    submit features "$job" "${one[@]}" --array="1-$cluster_array" -- "$tools/slurm/array.sh" "$cluster_array" \
      ./prepare.sh --python "$python" "${prepare[@]}" --stage 3 --stop-stage 3
    submit prepare "$job" "${one[@]}" -- ./prepare.sh --python "$python" "${prepare[@]}"
  fi
  if ((stage <= 2 && stop_stage >= 2)); then
    mapfile -t training < <(training_resources)
    submit train "$job" "${training[@]}" -- ./train.sh "${both[@]}" "${train[@]}"
  fi
  ((stop_stage < 3)) || submit decode "$job" "${one[@]}" -- ./decode.sh "${both[@]}" "${decode[@]}"
}

if [ "$launcher" = slurm ]; then
  submit_parts
  exit
fi
run_part 1 ./prepare.sh "${both[@]}" --nj "$nj" "${prepare[@]}"
run_part 2 ./train.sh "${both[@]}" "${train[@]}"
run_part 3 ./decode.sh "${both[@]}" "${decode[@]}"
echo "$title: $((SECONDS - started)) s in all"
