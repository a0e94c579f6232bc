#!/bin/bash
# Does killed dynamics continue to the same bytes?  One run without interruption, and one killed three times by SIGKILL.
#
#     bash studies/killed_dynamics.sh demo-output/ethanol.posterior FOLDER cuda     a minute on a GPU; `make demo` makes the posterior
#
# Prints "same bytes" for each file of a run; the exit status is 0 if all are equal.
set -u
posterior=$(realpath "$1"); mkdir -p "$2"; folder=$(realpath "$2"); device=${3:-cuda}
run="python -m equibayes md $posterior bundled:ethanol@0:1 -o t.xyz --device $device --steps 1500 --temperature 400 --ensemble bussi
     --every 5 --save-every 100 --trust-lo 0.5x --trust-hi 50x --on-uncertain write"
rm -rf "$folder/alone" "$folder/killed"; mkdir -p "$folder/alone" "$folder/killed"
cd "$folder/alone" && $run > out.txt 2>&1; echo "left alone: exit status $?"
cd "$folder/killed"
lines() { cat t-md/md.log 2> /dev/null | wc -l; }
for turn in 1 2 3; do
  before=$(lines); resume=$([ $turn -gt 1 ] && echo --resume)
  $run $resume > "out$turn.txt" 2>&1 & pid=$!
  while kill -0 $pid 2> /dev/null && [ "$(lines)" -le $((before + 60)) ]; do sleep 0.25; done
  kill -9 $pid && echo "killed with $(lines) lines in its log"
  wait $pid 2> /dev/null
done
$run --resume > out.txt 2>&1; echo "continued: exit status $?"
status=0
for file in t.xyz t-md/md.log t-md/candidates.xyz t-md/md.svg; do
  cmp "$folder/alone/$file" "$file" && echo "same bytes: $file, $(wc -c < "$file")" || status=1
done
exit $status
