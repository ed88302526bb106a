# Sourced by a recipe's prepare.sh, which sets corpus, the prefix of its files, and parts, such as "train dev test".
# It has the options and stages that recipes share:
#
#   preparation_options 6 100 "0.9 1.1"   # the last stage, default size of a BPE vocabulary, default speeds
#   option ...                            # the recipe's own
#   parse_preparation "$@"
#   run_stage 1 manifests ...             # the recipe's own: data/manifests/CORPUS_{recordings,supervisions}_PART
#   features_stage 2; tokens_stage 3; validate_stage 4; statistics_stage 5
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

shared=../../../local # programs that several recipes use
work_dir=data

preparation_options() {
  common_options "$1"
  option nj count "$(usable_cores)" "parallel jobs"
  option token-kind one:char\|bpe char "kind of tokens"
  option vocab-size count "$2" "number of tokens, for bpe"
  option features one:fbank\|fbank_pitch fbank "what speech becomes; train with the same data.features"
  option storage one:lilcom\|numpy\|none lilcom "of features; none: train with data.on_the_fly=true"
  option speeds numbers "$3" "speeds at which the training speech is used once more"
}

parse_preparation() {
  local part
  parse_options "$@"
  cuts=() perturb=() overwrite=() vocab=()
  for part in $parts; do cuts+=("data/fbank/${corpus}_cuts_$part.jsonl.gz"); done
  [ -z "$speeds" ] || perturb=(--perturb train --speeds $speeds)
  [ "$force" = false ] || overwrite=(--overwrite)
  [ "$token_kind" = char ] || vocab=(--vocab-size "$vocab_size")
}

features_stage() {
  run_stage "$1" features python "$shared/compute_fbank.py" --manifest-dir data/manifests --prefix "$corpus" \
    --parts $parts "${perturb[@]}" --output-dir data/fbank --nj "$nj" \
    --features "$features" --storage "$storage" "${overwrite[@]}"
}

tokens_stage() {
  run_stage "$1" tokens python "$shared/prepare_tokens.py" \
    --supervisions "data/manifests/${corpus}_supervisions_train.jsonl.gz" \
    --kind "$token_kind" "${vocab[@]}" --lang-dir data/lang
}

validate_stage() {
  run_stage "$1" validate python "$shared/validate_data.py" --cuts "${cuts[@]}" --lang-dir data/lang
}

statistics_stage() {
  run_stage "$1" statistics describe --cuts "${cuts[@]}" --lang-dir data/lang
}

describe() {
  python "$shared/describe_data.py" "$@" | tee data/statistics.txt
}
