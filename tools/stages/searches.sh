# Sourced by decode.sh and compare.sh: the searches that are used unless --methods says which, and the sets that are there.
searches="greedy_search modified_beam_search fast_beam_search"

# Where k2 cannot be used, and nobody asked for it, the other searches do without its own.
leave_out_what_needs_k2() {
  local reason
  [[ -z ${option_given[methods]:-} && $methods == *fast_beam* ]] || return 0
  use_environment
  reason=$(why_no_k2)
  [ -n "$reason" ] || return 0
  echo "${script%.sh}: without graph search, as $reason"
  methods=${methods/ fast_beam_search/}
}

prepared() { # prepared SET...: those that prepare.sh has prepared; all if it has not been run
  local set found=()
  for set in "$@"; do
    [ ! -e "data/fbank/${corpus}_cuts_$set.jsonl.gz" ] || found+=("$set")
  done
  [ ${#found[@]} -gt 0 ] || found=("$@")
  echo "${found[*]}"
}
