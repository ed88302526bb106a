#!/usr/bin/env bash
# One process of a training that srun has started: process.sh COMMAND... gives it torchrun's variables.
set -euo pipefail
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
exec "$@"
