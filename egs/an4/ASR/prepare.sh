#!/usr/bin/env bash
# Prepares CMU AN4: download, manifests, features, tokens, phones, checks. Results: data/fbank, data/lang,
# data/lang_phone, data/statistics.txt
corpus=an4 parts="train dev test"
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/prepare.sh"

preparation_options 7 100 "0.85 0.9 0.95 1.05 1.1 1.15"
option dl-dir path download "where AN4 is (the directory itself or its parent), or is downloaded to"
parse_preparation "$@"

run_stage 1 download python local/download_an4.py --dl-dir "$dl_dir"

run_stage 2 manifests python local/prepare_an4.py --corpus-dir "$dl_dir" --output-dir data/manifests

features_stage 3
tokens_stage 4

run_stage 5 phones python "$shared/prepare_tokens.py" \
  --supervisions data/manifests/an4_supervisions_train.jsonl.gz \
  --kind lexicon --lexicon data/manifests/an4.dic --lang-dir data/lang_phone

validate_stage 6
statistics_stage 7
