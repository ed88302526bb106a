# Sourced by a recipe's decode.sh, which sets corpus, the prefix of its files of cuts, sets, what to decode, and,
# if it is not 5, average, the number of checkpoints.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

searches="greedy_search modified_beam_search fast_beam_search"
word_searches="fast_beam_search_LG fast_beam_search_nbest_LG"
every="$searches fast_beam_search_nbest $word_searches"
common_options 3
option exp-dir path exp "the experiment"
option methods "some:${every// /|}" "$searches" "searches, in the order of the stages"
option graph path data/lang/LG.pt "graph of words for the searches with LG"
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
  # Each search stands on the model and, if it is one of words, the graph, not on the search before it.
  words=()
  if [[ " $word_searches " == *" $method "* ]]; then
    [ -e "$graph" ] || stop 1 "$graph is missing; local/compile_lg.py makes it of an n-gram model, or give --graph"
    words=(--search.graph "$graph")
  fi
  needs "run ./train.sh first" "$exp_dir/config.yaml" "$exp_dir"/*.pt "${files[@]}" "${words[@]:1}"
  run_stage $((number += 1)) "$method" icefall-attn-decode --exp-dir "$exp_dir" "${model[@]}" \
    --cuts "${cuts[@]}" --search.method "$method" "${words[@]}" "${extra[@]}"
done

use_environment
icefall-attn-results --exp-dir "$exp_dir"
