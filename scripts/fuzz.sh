#!/usr/bin/env bash
# Runs every fuzz target of the module one after another, each for the given time.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-20s}
found=0
while read -r package; do
  # The listing names targets one a line, then "ok package time"; a package without tests prints neither.
  while read -r target; do
    found=1
    echo "== $package $target"
    # Minimising inputs that are merely interesting would take most of a short run.
    go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x
  done < <(go test "$package" -list '^Fuzz' | grep '^Fuzz' || true)
done < <(go list ./...)
if ((found == 0)); then
  echo "no fuzz target found" >&2
  exit 1
fi
