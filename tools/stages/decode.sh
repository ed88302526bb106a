# Sourced by a recipe's decode.sh, which sets corpus, the prefix of its files of cuts; sets, what to decode; and, if
# they are not 5 and word, average, the number of checkpoints, and unit, what errors are counted in.
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

. "$tools/stages/searches.sh"

word_searches="fast_beam_search_LG fast_beam_search_nbest_LG"
every="$searches fast_beam_search_nbest $word_searches"
common_options $(wc -w <<<"$every")
option exp-dir path exp "the experiment"
option sets "some:train|${sets// /|}" "$(prepared $sets)" "sets to decode"
option methods "some:${every// /|}" "$searches" "searches, in the order of the stages"
option graph file "" "graph of words for the searches with LG, instead of that of the experiment's tokens"
option avg count "${average:-5}" "number of checkpoints to average"
option by one:valid-loss\|epoch\|running-mean valid-loss "which ones: the best on the dev set, the last, or all steps of the last"
option epoch string "" "the last epoch to look at (default: of all)"
option checkpoint string "" "one file of the experiment, such as last.pt, instead of an average"
pass_on "options of icefall-attn-decode"
parse_options "$@"
exclusive checkpoint avg by epoch
leave_out_what_needs_k2
read -r -a chosen <<<"$methods"
((stage <= ${#chosen[@]})) || stop 2 "--stage $stage: there are ${#chosen[@]} stages, one for each of --methods"

work_dir=$exp_dir
model=(--avg "$avg" --by "$by" ${epoch:+--epoch "$epoch"})
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
    [ -n "$graph" ] || [ ! -e "$exp_dir/config.yaml" ] || graph=$(dirname "$(inventory_of "$exp_dir/config.yaml")")/LG.pt
    [ -e "$graph" ] || stop 1 "$graph is missing; local/compile_lg.py makes it of an n-gram model, or give --graph"
    words=(--search.graph "$graph")
  fi
  needs "run ./train.sh first" "$exp_dir/config.yaml" "$exp_dir"/*.pt "${files[@]}" "${words[@]:1}"
  run_stage $((number += 1)) "$method" icefall-attn-decode --exp-dir "$exp_dir" "${model[@]}" \
    --cuts "${cuts[@]}" ${unit:+--unit "$unit"} --search.method "$method" "${words[@]}" "${extra[@]}"
done

use_environment
icefall-attn-results --exp-dir "$exp_dir"
