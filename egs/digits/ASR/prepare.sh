#!/usr/bin/env bash
# Prepares the digits: speech synthesis, manifests, features, tokens, checks. Nothing is downloaded.
# Results: data/fbank, data/lang, data/statistics.txt
corpus=digits sets="train dev test"
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/prepare.sh"

preparation_options 6 ""
token_options 29
parse_preparation "$@"

run_stage 1 synthesize python local/synthesize_digits.py --output-dir data/corpus \
  --train "$train_size" --dev "$dev_size" --test "$test_size" --nj "$nj" "${overwrite[@]}"

run_stage 2 manifests python local/prepare_digits.py --corpus-dir data/corpus --output-dir data/manifests

features_stage 3
tokens_stage 4
validate_stage 5
statistics_stage 6
