#!/usr/bin/env bash
# Prepares CMU AN4: download, manifests, features, tokens, phones, checks. Results: data/fbank, data/lang,
# data/lang_phone, data/statistics.txt
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/recipe.sh"

common_options 7
option nj count "$(usable_cores)" "parallel jobs"
option dl-dir path download "where AN4 is (the directory itself or its parent), or is downloaded to"
option token-kind one:char\|bpe char "kind of tokens"
option vocab-size count 100 "number of tokens, for bpe"
option speeds numbers "0.85 0.9 0.95 1.05 1.1 1.15" "speeds at which the training speech is used once more"
parse_options "$@"

work_dir=data
shared=../../../local # programs that several recipes use
cuts=(data/fbank/an4_cuts_{train,dev,test}.jsonl.gz)
perturb=()
[ -z "$speeds" ] || perturb=(--perturb train --speeds $speeds)
overwrite=()
[ "$force" = false ] || overwrite=(--overwrite)
vocab=()
[ "$token_kind" = char ] || vocab=(--vocab-size "$vocab_size")

describe() {
  python "$shared/describe_data.py" "$@" | tee data/statistics.txt
}

run_stage 1 download python local/download_an4.py --dl-dir "$dl_dir"

run_stage 2 manifests python local/prepare_an4.py --corpus-dir "$dl_dir" --output-dir data/manifests

run_stage 3 features python "$shared/compute_fbank.py" --manifest-dir data/manifests --prefix an4 \
  --parts train dev test "${perturb[@]}" --output-dir data/fbank --nj "$nj" "${overwrite[@]}"

run_stage 4 tokens python "$shared/prepare_tokens.py" \
  --supervisions data/manifests/an4_supervisions_train.jsonl.gz \
  --kind "$token_kind" "${vocab[@]}" --lang-dir data/lang

run_stage 5 phones python "$shared/prepare_tokens.py" \
  --supervisions data/manifests/an4_supervisions_train.jsonl.gz \
  --kind lexicon --lexicon data/manifests/an4.dic --lang-dir data/lang_phone

run_stage 6 validate python "$shared/validate_data.py" --cuts "${cuts[@]}" --lang-dir data/lang

run_stage 7 statistics describe --cuts "${cuts[@]}" --lang-dir data/lang
