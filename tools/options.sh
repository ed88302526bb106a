# Options of the recipes' scripts; sourced by tools/recipe.sh, whose head shows the use.

option_names=() extra=() extra_help=""
declare -A option_type option_help option_default option_given

# option NAME TYPE DEFAULT HELP. Types: string; integer; count (1 or more); counts (a list); bool; number (0 or
# more); numbers (a list, may be empty); path; file (must exist; or '' if that is the default); program (a Python that runs, or ''); one:a|b|c; some:a|b|c (one
# or more of them, in one argument).
option() {
  option_names+=("$1")
  option_type[$1]=$2
  option_default[$1]=$3
  option_help[$1]=$4
  printf -v "${1//-/_}" '%s' "$3"
}

# pass_on HELP: the script takes more options after "--", kept in $extra, for the program behind it.
pass_on() { extra_help=$1; }

# Sets the variables of the options; answers --help; refuses what is wrong in one line, with exit code 2.
parse_options() {
  local name value next
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) print_help && exit 0 ;;
      --)
        [ -n "$extra_help" ] || [ $# -eq 1 ] || stop 2 "unexpected argument '$2'; --help lists the options"
        extra=("${@:2}")
        break
        ;;
      --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    name=${1#--}
    [[ $1 == --?* ]] || stop 2 "unexpected argument '$1'; --help lists the options"
    [[ -n ${option_type[$name]:-} ]] || stop 2 "unknown option '$1'; --help lists the options"
    [ $# -ge 2 ] || stop 2 "$1 needs a value"
    next=${2#--}
    [[ $2 != --?* || -z ${option_type[$next]:-} ]] || stop 2 "$1 needs a value, not the option '$2'"
    value=$2
    case ${option_type[$name]} in
      path | file) value=$(path_from_here "$2") ;;
      program) [[ $2 != */* ]] || value=$(path_from_here "$2") ;;
    esac
    check_value "$name" "$value"
    printf -v "${name//-/_}" '%s' "$value"
    option_given[$name]=true
    shift 2
  done
  [[ -z ${stage:-} || -z ${stop_stage:-} ]] || ((stage <= stop_stage)) ||
    stop 2 "--stage $stage comes after --stop-stage $stop_stage"
  for name in "${option_names[@]}"; do # a default can be wrong too: a file that is not there
    value=${name//-/_}
    check_value "$name" "${!value}"
  done
}

# exclusive NAME OTHER...: after parse_options, refuses --NAME together with one of the others.
exclusive() {
  local other
  [ -n "${option_given[$1]:-}" ] || return 0
  for other in "${@:2}"; do
    [ -z "${option_given[$other]:-}" ] || stop 2 "--$1 and --$other do not go together; leave one out"
  done
}

check_value() {
  local wanted="" value=$2 word words number='[0-9]+([.][0-9]+)?' count='[1-9][0-9]{0,8}' integer='(0|-?[1-9][0-9]{0,8})'
  read -r -a words <<<"$value"
  case ${option_type[$1]} in
    integer) [[ $value =~ ^$integer$ ]] || wanted="a whole number" ;;
    count) [[ $value =~ ^$integer$ && $value -ge 1 ]] || wanted="a whole number of 1 or more" ;;
    bool) [[ $value =~ ^(true|false)$ ]] || wanted="true or false" ;;
    number) [[ $value =~ ^$number$ ]] || wanted="a number of 0 or more" ;;
    counts) [[ $value =~ ^$count( +$count)*$ ]] || wanted="whole numbers of 1 or more, with spaces between" ;;
    numbers) [[ $value =~ ^($number( +$number)*)?$ ]] || wanted="numbers with spaces between, or ''" ;;
    path) [ -n "$value" ] || wanted="a path" ;;
    file) [ -f "$value" ] || [ -z "$value${option_default[$1]}" ] || wanted="a file that exists" ;;
    program) [[ -z $value ]] || "$value" -c '' >/dev/null 2>&1 || wanted="a Python that runs" ;;
    one:*) [[ -n $value && "|${option_type[$1]#one:}|" == *"|$value|"* ]] ||
      wanted="one of ${option_type[$1]#one:}" ;;
    some:*)
      [ ${#words[@]} -gt 0 ] || wanted="some of ${option_type[$1]#some:}"
      for word in ${words[@]+"${words[@]}"}; do
        [[ "|${option_type[$1]#some:}|" == *"|$word|"* ]] || wanted="some of ${option_type[$1]#some:}"
      done
      ;;
  esac
  [ -z "$wanted" ] || stop 2 "--$1 must be $wanted, not '$value'"
}

# A path that the user gave, as seen from the recipe's directory: the same file gives the same words
# wherever the script was called from, so that a stage's marker knows its command again.
path_from_here() {
  [ -n "$1" ] || return 0
  local full
  full=$(cd "$called_from" && realpath -ms -- "$1")
  case $full in
    "$PWD"/*) echo "${full#"$PWD"/}" ;;
    *) echo "$full" ;;
  esac
}

print_help() {
  local name type default
  sed -n '2,/^[^#]/{/^[^#]/d;s/^# \{0,1\}//;p}' "$script_path" # the comment at the head of the script
  echo
  echo "Options of $script:"
  for name in "${option_names[@]}"; do
    type=${option_type[$name]#one:} default=${option_default[$name]}
    describe_option "--$name ${type/#some:*/words}" "${option_help[$name]}${default:+ (default: $default)}"
  done
  [ -z "$extra_help" ] || describe_option "-- ..." "$extra_help"
}

# describe_option NAME TEXT: the text in a column of its own, below a name that is too long.
describe_option() {
  local line name="  $1"
  if [ ${#name} -gt 28 ]; then echo "$name" && name=""; fi
  fold -s -w 72 <<<"$2" | while IFS= read -r line; do
    printf '%-28s %s\n' "$name" "${line% }"
    name=""
  done
}

# Options that every recipe script has.
common_options() { # common_options LAST_STAGE
  option stage integer 1 "first stage to run"
  option stop-stage integer "$1" "last stage to run"
  option force bool false "run the stages again that were done before"
  option python program "" "a Python with icefall_attn, to be used instead of .venv"
}
