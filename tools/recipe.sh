# Sourced first by every recipe script: options, stages, logs.
#
#   . "$(dirname "${BASH_SOURCE[0]}")/../../../tools/recipe.sh"
#   option nj count 4 "parallel jobs"          # --nj, kept in $nj, refused unless 1 or more
#   parse_options "$@"
#   work_dir=data                              # stages log to data/log/ and leave markers in data/.done/
#   needs "run ./download.sh first" corpus.tar
#   run_stage 1 unpack tar xf corpus.tar
#   run_stage 2 count some_function_or_program --nj "$nj"
#
# A stage is skipped while its marker says that the same command has succeeded on the same `needs`
# files and that no stage before it has run since. (A function's marker knows its text and arguments:
# give it what matters as arguments.) Output goes to the log, a progress bar to the terminal as well.
# Never call run_stage in a condition or before `||`: bash would go on after an error inside it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/tools
script=$(basename "$0")
script_path=$(realpath "$0")
called_from=$PWD
started=$SECONDS
cd "$(dirname "$script_path")" # recipes name their files relative to their own directory
. "$tools/env.sh"

# ---- messages ------------------------------------------------------------------------------------
stop() { # stop EXIT_CODE MESSAGE
  echo "$script: error: $2" >&2
  exit "$1"
}

. "$tools/options.sh"

# ---- environment ---------------------------------------------------------------------------------
# Activates --python's environment, or .venv, or takes the active one if icefall_attn is in it.
use_environment() {
  [ -z "${environment_is_used:-}" ] || return 0
  environment_is_used=true
  . "$tools/env.sh"
  if [ -n "${python:-}" ]; then
    PATH="$(dirname "$(type -P -- "$python")"):$PATH"
  elif [ -e "$root/.venv" ] && [ ! -e "$root/.venv/.setup-done" ]; then
    stop 1 "the installation of .venv did not finish; run tools/setup_env.sh again"
  fi
  python -c 'import icefall_attn' 2>/dev/null ||
    stop 1 "there is no environment with icefall_attn; run tools/setup_env.sh, or give --python"
  export PYTHONUNBUFFERED=1 # what a program prints is in its log at once
}

# The reason why k2 cannot be used in this environment; nothing if it can.
why_no_k2() { python -c 'from icefall_attn.environment import why_no_k2; print(why_no_k2())'; }

# inventory_of CONFIG OPTIONS...: the tokens.txt that a training uses, by its config or by --data.lang_dir
inventory_of() {
  local lang_dir word last=""
  lang_dir=$(sed -n 's/^  lang_dir: *\([^ #]*\).*/\1/p' "$1")
  for word in "${@:2}"; do
    [ "$last" != --data.lang_dir ] || lang_dir=$word
    [[ $word != --data.lang_dir=* ]] || lang_dir=${word#*=}
    last=$word
  done
  echo "${lang_dir:-data/lang}/tokens.txt"
}

# ---- stages --------------------------------------------------------------------------------------
inputs="" before=none # what the marker of the next stage has to remember

# needs WAY_OUT FILE...: the stages below stand on these files and run again when one of them changes.
needs() {
  local file
  inputs="" before=none
  for file in "${@:2}"; do
    [ -e "$file" ] || stop 1 "$file is missing; $1"
    if [ -f "$file" ] && [ "$(stat -L -c %s "$file")" -lt 1000000 ]; then
      inputs+="$file $(cksum <"$file")"$'\n'
    else
      inputs+="$file $(stat -L -c '%s bytes, %y' "$file")"$'\n'
    fi
  done
}

# run_stage NUMBER NAME COMMAND...
run_stage() {
  local number=$1 name=$2 label marker wanted known="" why="" id
  shift 2
  label="${script%.sh} $number $name"
  marker=$work_dir/.done/${script%.sh}-$name
  wanted=$(describe_stage "$@")
  if [ -e "$marker" ]; then
    known=$(sed '$d' "$marker")
    id=$(tail -n 1 "$marker")
  else
    id="not run"
  fi
  if ((number >= stage && number <= stop_stage)); then
    if [ "$known" = "$wanted" ] && [ "$force" = false ]; then
      echo "$label: done before, skipped"
    else
      if [ -n "$known" ] && [ "$force" = false ]; then why=" (again: its command or its inputs changed)"; fi
      rm -f "$marker"
      use_environment
      execute "$label" "$work_dir/log/${script%.sh}-$name.log" "$why" "$@"
      id="run: $(date '+%F %T.%N')"
      mkdir -p "$work_dir/.done"
      printf '%s\n%s\n' "$wanted" "$id" >"$marker.$$"
      mv "$marker.$$" "$marker"
    fi
  fi
  before=$id
}

# The words by which a marker knows its stage again. The number of jobs changes no result, and
# --overwrite, which goes with --force, is no reason to run again without it.
describe_stage() {
  local word last="" words=()
  [ "$(type -t "$1")" != function ] || declare -f "$1"
  for word in "$@"; do
    if [ "$last" = --nj ]; then word=any; fi
    [ "$word" = --overwrite ] || words+=("$word")
    last=$word
  done
  printf 'command: %s\n' "${words[*]@Q}"
  printf 'stage before: %s\n' "$before"
  printf '%s' "$inputs"
}

# Runs a command with its output in the log; one line on the console tells how it went.
execute() {
  local label=$1 log=$2 why=$3 began=$SECONDS outcome shown=false
  shift 3
  mkdir -p "$(dirname "$log")"
  environment_report
  {
    echo "# $label"
    echo "# command: ${*@Q}"
    echo "# started: $(date '+%F %T') on $HOSTNAME, in $PWD"
    sed 's/^/# /' <<<"$RECIPE_ENVIRONMENT"
  } >>"$log"
  # At a terminal the line is written over by the progress bar and then by its outcome.
  if [ -t 2 ]; then
    shown=true
    printf '%s ... ' "$label" >&2
  else
    printf '%s ... ' "$label"
  fi
  in_group logged "$shown" "$log" "$@"
  sed -i 's/.*\r\(.\)/\1/' "$log" # of a progress bar, the log keeps the last state
  case $group_code in
    0) outcome="done in" ;;
    75) outcome="interrupted, to be gone on with, after" ;;
    129 | 130 | 143) outcome="stopped by a signal after" ;;
    137) outcome="KILLED, perhaps for want of memory, after" ;;
    *) outcome="FAILED with exit code $group_code after" ;;
  esac
  outcome+=" $((SECONDS - began)) s"
  case $group_code in
    0) outcome+=$why ;;
    75 | 129 | 130 | 143) ;;
    *) outcome+="; $log ends:" ;;
  esac
  if [ "$shown" = true ]; then
    printf '\r\033[K' >&2
    echo "$label: $outcome"
  else
    echo "$outcome"
  fi
  [[ $outcome != *ends: ]] || end_of_log "$log" >&2
  [ -z "$(tail -c 1 "$log")" ] || echo >>"$log" # a bar that was cut off ends in no newline
  echo "# ended: $(date '+%F %T'), exit code $group_code after $((SECONDS - began)) s" >>"$log"
  [ "$group_code" -eq 0 ] || exit "$group_code"
}

# What a person needs of a failed stage's log: its error, if a program told it in one line.
end_of_log() {
  local lines=12
  [[ $(tail -n 1 "$1") != "error: "* ]] || lines=1
  tail -n "$lines" "$1" | sed '/^# /d; s/^/    /'
}

# What the head of each log tells; found out once for a script and those that it calls.
environment_report() {
  [ -n "${RECIPE_ENVIRONMENT:-}" ] || RECIPE_ENVIRONMENT=$(python -m icefall_attn.environment 2>&1) || true
  export RECIPE_ENVIRONMENT
}

# logged SHOWN LOG COMMAND...
logged() {
  local shown=$1 log=$2
  shift 2
  exec 3>&2 >>"$log" 2>&1 </dev/null # what bash says of a killed program belongs to the log too
  if [ "$shown" = false ]; then
    export TQDM_MININTERVAL=${TQDM_MININTERVAL:-30} # a log needs no smooth bar
    [ "$(type -t "$1")" != file ] || exec "$@"      # then no shell has to tell of its death
    "$@"
  else
    export TQDM_MININTERVAL=${TQDM_MININTERVAL:-0.5}
    export ICEFALL_ATTN_PROGRESS=1 # stderr is a pipe, but its bars are shown
    read -r LINES COLUMNS < <(stty size <&3 2>/dev/null || echo 0 0)
    [ "$COLUMNS" -gt 0 ] || LINES=24 COLUMNS=80 # a terminal that does not know its size
    export LINES COLUMNS                        # tqdm's stderr is a pipe, so it asks these
    set +e
    (
      set -e
      "$@"
    ) 2>&1 >>"$log" 3>&- | tee -a "$log" | show_bars >&3
    exit "${PIPESTATUS[0]}"
  fi
}

# Puts the progress bars among its input, which end in a carriage return, on the terminal.
show_bars() {
  local text
  while IFS= read -r -d $'\r' text; do
    text=${text##*$'\n'}
    [ -z "$text" ] || printf '\r\033[K%s' "${text:0:COLUMNS-1}"
  done
}

# Runs a command in a process group of its own, which ends with this script: a killed script leaves no
# training behind. Under `set -m` the group can be interrupted, unlike other background commands.
# The exit code is left in $group_code: a function called as `in_group ... || ...` would run without `set -e`.
in_group() {
  local child stopped=""
  set -m
  (
    set +m
    "$@"
  ) &
  child=$!
  set +m
  trap 'stopped=143; stop_group "$child"' TERM HUP
  trap 'stopped=130; stop_group "$child"' INT
  trap 'kill -USR1 -- "-$child" 2>/dev/null || true' USR1 # "end soon": the training knows how
  set +e
  wait "$child" 2>/dev/null # bash would tell of a kill in its own words
  group_code=$?
  while [ -z "$stopped" ] && kill -0 "$child" 2>/dev/null; do # a signal has ended the wait, not the child
    wait "$child" 2>/dev/null
    group_code=$?
  done
  set -e
  trap - TERM HUP INT USR1
  group_code=${stopped:-$group_code}
}

stop_group() {
  kill -TERM -- "-$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# ---- a recipe's run.sh ---------------------------------------------------------------------------
# run_part NUMBER SCRIPT OPTIONS...: one of the recipe's other scripts; it prints its own lines.
run_part() {
  local number=$1
  shift
  ((number >= stage && number <= stop_stage)) || return 0
  in_group "$@"
  [ "$group_code" -eq 0 ] || exit "$group_code"
}
