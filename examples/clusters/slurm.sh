#!/bin/bash
#SBATCH --job-name=equibayes
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@180
# Starts Ray on every node of the allocation and samples on all of them.  Slurm sends TERM 180 s before the time limit, and
# the workers write checkpoints.  Submit the script again (or let Slurm requeue it) to continue, also with another number
# of nodes.
#   DATA=train.xyz OUTPUT=train.posterior CHAINS=64 sbatch slurm.sh
set -euo pipefail
data=${DATA:-bundled:ethanol@train}
output=${OUTPUT:-ethanol.posterior}
run=${output%.posterior}.run
export RAY_USAGE_STATS_ENABLED=0
# a secret of this job, passed to all nodes by srun: without it anyone on the network could run programs here
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | sha256sum | cut -c1-64)
export RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
ip=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}')
port=${RAY_PORT:-$((20000 + SLURM_JOB_ID % 10000))} # two jobs may share a node
steps=()

finish() {
  kill "${steps[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
}
trap finish EXIT

srun --nodes=1 --ntasks=1 -w "$head" ray start --head --node-ip-address="$ip" --port="$port" \
  --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
steps+=($!)
until (exec 3<>"/dev/tcp/$ip/$port") 2>/dev/null; do sleep 1; done
for node in "${nodes[@]:1}"; do
  srun --nodes=1 --ntasks=1 -w "$node" ray start --address="$ip:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
  steps+=($!)
done
# chains are packed when the run begins, so all nodes should be there
timeout 300 python - "$ip:$port" "${#nodes[@]}" <<'PYTHON'
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]):
    time.sleep(1)
PYTHON

resume=()
if [[ -e $run/plan.json ]]; then resume=(--resume); fi
equibayes sample "$data" -o "$output" --cluster "$ip:$port" --chains "${CHAINS:-64}" "${resume[@]}" "$@" &
sampler=$!
trap 'kill -TERM $sampler' TERM INT
# the first wait ends when a signal comes, the second when the sampler has saved
wait $sampler || wait $sampler
