#!/usr/bin/env bash
# Prepares CMU AN4: download, manifests, features, tokens, phones, checks. Results: data/fbank, data/lang,
# data/lang_phone, data/statistics.txt
corpus=an4 sets="train dev test"
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/prepare.sh"

preparation_options 7 "0.85 0.9 0.95 1.05 1.1 1.15"
token_options 100
parse_preparation "$@"

run_stage 1 download python local/download_an4.py --dl-dir "$dl_dir"

run_stage 2 manifests python local/prepare_an4.py --corpus-dir "$dl_dir" --output-dir data/manifests

features_stage 3
tokens_stage 4

inventory 5 phones data/lang_phone --kind lexicon --lexicon data/manifests/an4.dic

validate_stage 6
statistics_stage 7
