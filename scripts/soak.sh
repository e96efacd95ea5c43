#!/usr/bin/env bash
# Runs the simulation over and over with fresh seeds for the given time; a failure prints its seed and ends the run.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds() {
  case $1 in
    *h) echo $((${1%h} * 3600)) ;;
    *m) echo $((${1%m} * 60)) ;;
    *s) echo "${1%s}" ;;
    *) echo "want a time such as 2h, 30m or 90s, not $1" >&2; return 1 ;;
  esac
}

length=$(seconds "${1:-2h}")
binary=$(mktemp)
trap 'rm -f "$binary"' EXIT
go test -c -o "$binary" ./sharding/simulation
cd sharding/simulation
start=$SECONDS
seed=$((RANDOM * 32768 * 32768 + RANDOM * 32768 + RANDOM))
done=0
while ((SECONDS - start < length)); do
  if ! out=$("$binary" -test.run Simulation -test.count=1 -sim.seed="$seed" 2>&1); then
    printf '%s\n' "$out"
    echo "seed $seed fails; replay: go test ./sharding/simulation -run Simulation -sim.seed=$seed" >&2
    exit 1
  fi
  seed=$((seed + 1))
  done=$((done + 1))
  if ((done % 100 == 0)); then echo "$done seeds passed, the last is $((seed - 1))"; fi
done
echo "$done seeds passed"
