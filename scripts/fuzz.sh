#!/usr/bin/env bash
# Runs every fuzz target of the module one after another, each for the given time.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-20s}
found=0
packages=$(go list ./...)
for package in $packages; do
  # The listing names targets one a line, then "ok package time". A package whose tests do not compile must not pass as one without targets.
  listing=$(go test "$package" -list '^Fuzz') || { echo "$listing" >&2; exit 1; }
  for target in $(grep '^Fuzz' <<<"$listing" || true); do
    found=1
    echo "== $package $target"
    # Minimising inputs that are merely interesting would take most of a short run.
    go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x
  done
done
if ((found == 0)); then
  echo "no fuzz target found" >&2
  exit 1
fi
