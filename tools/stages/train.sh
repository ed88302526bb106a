# Sourced by a recipe's train.sh, which sets corpus, the prefix of its files of cuts.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"
. "$tools/slurm/submit.sh"

common_options 1
option config file conf/train.yaml "model and training"
option exp-dir path exp "where the experiment is kept"
option world-size count 1 "processes that train together: one a GPU, or a share of the cores each"
launcher_options
pass_on "options of icefall-attn-train, which override the config"
parse_options "$@"

work_dir=$exp_dir
if [ "$launcher" = slurm ]; then
  read_cluster
  jobs_dir=$exp_dir/log
  mapfile -t resources < <(training_resources)
  submit train "" "${resources[@]}" -- ./train.sh --config "$config" --exp-dir "$exp_dir" --force "$force" \
    --python "$python" -- "${extra[@]}"
  exit
fi

needs "run ./prepare.sh first" "$config" "$(inventory_of "$config" "${extra[@]}")" data/fbank/"${corpus}"_cuts_{train,dev}.jsonl.gz

# A training goes on from the checkpoints that it finds, so that --force moves them out of its way, with
# all that belongs to them: the old run can still be decoded where it is then.
set_aside() {
  local each old found=()
  old=$exp_dir/old-$(date '+%F-%H-%M-%S')
  for each in "$exp_dir"/{*.pt,*_search,config.yaml,lang,tensorboard,valid-losses.jsonl}; do
    [ ! -e "$each" ] || found+=("$each")
  done
  [ ${#found[@]} -gt 0 ] || return 0
  mkdir "$old"
  mv -- "${found[@]}" "$old/"
  echo "train: starts anew; the run before is in $old"
}
if [ "$force" = true ] && ((stage <= 1 && stop_stage >= 1)); then set_aside; fi

together=()
if [ "${SLURM_NTASKS:-1}" -gt 1 ] && [ -n "${SLURM_JOB_ID:-}" ]; then # all tasks of the job take part
  use_environment
  meeting_point
  together=(srun --kill-on-bad-exit=1 "$tools/slurm/process.sh")
elif [ "$world_size" -gt 1 ]; then
  together=(icefall-attn-launch --processes "$world_size")
fi
run_stage 1 train "${together[@]}" icefall-attn-train --config "$config" --exp-dir "$exp_dir" "${extra[@]}"
