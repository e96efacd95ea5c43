#!/bin/sh
# Builds the wasm modules that are committed beside their sources, or checks that they are what their sources give.
#
#   strategies/build.sh          rebuild all, and write strategies/SHA256SUMS
#   strategies/build.sh verify   rebuild in a temporary folder and compare
#
# The bytes depend on the Go release, so it is pinned: a committed module changes only when its source does, or when the
# pin is raised on purpose.
set -eu

toolchain=go1.26.8
modules="hash leastshard rendezvous"
mode=${1:-build}

cd "$(dirname "$0")/.."

export GOTOOLCHAIN=local GOFLAGS= GOWORK=off GOEXPERIMENT= GOWASM= CGO_ENABLED=0
have=$(go env GOVERSION)
if [ "$have" != "$toolchain" ]; then
	echo "strategies/build.sh: this is $have, the committed modules are built by $toolchain: install that release and" \
		"put its bin folder first in PATH, or raise the pin in strategies/build.sh and commit what it builds" >&2
	exit 1
fi

# build SOURCE OUT
build() {
	GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -ldflags='-s -w' -buildmode=c-shared -o "$2" "$1"
}

# each COMMAND calls it with the source package and the module of every strategy and Go example.
each() {
	for name in $modules; do
		"$1" "./strategies/$name/guest" "strategies/$name/$name.wasm"
	done
	for source in plugins-examples/*/guest/main.go; do
		name=$(basename "$(dirname "$(dirname "$source")")")
		"$1" "./plugins-examples/$name/guest" "plugins-examples/$name/$name.wasm"
	done
}

verify() {
	build "$1" "$scratch/module.wasm"
	if ! cmp -s "$scratch/module.wasm" "$2"; then
		echo "strategies/build.sh: $2 is not what its source gives: run make wasm and commit it" >&2
		exit 1
	fi
	echo "$2: as built"
}

case $mode in
build)
	each build
	(cd strategies && for name in $modules; do sha256sum "$name/$name.wasm"; done >SHA256SUMS)
	cat strategies/SHA256SUMS
	;;
verify)
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	each verify
	(cd strategies && sha256sum --check --strict SHA256SUMS)
	;;
*)
	echo "strategies/build.sh: unknown mode $mode: use no argument, or verify" >&2
	exit 2
	;;
esac
