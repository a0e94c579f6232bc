#!/bin/bash
# Accuracy and calibration on crystals, on a CPU: silicon, lithium and molybdenum of the mlearn set (Zuo et al. 2020), small network.
#
#     bash studies/periodic.sh DATA OUTPUT [Si Li Mo]      DATA holds mlearn_Si_training.extxyz.gz, mlearn_Si_test.extxyz.gz, …
#
# A quarter of an hour each on one core.  Writes OUTPUT/Si.posterior and its metrics OUTPUT/Si.json.
set -eu
data=$(realpath "$1"); mkdir -p "$2"; output=$(realpath "$2"); shift 2
[ $# -gt 0 ] || set -- Si Li Mo
for element in "$@"; do
  resume=$([ -d "$output/$element.run" ] && echo --resume || true)
  [ -f "$output/$element.posterior" ] || equibayes sample "$data/mlearn_${element}_training.extxyz.gz" -o "$output/$element.posterior" $resume \
    --preset quick --network small sampler.mass=diagonal samples=8 network.r_max=5 burn_in.steps=1600 burn_in.batch_size=1 cycles.length=400 cycles.batch_size=1 --threads 1
  equibayes evaluate "$output/$element.posterior" "$data/mlearn_${element}_test.extxyz.gz" --json "$output/$element.json"
done
