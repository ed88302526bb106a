#!/usr/bin/env bash
# Makes the Python environment .venv at the root of the repository, or brings it up to date.
#
#   tools/setup_env.sh                      torch 1.13.1 with k2 1.23.4, pinned (Linux x86-64, Python 3.10 or 3.11)
#   tools/setup_env.sh --torch user         your own torch (2.x, CUDA, ...): run it in the environment that has it;
#                                           .venv then uses that torch, and your environment is left as it is
#
# Options:
#   --python PROGRAM     the Python to use (default: $PYTHON, else python3.11, python3.10 or python3;
#                        with --torch user: the active environment's python)
#   --torch pinned|user  whose torch (default: pinned)
#   --k2 WHAT            with --torch user, the k2 that matches that torch: the file or address of a wheel, or a
#                        requirement such as "k2==VERSION"; "none" for no k2
#                        (default: the one in your environment, if there is one)
#
# Without options, an environment that is there is kept as it was made. A call with nothing to do returns
# at once; one after an interrupted call starts afresh. Details: .venv/setup.log
# ICEFALL_ATTN_VENV=DIRECTORY names another place than .venv, here and for tools/env.sh.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${ICEFALL_ATTN_VENV:-$root/.venv}
name=${venv#"$root"/}
log=$venv/setup.log
done_file=$venv/.setup-done # written last: what the environment was made from
made_file=$venv/.made-by-setup_env
needed_gb=6
started=$SECONDS

fail() {
  echo "setup_env.sh: error: $*" >&2
  exit 1
}

refuse() {
  echo "setup_env.sh: error: $*" >&2
  exit 2
}

# ---- options -------------------------------------------------------------------------------------
python="" torch="" k2=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --python | --torch | --k2)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    -*) refuse "unknown option '$1'; --help lists the options" ;;
    *) refuse "unexpected argument '$1'; --help lists the options" ;;
  esac
done
made() { sed -n "s/^$1=//p" "$done_file" 2>/dev/null || true; }
if [ -z "$python$torch$k2" ] && [ "$(made root)" = "$root" ]; then
  python=$(made python) torch=$(made torch) k2=$(made k2)
fi
python=${python:-${PYTHON:-}}
torch=${torch:-pinned}
case $torch in pinned | user) ;; *) refuse "--torch must be pinned or user, not '$torch'" ;; esac
[ "$torch" = user ] || [ -z "$k2" ] ||
  refuse "--k2 goes with --torch user; the pinned torch has its own k2"
[ ! -f "$k2" ] || k2=$(realpath "$k2")

# ---- which Python --------------------------------------------------------------------------------
PATH=${PATH//"$venv/bin:"/} # an active .venv is what is made here, not what it is made from
runs() { "$1" -c '' >/dev/null 2>&1; } # a name on the PATH may be a shim that fails

choose_python() {
  local candidate
  if [ -n "$python" ]; then
    runs "$python" || fail "the Python '$python' does not run; name another with --python"
  else
    for candidate in $([ "$torch" = user ] && echo python) python3.11 python3.10 python3; do
      if runs "$candidate"; then
        python=$candidate
        break
      fi
    done
    [ -n "$python" ] || fail "no Python found; install Python 3.11 or name one with --python"
  fi
  { read -r python && read -r version; } < <("$python" -c '
import sys
print(sys.executable)
print("%d.%d" % sys.version_info[:2])')
  case $python in "$venv"/*) fail "the Python '$python' is $name's own; name another with --python" ;; esac
}

check_platform() {
  local system machine libc free
  system=$(uname -s) machine=$(uname -m)
  if [ "$torch" = pinned ]; then
    [ "$system" = Linux ] ||
      fail "k2 1.23.4 has no wheel for $system, only for Linux; see --torch user in --help"
    [ "$machine" = x86_64 ] ||
      fail "k2 1.23.4 has no wheel for $machine, only for x86-64; see --torch user in --help"
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //' || true)
    [ -n "$libc" ] && [ "$(printf '%s\n' 2.28 "$libc" | sort -V | head -n 1)" = 2.28 ] ||
      fail "the wheels need glibc 2.28 or newer, and this system has '${libc:-another C library}'"
    case $version in
      3.10 | 3.11) ;;
      *) fail "Python $version ($python) does not fit: torch 1.13.1, k2 1.23.4 and sentencepiece 0.2.3" \
        "together exist for Python 3.10 and 3.11; name one with --python" ;;
    esac
  else
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
      fail "Python $version ($python) is too old: 3.10 or newer is needed"
    needed_gb=2
  fi
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python has no venv module; install it (Debian: apt-get install python$version-venv)"
  free=$(df -Pk "$root" | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
  [ "$free" -ge "$needed_gb" ] ||
    fail "$root has $free GB free, and the environment needs $needed_gb GB"
}

# ---- steps ---------------------------------------------------------------------------------------
# step TITLE COMMAND...: one line on the console, everything else in the log.
step() {
  local title=$1 began=$SECONDS code
  shift
  printf '%-61s ' "$title ..."
  printf '\n# %s: %s\n' "$title" "$*" >>"$log"
  "$@" >>"$log" 2>&1 </dev/null && code=0 || code=$?
  if [ "$code" -ne 0 ]; then
    echo "failed"
    fail "$title: $(grep -i error "$log" | tail -n 1 | cut -c1-300 || true) (in full: $log)"
  fi
  echo "$((SECONDS - began)) s"
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

make_venv() {
  rm -rf "$venv"
  mkdir "$venv"
  : >"$made_file"
  : >"$log"
  step "Python $version ($python)" "$python" -m venv "$venv"
}

install_pinned() {
  step "torch 1.13.1" pip install -r "$root/requirements/torch.txt" -c "$root/requirements/constraints.txt"
  step "k2 1.23.4" pip install --no-deps -r "$root/requirements/k2.txt"
  step "lhotse, sentencepiece and the rest" \
    pip install -r "$root/requirements/base.txt" -c "$root/requirements/constraints.txt"
}

# The user's packages are seen through a .pth file, so that nothing is installed among them; the
# versions of their torch and numpy are held.
install_beside_user_torch() {
  local site=$venv/lib/python$version/site-packages held=$venv/users-versions.txt
  printf '%s\n' "$users_paths" >"$site/users-torch.pth"
  "$venv/bin/python" - >"$held" <<'EOF'
from importlib import metadata
for name in ("torch", "numpy", "torchaudio"):
    try:
        print(f"{name}=={metadata.version(name)}")
    except metadata.PackageNotFoundError:
        pass
EOF
  step "lhotse, sentencepiece and the rest" \
    pip install -r "$root/requirements/base.txt" -c "$held"
  if [ -n "$k2" ] && [ "$k2" != none ]; then
    step "k2 from $k2" pip install --no-deps --force-reinstall "$k2"
  fi
}

find_users_torch() {
  local found
  found=$("$python" -c '
import sys
from importlib import metadata
version = metadata.version("torch")
if tuple(int(x) for x in version.split(".")[:2]) < (1, 13):
    sys.exit(1)
print(version)
for path in sys.path:
    if path.endswith(("site-packages", "dist-packages")):
        print(path)' 2>/dev/null) || fail "$python has no torch of 1.13 or newer;" \
    "activate the environment that has it or name its Python with --python"
  users_torch=${found%%$'\n'*}
  users_paths=${found#*$'\n'}
}

has_k2() { "$venv/bin/python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("k2"))'; }

# ---- main ----------------------------------------------------------------------------------------
choose_python
users_torch="" users_paths=""
[ "$torch" = pinned ] || find_users_torch
place="root=$root
python=$python
torch=$torch
versions=$version $users_torch"
sources=("$root"/requirements/*.txt "$root/setup.py" "$root/icefall_attn/__init__.py")
made_from="$place
k2=$k2
sources=$(cat "${sources[@]}" | sha256sum | cut -d' ' -f1)"
is_done() { [ -x "$venv/bin/python" ] && [ "$(cat "$done_file" 2>/dev/null)" = "$made_from" ]; }

if is_done; then
  echo "$name is up to date (Python $version)"
  exit 0
fi
check_platform
[ ! -e "$venv" ] || [ -e "$made_file" ] ||
  fail "$venv is not of this script's making; move it away first"
if command -v flock >/dev/null; then
  exec 9>"$venv.lock"
  flock -n 9 || {
    echo "another setup_env.sh is at work; waiting for it"
    flock 9
  }
  is_done && exit 0
fi

# Only a finished environment is worth updating: pip takes half-written packages for installed ones.
if [ ! -x "$venv/bin/python" ] || [[ $(cat "$done_file" 2>/dev/null) != "$place"* ]]; then
  make_venv
fi
rm -f "$done_file"
if [ "$torch" = pinned ]; then
  install_pinned
else
  echo "torch $users_torch of $python"
  install_beside_user_torch
fi
step "icefall_attn" pip install --no-deps --no-build-isolation -e "$root"
without_k2=()
if [ "$torch" = user ] && { [ "$k2" = none ] || ! has_k2; }; then
  without_k2=(--without-k2)
  echo "no k2: the loss runs on the torch backend, and fast_beam_search is not available (--k2 adds it)"
fi
. "$root/tools/env.sh"
step "check" python -m icefall_attn.bin.check_env ${without_k2[@]+"${without_k2[@]}"}
echo "$made_from" >"$done_file"
echo "$name is ready after $((SECONDS - started)) s; . tools/env.sh activates it"
