#!/usr/bin/env bash
# What CI checks besides the tests. Says everything that is wrong, then fails.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=0
step() { # name, command …
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then
    echo "ok    $name"
  else
    echo "FAIL  $name"
    printf '%s\n' "$out" | sed 's/^/      /'
    failed=1
  fi
}

formatted() {
  local files
  files=$(gofmt -l $(git ls-files '*.go' | grep -v /testdata/)) || return 1
  [[ -z $files ]] || { echo "run gofmt -w on:"; echo "$files"; return 1; }
}

# Checksums stand beside what they cover, and paths in them are relative to it.
checksums() {
  local list
  while read -r list; do
    (cd "$(dirname "$list")" && sha256sum --check --quiet --strict "$(basename "$list")") || return 1
  done < <(git ls-files '*SHA256SUMS')
}

# Nothing that is only true on the machine it was written on.
portable() {
  ! git grep -nE '(^|[^A-Za-z0-9_./-])/(root|work|home)/[A-Za-z0-9]' -- ':!scripts/check.sh' ':!LICENSE' ':!*.wasm'
}

short_files() {
  local long
  long=$(git ls-files '*.go' | xargs wc -l | awk '$2 != "total" && $1 > 800 {print $2 ": " $1 " lines, at most 800"}')
  [[ -z $long ]] || { echo "$long"; return 1; }
}

clean() {
  local changes
  changes=$(git status --porcelain) || return 1
  [[ -z $changes ]] || { echo "commit or remove:"; echo "$changes"; return 1; }
}

# The benchmarks are a module of their own. Without cgo, for which CI has no wasmtime.
vet_bench() { (cd host/bench && CGO_ENABLED=0 go vet ./...); }

step "gofmt" formatted
step "go vet" go vet ./...
step "go vet host/bench" vet_bench
step "go mod verify" go mod verify
step "import rules and core purity" go test -count=1 ./internal/archtest
step "node.toml and docs/config.md follow the key table" go test -count=1 -run 'TestShippedFile|TestReference' ./internal/config
step "checksums of committed modules" checksums
step "no paths of one machine" portable
step "files under 800 lines" short_files
step "clean tree" clean
exit $failed
