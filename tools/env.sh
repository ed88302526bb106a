# Sourced, by the scripts and by a person at the prompt:  . tools/env.sh
# Puts .venv first on the PATH and sets what the programs run best with.

# Cores that this process may use: its affinity, and the cgroup's quota (containers, SLURM).
usable_cores() {
  local cores quota period group
  cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
  group=$(sed -n 's/^0:://p' /proc/self/cgroup 2>/dev/null || true)
  quota="" period=""
  if [ -r "/sys/fs/cgroup$group/cpu.max" ]; then
    read -r quota period <"/sys/fs/cgroup$group/cpu.max" || true
  elif [ -r /sys/fs/cgroup/cpu.max ]; then
    read -r quota period </sys/fs/cgroup/cpu.max || true
  elif [ -r /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]; then
    quota=$(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us)
    period=$(cat /sys/fs/cgroup/cpu/cpu.cfs_period_us)
  fi
  if [[ $quota =~ ^[1-9][0-9]*$ && $period =~ ^[1-9][0-9]*$ ]]; then
    quota=$(((quota + period - 1) / period))
    [ "$quota" -ge "$cores" ] || cores=$quota
  fi
  echo "$cores"
}

_env_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
_env_venv=${ICEFALL_ATTN_VENV:-$_env_root/.venv}
if [ -x "$_env_venv/bin/python" ]; then
  export VIRTUAL_ENV="$_env_venv"
  case ":$PATH:" in
    ":$VIRTUAL_ENV/bin:"*) ;;
    *) export PATH="$VIRTUAL_ENV/bin:$PATH" ;;
  esac
  unset PYTHONHOME
fi
unset _env_root _env_venv

[ -n "${OMP_NUM_THREADS:-}" ] || OMP_NUM_THREADS=$(usable_cores)
export OMP_NUM_THREADS

# An OpenMP thread that waits spins for milliseconds by default, which makes everything 10 to 40 times
# slower as soon as another process wants the core; this is some microseconds.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}

# torch 1.13.1 carries MKL 2020.0, which takes a slow path on any CPU that is not Intel's: 5 makes
# it use AVX2 there, 2.8 times as fast. On an Intel CPU with AVX-512 it would be 2.4 times slower.
if [ -z "${MKL_DEBUG_CPU_TYPE:-}" ] && grep -q '^vendor_id' /proc/cpuinfo 2>/dev/null &&
  ! grep -q '^vendor_id.*GenuineIntel' /proc/cpuinfo; then
  export MKL_DEBUG_CPU_TYPE=5
fi
