#!/usr/bin/env bash
# One job of an array: array.sh N COMMAND... runs COMMAND with its --share of N.
set -euo pipefail
exec "${@:2}" --share "$SLURM_ARRAY_TASK_ID/$1"
