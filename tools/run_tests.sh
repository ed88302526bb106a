#!/usr/bin/env bash
# Runs the tests: tools/run_tests.sh [pytest options], e.g. tools/run_tests.sh tests/scripts -k stages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/env.sh
exec python -m pytest "$@"
