#!/usr/bin/env bash
# A real SLURM on this machine alone, for trying what a cluster would do: a controller and two nodes of half the
# cores each, from Debian's packages. For root only, in a container or a virtual machine.
#
#   tools/slurm_sandbox.sh up        installs what is missing, starts it and says what to export
#   tools/slurm_sandbox.sh status    nodes and jobs
#   tools/slurm_sandbox.sh down      ends all jobs and daemons; the packages stay
#
# All of its state is in $SLURM_SANDBOX (default: /tmp/slurm-sandbox). A SLURM that is configured on the machine is
# not touched: the commands find the sandbox by SLURM_CONF.
set -euo pipefail

state=${SLURM_SANDBOX:-/tmp/slurm-sandbox}
export SLURM_CONF=$state/slurm.conf

fail() {
  echo "slurm_sandbox.sh: error: $*" >&2
  exit 1
}

# The directory is emptied by up and down: it must be a sandbox's, or nobody's.
check_state() {
  [ -z "$(ls -A "$state" 2>/dev/null)" ] || grep -qsx 'ClusterName=sandbox' "$SLURM_CONF" ||
    fail "$state is no sandbox's directory and is left alone; name an empty or new one in SLURM_SANDBOX"
}

install_packages() {
  local missing=() program
  for program in slurmctld slurmd sbatch munged; do
    type -P "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || missing+=("$program")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  type -P apt-get >/dev/null || fail "no ${missing[*]} here, and no apt-get to install them with"
  echo "installing slurmctld slurmd slurm-client munge"
  # A policy that starts nothing: the packages' own services would be another SLURM.
  { DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends \
    slurmctld slurmd slurm-client munge ||
    { apt-get update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends \
      slurmctld slurmd slurm-client munge; }; } >"$state/apt.log" 2>&1 ||
    fail "the packages cannot be installed: $(tail -n 1 "$state/apt.log") (in full: $state/apt.log)"
}

free_port() { # three in a row would do, but each is asked for by itself
  python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

write_config() {
  local host cores memory
  host=$(hostname -s)
  cores=$(nproc)
  memory=$(awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
  cat >"$SLURM_CONF" <<END
ClusterName=sandbox
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$state/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$state/controller
SlurmdSpoolDir=$state/%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2
ReturnToService=2
MpiDefault=none
KillWait=10
JobRequeue=1
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$(free_port),$(free_port)] CPUs=$(((cores + 1) / 2)) RealMemory=$((memory / 2)) State=UNKNOWN
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
END
}

up() {
  check_state
  [ "$(id -u)" = 0 ] || fail "it must be root's, for munge and the daemons"
  ! running || fail "it is up already ($state); tools/slurm_sandbox.sh down ends it"
  rm -rf "$state"
  mkdir -p "$state"/{controller,n1,n2}
  write_config # first: by it, the directory is known as a sandbox's
  install_packages
  PATH=$PATH:/usr/sbin
  dd if=/dev/urandom of="$state/munge.key" bs=1024 count=1 status=none
  chmod 400 "$state/munge.key"
  munged --force --key-file="$state/munge.key" --socket="$state/munge.socket" --pid-file="$state/munged.pid" \
    --log-file="$state/munged.log" --seed-file="$state/munge.seed"
  slurmctld -c
  slurmd -N n1
  slurmd -N n2
  for _ in $(seq 60); do
    [ "$(sinfo -h -N -t idle 2>/dev/null | wc -l)" -lt 2 ] || break
    sleep 0.5
  done
  [ "$(sinfo -h -N -t idle | wc -l)" = 2 ] || fail "the nodes do not come up; see the logs in $state"
  echo "SLURM is up, two nodes of $((($(nproc) + 1) / 2)) cores:  export SLURM_CONF=$SLURM_CONF"
}

running() { [ -e "$state/slurmctld.pid" ] && kill -0 "$(cat "$state/slurmctld.pid")" 2>/dev/null; }

down() {
  local pid file
  check_state
  if running; then scancel --state=pending,running,suspended --user=root 2>/dev/null && sleep 1 || true; fi
  for file in "$state"/{slurmctld,n1,n2,munged}.pid; do
    [ -e "$file" ] || continue
    pid=$(cat "$file")
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
  done
  rm -rf "$state"
  echo "SLURM is down"
}

case ${1:-} in
  up) up ;;
  down) down ;;
  status) running || fail "it is not up" && sinfo -N && squeue ;;
  *)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    [[ ${1:-} =~ ^(-h|--help|)$ ]] || exit 2
    ;;
esac
