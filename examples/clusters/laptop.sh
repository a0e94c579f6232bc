#!/bin/bash
# All cores of this machine (or all its GPUs): Ray is started for this run and stopped after it.
# After a kill or Ctrl-C the same command continues.
set -euo pipefail
data=${DATA:-bundled:ethanol@train}
output=${OUTPUT:-ethanol.posterior}
run=${output%.posterior}.run

resume=()
if [[ -e $run/plan.json ]]; then resume=(--resume); fi
exec equibayes sample "$data" -o "$output" --cluster local --chains "${CHAINS:-8}" "${resume[@]}" "$@"
