# Sourced by a recipe's decode.sh, which sets corpus, the prefix of its files of cuts; sets, what to decode; and, if
# they are not 5 and word, average, the number of checkpoints, and unit, what errors are counted in.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

searches="greedy_search modified_beam_search fast_beam_search"
prepared() { # prepared SET...: those that prepare.sh has prepared; all if it has not been run
  local set found=()
  for set in "$@"; do
    [ ! -e "data/fbank/${corpus}_cuts_$set.jsonl.gz" ] || found+=("$set")
  done
  [ ${#found[@]} -gt 0 ] || found=("$@")
  echo "${found[*]}"
}

common_options 3
option exp-dir path exp "the experiment"
option sets "some:train|${sets// /|}" "$(prepared $sets)" "sets to decode"
option methods "some:${searches// /|}" "$searches" "searches, in the order of the stages"
option avg count "${average:-5}" "number of checkpoints to average"
option by one:valid-loss\|epoch valid-loss "which ones: the best on the dev set, or the last"
option checkpoint string "" "one file of the experiment, such as last.pt, instead of an average"
pass_on "options of icefall-attn-decode"
parse_options "$@"
read -r -a chosen <<<"$methods"
((stage <= ${#chosen[@]})) || stop 2 "--stage $stage: there are ${#chosen[@]} stages, one for each of --methods"
exclusive checkpoint avg by

work_dir=$exp_dir
model=(--avg "$avg" --by "$by")
[ -z "$checkpoint" ] || model=(--checkpoint "$checkpoint")
files=() cuts=()
for set in $sets; do
  files+=("data/fbank/${corpus}_cuts_$set.jsonl.gz")
  cuts+=("$set=${files[-1]}")
done

number=0
for method in $methods; do
  # Each search stands on the model alone, not on the search before it.
  needs "run ./train.sh first" "$exp_dir/config.yaml" "$exp_dir"/*.pt "${files[@]}"
  run_stage $((number += 1)) "$method" icefall-attn-decode --exp-dir "$exp_dir" "${model[@]}" \
    --cuts "${cuts[@]}" --unit "${unit:-word}" --search.method "$method" "${extra[@]}"
done

use_environment
icefall-attn-results --exp-dir "$exp_dir"
