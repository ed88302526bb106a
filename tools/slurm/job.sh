#!/usr/bin/env bash
# What a job of --launcher slurm runs: job.sh RESTARTS COMMAND...
# SLURM's notice that the time is over or the node is wanted (USR1, TERM) is handed on. A command that then ends
# with 75 can be gone on with, and the job is put into the queue again; so it is, RESTARTS times, after a crash.
set -uo pipefail
restarts=$1
shift
log=$(readlink /proc/$$/fd/1) # a job that is queued again goes on with it
crashes=$(grep -cs '^# ended: .*; crashed, restart' "$log") || crashes=0
echo "# command: ${*@Q}"
echo "# started: $(date '+%F %T') on $(hostname), job $SLURM_JOB_ID of nodes ${SLURM_JOB_NODELIST:-?}, turn $((${SLURM_RESTART_COUNT:-0} + 1))"

"$@" &
child=$!
noticed=false signalled=true
trap 'signalled=true noticed=true; kill -USR1 "$child" 2>/dev/null' USR1
trap 'signalled=true; kill -TERM "$child" 2>/dev/null' TERM
while [ "$signalled" = true ]; do # a signal ends the wait, not the command, whose code a later wait tells, too
  signalled=false
  wait "$child"
  code=$?
done

# again REASON: the queue gives the job another turn, with the same number. Not if SLURM is ending the job without
# notice: then it was cancelled, or preempted, after which SLURM queues it again without being asked.
again() {
  [ "$noticed" = true ] || [ "$(squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ] || return 0
  echo "# ended: $(date '+%F %T'), exit code $code; $1"
  scontrol requeue "$SLURM_JOB_ID" && sleep 60 # until SLURM ends it
  exit "$code"
}

case $code in
  75) again "to be gone on with" ;;
  129 | 13[0-9] | 14[0-9] | 76) # a signal: a node in trouble, memory, a process that was lost
    [ "$crashes" -ge "$restarts" ] || again "crashed, restart $((crashes + 1)) of $restarts" ;;
esac
echo "# ended: $(date '+%F %T'), exit code $code"
exit "$code"
