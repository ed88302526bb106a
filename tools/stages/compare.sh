# Sourced by a recipe's compare.sh, which sets corpus, sets and average as for decode.sh. It trains, decodes and scores
# every variant of a list with equal budgets, and keeps what was finished.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

. "$tools/stages/searches.sh"
option list file "$tools/stages/compare.txt" "variants: a name and options of icefall-attn-train on each line"
option baseline string full "the variant whose seeds say what a difference has to exceed"
option names string "" "some of them (default: all)"
option seeds numbers 42 "seeds of every variant"
option max-steps count 2500 "optimiser steps of each training"
option config file conf/train.yaml "model and training"
option exp-dir path exp-compare "holds NAME/seed-S for each"
option results path results "where the records, the table and the plot go"
option avg count "${average:-5}" "number of checkpoints to average for decoding"
option methods "some:${searches// /|}" "$searches" "searches"
option stage integer 1 "first stage to run: they are counted over all variants and seeds, and --dry-run lists them"
option stop-stage integer 999999 "last stage to run"
option dry-run bool false "only list the stages"
option force bool false "run the stages again that were done before"
option python program "" "a Python with icefall_attn, to be used instead of .venv"
pass_on "options of icefall-attn-train, for all variants"
parse_options "$@"
leave_out_what_needs_k2

work_dir=$exp_dir
declare -A options_of
all=()
while read -r name rest; do
  [[ -z $name || $name == \#* ]] || { all+=("$name") && options_of[$name]=$rest; }
done <"$list"
read -r -a chosen <<<"${names:-${all[*]}}"
for name in "${chosen[@]}"; do
  [ -n "${options_of[$name]+set}" ] || stop 2 "--names: $list has no variant '$name', only ${all[*]}"
done
[ -z "${option_given[baseline]:-}" ] || [ -n "${options_of[$baseline]+set}" ] ||
  stop 2 "--baseline: $list has no variant '$baseline', only ${all[*]}"
cuts=()
for set in $(prepared $sets); do cuts+=("$set=data/fbank/${corpus}_cuts_$set.jsonl.gz"); done

number=0
each_stage() { # each_stage NAME COMMAND...
  number=$((number + 1))
  if [ "$dry_run" = true ]; then echo "$number $1"; else run_stage "$number" "$@"; fi
}

needed() { # needed NAME START SEED
  local marker=$work_dir/.done/compare-$2-$3-train
  [ -e "$marker" ] || stop 1 "$1 starts from $2, which is not trained with seed $3; put $2 before it in --names"
  before=$(tail -n 1 "$marker")
}

train_and_decode() { # train_and_decode NAME SEED
  local exp=$exp_dir/$1/seed-$2 method words=() word start
  read -r -a words <<<"${options_of[$1]}"
  before=none # each experiment stands by itself, or on the one that it starts from
  for word in "${!words[@]}"; do
    [[ ${words[word]} == @* ]] || continue
    start=${words[word]#@}
    words[word]=$exp_dir/$start/seed-$2
    words+=(--train.init_avg "$avg") # what is decoded of the one is the start of the other
    [ "$dry_run" = true ] || needed "$1" "$start" "$2"
  done
  each_stage "$1-$2-train" icefall-attn-train --config "$config" --exp-dir "$exp" --train.seed "$2" \
    --train.max_steps "$max_steps" "${words[@]}" "${extra[@]}"
  for method in $methods; do
    each_stage "$1-$2-$method" icefall-attn-decode --exp-dir "$exp" --avg "$avg" --cuts "${cuts[@]}" ${unit:+--unit "$unit"} \
      --search.method "$method"
  done
}

[ "$dry_run" = true ] ||
  needs "run ./prepare.sh first" "$config" "$(inventory_of "$config" "${extra[@]}")" \
    data/fbank/"${corpus}"_cuts_{train,dev}.jsonl.gz
for seed in $seeds; do
  for name in "${chosen[@]}"; do train_and_decode "$name" "$seed"; done
done
[ "$dry_run" = false ] || exit 0
use_environment
icefall-attn-compare --exp-dir "$exp_dir" --records "$results/compare.jsonl" --table "$results/compare.md" \
  --plot "$results/compare.png" --baseline "$baseline"
