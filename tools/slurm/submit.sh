# Sourced by the stage scripts: --launcher slurm, its options and how jobs are submitted.

# launcher_options: those of the scripts that can submit themselves.
launcher_options() {
  option launcher one:local\|slurm local "where it runs: here, or in jobs that are submitted"
  option cluster file "$tools/cluster.conf" "slurm: what the jobs ask for"
  option dry-run bool false "slurm: print the jobs, submit nothing"
}

# read_cluster: sets cluster_NAME for every line of --cluster.
read_cluster() {
  local line name value number=0
  local known=" partition account time memory cpus nodes processes gpus array restarts extra "
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line%%#*}
    [[ $line =~ [^[:space:]] ]] || continue
    [[ $line == *=* ]] || stop 2 "$cluster, line $number: NAME = VALUE is wanted, not '$line'"
    read -r name <<<"${line%%=*}"
    read -r value <<<"${line#*=}" || true
    [[ $known == *" $name "* ]] || stop 2 "$cluster, line $number: unknown name '$name'; known are$known"
    printf -v "cluster_$name" '%s' "$value"
  done <"$cluster"
  for name in cpus nodes processes array; do
    value=cluster_$name
    [[ ${!value:=1} =~ ^[1-9][0-9]*$ ]] || stop 2 "$cluster: $name must be a whole number of 1 or more, not '${!value}'"
  done
  [[ ${cluster_restarts:=0} =~ ^[0-9]+$ ]] || stop 2 "$cluster: restarts must be a whole number, not '$cluster_restarts'"
  [ "$dry_run" = true ] || type -P sbatch >/dev/null ||
    stop 1 "there is no sbatch here; --launcher slurm needs a node from which jobs are submitted"
}

# submit NAME AFTER OPTIONS -- COMMAND...: submits a job that runs after the job AFTER ('' for none) has ended well.
# OPTIONS are sbatch's. Its number is left in $job.
submit() {
  local name=$1 after=$2 asked=() file script more
  shift 2
  while [ "$1" != -- ]; do
    asked+=("$1")
    shift
  done
  shift
  file=$jobs_dir/$name.sbatch
  read -r -a more <<<"${cluster_extra:-}"
  asked+=(
    ${cluster_partition:+--partition=$cluster_partition} ${cluster_account:+--account=$cluster_account}
    ${cluster_time:+--time=$cluster_time} ${cluster_memory:+--mem=$cluster_memory} --cpus-per-task="$cluster_cpus"
    ${more[@]+"${more[@]}"}
  )
  script=$(
    echo "#!/usr/bin/env bash"
    printf '#SBATCH %s\n' "--job-name=$(basename "$(dirname "$PWD")")-$name" "--output=\"$(realpath -ms "$jobs_dir")/$name-%j.log\"" "--open-mode=append" \
      "--requeue" "--signal=B:USR1@120" "--kill-on-invalid-dep=yes" "${asked[@]}"
    echo "cd ${PWD@Q}"
    echo "exec ${tools@Q}/slurm/job.sh $cluster_restarts ${*@Q}"
  )
  if [ "$dry_run" = true ]; then
    printf '# sbatch%s %s\n%s\n\n' "${after:+ --dependency=afterok:$after}" "$file" "$script"
    job=$name
    return
  fi
  mkdir -p "$jobs_dir"
  echo "$script" >"$file"
  job=$(sbatch --parsable ${after:+--dependency=afterok:$after} "$file") || stop 1 "sbatch refuses $file"
  job=${job%%;*} # the name of a cluster may follow
  echo "$name: job $job${after:+, after $after}; log $jobs_dir/$name-$job.log"
}

# One line for each node and process of the training.
training_resources() {
  printf '%s\n' "--nodes=$cluster_nodes" "--ntasks-per-node=$cluster_processes" \
    ${cluster_gpus:+"--gpus-per-node=$cluster_gpus"}
}

# Within a job of several processes, sets MASTER_ADDR and MASTER_PORT for them.
meeting_point() {
  local first
  first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  MASTER_ADDR=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
  MASTER_PORT=$(python - "$((10000 + (SLURM_JOB_ID * 16 + ${SLURM_RESTART_COUNT:-0}) % 20000))" <<'PY'
import socket, sys
for port in range(int(sys.argv[1]), 65536):
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            continue
        print(port)
        break
PY
  )
  export MASTER_ADDR MASTER_PORT
}
