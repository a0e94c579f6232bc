#!/bin/bash
# One machine with many GPUs: one worker on each GPU in GPUS, with CHAINS / GPUs chains in one pass.
#   GPUS=0,1,2,3 CHAINS=64 ./many_gpus.sh
set -euo pipefail
export CUDA_VISIBLE_DEVICES=${GPUS:-0,1,2,3,4,5,6,7}
data=${DATA:-bundled:ethanol@train}
output=${OUTPUT:-ethanol.posterior}
run=${output%.posterior}.run

resume=()
if [[ -e $run/plan.json ]]; then resume=(--resume); fi
exec equibayes sample "$data" -o "$output" --preset standard --device "${DEVICE:-cuda}" --cluster local \
  --chains "${CHAINS:-64}" "${resume[@]}" "$@"
