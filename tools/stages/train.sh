# Sourced by a recipe's train.sh, which sets corpus, the prefix of its files of cuts.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

common_options 1
option config file conf/train.yaml "model and training"
option exp-dir path exp "where the experiment is kept"
option world-size count 1 "processes that train together: one a GPU, or a share of the cores each"
pass_on "options of icefall-attn-train, which override the config"
parse_options "$@"

work_dir=$exp_dir
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
[ "$world_size" = 1 ] || together=(icefall-attn-launch --processes "$world_size")
run_stage 1 train "${together[@]}" icefall-attn-train --config "$config" --exp-dir "$exp_dir" "${extra[@]}"
