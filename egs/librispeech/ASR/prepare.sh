#!/usr/bin/env bash
# Prepares LibriSpeech: download, manifests, features, word pieces, if wanted noise and rooms, n-grams and their graph,
# checks. Results: data/fbank, data/lang_bpe_500, data/lang_bpe_5000, data/lm, data/statistics.txt
corpus=librispeech
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/prepare.sh"

preparation_options 10 "0.9 1.1"
parse_preparation "$@"

if [ -z "$parts" ]; then
  parts="train-clean-100 dev-clean dev-other test-clean test-other"
  [ "$full_libri" = false ] || parts="train-clean-360 train-other-500 $parts"
fi
sets="train dev"
for part in $parts; do [[ $part != test-* ]] || sets+=" $part"; done
lang_dir=data/lang_bpe_${vocab_sizes%% *}

run_stage 1 download python local/download_librispeech.py --dl-dir "$dl_dir" --parts $parts

run_stage 2 manifests python local/prepare_librispeech.py --corpus-dir "$dl_dir" --output-dir data/manifests \
  --parts $parts --subset-hours "$subset_hours" --max-bad-share "$max_bad_share" --nj "$nj"

features_stage 3

for size in $vocab_sizes; do
  inventory 4 "tokens-$size" "data/lang_bpe_$size" --kind bpe --vocab-size "$size"
done

[ "$musan" = false ] || musan_stage 5
[ "$rirs" = false ] || rir_stage 6
[ -n "$arpa" ] || lm_stage 7 --min-count 2
for size in $vocab_sizes; do
  graph_stage 8 "${arpa:-data/lm/3-gram.arpa}" "data/lang_bpe_$size"
done
for size in $vocab_sizes; do
  validate_stage 9 "data/lang_bpe_$size"
done
statistics_stage 10
