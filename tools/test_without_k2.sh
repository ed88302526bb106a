#!/usr/bin/env bash
# Runs the tests once more on a current torch (CPU) and without k2, in an environment of its own: what needs k2
# skips, and says so. The environment is made the way a user's own torch is taken: tools/setup_env.sh --torch user.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch=2.13.0
base=$root/.venv-torch2-base # stands for the user's environment, which holds torch and nothing of ours

if ! "$base/bin/python" -c "import torch; assert torch.__version__.startswith('$torch')" 2>/dev/null; then
  rm -rf "$base"
  "${PYTHON:-$(command -v python3.11 || command -v python3)}" -m venv "$base"
  "$base/bin/python" -m pip install --disable-pip-version-check -q "torch==$torch" numpy
fi
export ICEFALL_ATTN_VENV=$root/.venv-torch2
"$root/tools/setup_env.sh" --torch user --python "$base/bin/python" --k2 none
exec "$root/tools/run_tests.sh" "$@"
