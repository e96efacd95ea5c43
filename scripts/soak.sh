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
batch=1000
binary=$(mktemp)
trap 'rm -f "$binary"' EXIT
go test -c -o "$binary" ./sharding/simulation
cd sharding/simulation
"$binary" -test.list '^TestSeeds$' | grep -qx TestSeeds # a pattern that matches nothing would pass for ever
start=$SECONDS
first=$((RANDOM * 32768 * 32768 + RANDOM * 32768 + RANDOM + 1))
while ((SECONDS - start < length)); do
  echo "seeds $first to $((first + batch - 1))"
  "$binary" -test.run '^TestSeeds$' -test.timeout 0 -sim.from="$first" -sim.seeds="$batch"
  first=$((first + batch))
done
