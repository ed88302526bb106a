#!/usr/bin/env bash
# Prepares AISHELL-1: download, manifests, features, characters, initials and finals if the corpus's lexicon is there,
# if wanted noise and rooms, n-grams and their graph, checks. Results: data/fbank, data/lang_char, data/lang_phone,
# data/lm, data/statistics.txt
corpus=aishell sets="train dev test"
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/prepare.sh"

preparation_options 11 "0.9 1.1"
parse_preparation "$@"
lang_dir=data/lang_char

run_stage 1 download python local/download_aishell.py --dl-dir "$dl_dir"

run_stage 2 manifests python local/prepare_aishell.py --corpus-dir "$dl_dir" --output-dir data/manifests \
  --subset-hours "$subset_hours" --max-bad-share "$max_bad_share" --nj "$nj"

features_stage 3
inventory 4 tokens "$lang_dir" --kind char --drop-spaces
[ ! -e data/manifests/aishell.dic ] ||
  inventory 5 phones data/lang_phone --kind lexicon --lexicon data/manifests/aishell.dic
[ "$musan" = false ] || musan_stage 6
[ "$rirs" = false ] || rir_stage 7
[ -n "$arpa" ] || lm_stage 8 --unit char --min-count 2
graph_stage 9 "${arpa:-data/lm/3-gram.arpa}"
validate_stage 10
statistics_stage 11
