#!/usr/bin/env bash
# Prepares the digits: speech synthesis, manifests, features, tokens, checks. Nothing is downloaded.
# Results: data/fbank, data/lang, data/statistics.txt
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/recipe.sh"

common_options 6
option nj count "$(usable_cores)" "parallel jobs"
option train-size count 2000 "utterances for training"
option dev-size count 104 "utterances of the dev set"
option test-size count 240 "utterances of the test set"
option token-kind one:char\|bpe char "kind of tokens"
option vocab-size count 29 "number of tokens, for bpe"
option speeds numbers "" "speeds at which the training speech is used once more"
parse_options "$@"

work_dir=data
shared=../../../local # programs that several recipes use
cuts=(data/fbank/digits_cuts_{train,dev,test}.jsonl.gz)
perturb=()
[ -z "$speeds" ] || perturb=(--perturb train --speeds $speeds)
overwrite=()
[ "$force" = false ] || overwrite=(--overwrite)
vocab=()
[ "$token_kind" = char ] || vocab=(--vocab-size "$vocab_size")

describe() {
  python "$shared/describe_data.py" "$@" | tee data/statistics.txt
}

run_stage 1 synthesize python local/synthesize_digits.py --output-dir data/corpus \
  --train "$train_size" --dev "$dev_size" --test "$test_size" --nj "$nj" "${overwrite[@]}"

run_stage 2 manifests python local/prepare_digits.py --corpus-dir data/corpus --output-dir data/manifests

run_stage 3 features python "$shared/compute_fbank.py" --manifest-dir data/manifests --prefix digits \
  --parts train dev test "${perturb[@]}" --output-dir data/fbank --nj "$nj" "${overwrite[@]}"

run_stage 4 tokens python "$shared/prepare_tokens.py" \
  --supervisions data/manifests/digits_supervisions_train.jsonl.gz \
  --kind "$token_kind" "${vocab[@]}" --lang-dir data/lang

run_stage 5 validate python "$shared/validate_data.py" --cuts "${cuts[@]}" --lang-dir data/lang

run_stage 6 statistics describe --cuts "${cuts[@]}" --lang-dir data/lang
