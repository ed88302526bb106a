# Sourced by a recipe's prepare.sh, which sets corpus, the prefix of its files, and sets, such as "train dev test".
# It has the options and stages that recipes share; those that run.sh hands on stand in the recipe's local/options.sh.
#
#   preparation_options 6 "0.9 1.1"       # the last stage, default speeds
#   token_options 100                     # where the kind of tokens can be chosen: default size of a BPE vocabulary
#   parse_preparation "$@"
#   run_stage 1 manifests ...             # the recipe's own: data/manifests/CORPUS_{recordings,supervisions}_SET
#   features_stage 2; tokens_stage 3; validate_stage 4; statistics_stage 5
#   lm_stage 6; graph_stage 7 data/lm/3-gram.arpa # for the searches with LG
#   musan_stage 6; rir_stage 7   # noise and rooms, from or into $dl_dir, an option of the recipe
. "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"
. "$tools/stages/features.sh"

shared=../../../local # programs that several recipes use
work_dir=data
lang_dir=data/lang

preparation_options() {
  common_options "$1"
  option nj count "$(usable_cores)" "parallel jobs"
  . local/options.sh
  feature_options "$2"
  option share string "" "compute this share of the features and nothing else, such as 2/8; the stage without it joins them"
}

token_options() {
  option token-kind one:char\|bpe char "kind of tokens"
  option vocab-size count "$1" "number of tokens, for bpe"
}

parse_preparation() {
  parse_options "$@"
  [[ $share =~ ^([1-9][0-9]*/[1-9][0-9]*)?$ ]] || stop 2 "--share must be such as 2/8, not '$share'"
  [ -z "$share" ] || [ "$force" = false ] || stop 2 "--share and --force true do not go together: shares overwrite nothing"
  perturb=() overwrite=()
  [ -z "$speeds" ] || perturb=(--perturb train --speeds $speeds)
  [ "$force" = false ] || overwrite=(--overwrite)
}

features_stage() {
  local program=(
    python "$shared/compute_fbank.py" --manifest-dir data/manifests --prefix "$corpus"
    --parts $sets "${perturb[@]}" --output-dir data/fbank --nj "$nj" --features "$features" --storage "$storage"
    --max-bad-share "$max_bad_share"
  )
  if [ -z "$share" ]; then
    run_stage "$1" features "${program[@]}" "${overwrite[@]}"
  elif ((stage <= $1 && stop_stage >= $1)); then
    use_environment
    execute "prepare $1 features $share" "$work_dir/log/prepare-features-${share%/*}.log" "" "${program[@]}" --share "$share"
    exit
  fi
}

# inventory NUMBER NAME LANG_DIR OPTIONS...: tokens of some kind, from the training text
inventory() {
  run_stage "$1" "$2" python "$shared/prepare_tokens.py" \
    --supervisions "data/manifests/${corpus}_supervisions_train.jsonl.gz" --lang-dir "$3" "${@:4}"
}

tokens_stage() {
  local size=()
  [ "$token_kind" = char ] || size=(--vocab-size "$vocab_size")
  inventory "$1" tokens "$lang_dir" --kind "$token_kind" "${size[@]}"
}

lm_stage() { # lm_stage NUMBER [OPTION...]
  run_stage "$1" lm python "$shared/train_ngram.py" \
    --supervisions "data/manifests/${corpus}_supervisions_train.jsonl.gz" --output data/lm/3-gram.arpa "${@:2}"
}

# Without k2 there is no graph; all but the searches with LG do without it.
graph_stage() { # graph_stage NUMBER ARPA [LANG_DIR]: a graph for each inventory of tokens
  local reason="" lang=${3:-$lang_dir} name
  name=graph${3:+-${3##*_}}
  if ((stage <= $1 && stop_stage >= $1)) && [ ! -e "$work_dir/.done/prepare-$name" ]; then
    use_environment
    reason=$(why_no_k2)
  fi
  if [ -n "$reason" ]; then
    echo "prepare $1 $name: left out, as $reason"
    return 0
  fi
  # another file of the same name is another model
  [ ! -e "$2" ] || inputs="$2 $(stat -L -c '%s bytes, %y' "$2")"$'\n'
  run_stage "$1" "$name" python "$shared/compile_lg.py" --arpa "$2" --lang-dir "$lang"
  inputs=""
}

validate_stage() { # validate_stage NUMBER [LANG_DIR]
  run_stage "$1" "validate${2:+-${2##*_}}" python "$shared/validate_data.py" --cuts $(cuts_of $sets) \
    --lang-dir "${2:-$lang_dir}"
}

statistics_stage() {
  run_stage "$1" statistics describe --cuts $(cuts_of $sets) --lang-dir "$lang_dir"
}

# For --data.noise_cuts [data/fbank/musan_cuts.jsonl.gz]
musan_stage() {
  run_stage "$1" musan python "$shared/prepare_noise.py" --kind noise --corpus-dir "$dl_dir/musan" --download \
    --features --output data/fbank/musan_cuts.jsonl.gz --nj "$nj" "${overwrite[@]}"
}

# For --data.rir_cuts [data/fbank/rir_cuts.jsonl.gz], which needs --data.on_the_fly true
rir_stage() {
  run_stage "$1" rir python "$shared/prepare_noise.py" --kind rir --corpus-dir "$dl_dir/RIRS_NOISES" --download \
    --output data/fbank/rir_cuts.jsonl.gz --nj "$nj" "${overwrite[@]}"
}

describe() {
  python "$shared/describe_data.py" "$@" | tee data/statistics.txt
}

cuts_of() { # cuts_of SET...
  printf "data/fbank/${corpus}_cuts_%s.jsonl.gz " "$@"
}
