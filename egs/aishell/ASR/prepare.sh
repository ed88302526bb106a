#!/usr/bin/env bash
# Prepares AISHELL-1: download, manifests, features, characters, checks. Results: data/fbank, data/lang_char,
# data/statistics.txt
corpus=aishell sets="train dev test"
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/prepare.sh"

preparation_options 6 "0.9 1.1"
parse_preparation "$@"
lang_dir=data/lang_char

run_stage 1 download python local/download_aishell.py --dl-dir "$dl_dir"

run_stage 2 manifests python local/prepare_aishell.py --corpus-dir "$dl_dir" --output-dir data/manifests \
  --subset-hours "$subset_hours" --nj "$nj"

features_stage 3
inventory 4 tokens "$lang_dir" --kind char --drop-spaces
validate_stage 5
statistics_stage 6
