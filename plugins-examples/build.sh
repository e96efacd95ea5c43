#!/bin/sh
# Builds the .wasm of the examples in other languages than Go, or checks that they are what their sources give. Go's are built by strategies/build.sh.
#
#   plugins-examples/build.sh          rebuild those whose toolchain is here
#   plugins-examples/build.sh verify   rebuild them in a temporary folder and compare
#
# The bytes depend on the compiler, so each is pinned to a release. Where it is missing, or another, the example is skipped and named: nobody needs a
# compiler for a language that they don't write.
set -eu

# The releases that the committed modules are built by: what Debian 12 has, and AssemblyScript from npm.
clang=14.0.6
wabt=1.0.32
rust=1.63.0
asc=0.28.20

cd "$(dirname "$0")"
mode=${1:-build}
case $mode in
build | verify) ;;
*)
	echo "plugins-examples/build.sh: unknown mode $mode: use no argument, or verify" >&2
	exit 2
	;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# have TOOL PINNED WHAT-IT-IS MODULE tells whether the pinned release is here.
have() {
	[ "$3" = "$2" ] && return
	echo "plugins-examples/$4: skipped: it is built by $1 $2, here is ${3:-none}"
	return 1
}

# done_with MODULE: what was built is in $scratch/module.wasm.
done_with() {
	if [ "$mode" = build ]; then
		cp "$scratch/module.wasm" "$1"
		echo "plugins-examples/$1: built"
	elif cmp -s "$scratch/module.wasm" "$1"; then
		echo "plugins-examples/$1: as built"
	else
		echo "plugins-examples/$1 is not what its source gives: run make wasm and commit it" >&2
		exit 1
	fi
}

# clang finds its linker, wasm-ld of the same release, in PATH.
is=$(clang --version 2>/dev/null | sed -n 's/.*clang version \([0-9.]*\).*/\1/p')
command -v wasm-ld >/dev/null || is=
if have "clang with lld" "$clang" "$is" c/zone-spread.wasm; then
	clang --target=wasm32 -O2 -mbulk-memory -nostdlib -fno-builtin -Wl,--no-entry -Wl,--stack-first -Wl,-z,stack-size=65536 \
		-o "$scratch/module.wasm" c/zone-spread.c
	done_with c/zone-spread.wasm
fi

if have "wat2wasm of wabt" "$wabt" "$(wat2wasm --version 2>/dev/null || true)" wat/round-robin.wasm; then
	wat2wasm -o "$scratch/module.wasm" wat/round-robin.wat
	done_with wat/round-robin.wasm
fi

# Debian's rustc, where another stands before it in PATH. Its linker is lld.
rustc=rustc
[ "$(/usr/bin/rustc --version 2>/dev/null | cut -d ' ' -f 2)" != "$rust" ] || rustc=/usr/bin/rustc
is=$($rustc --version 2>/dev/null | cut -d ' ' -f 2 || true)
[ -d "$($rustc --print target-libdir --target wasm32-unknown-unknown 2>/dev/null || true)" ] || is=
if have "rustc with the library for wasm32" "$rust" "$is" rust/capacity.wasm; then
	flags="--edition 2021 --target wasm32-unknown-unknown -C opt-level=3 -C panic=abort -C lto=fat -C strip=symbols"
	$rustc $flags --crate-type rlib --crate-name drover -o "$scratch/libdrover.rlib" rust/drover/src/lib.rs
	$rustc $flags -C link-arg=-zstack-size=65536 --crate-type cdylib --crate-name capacity --extern drover="$scratch/libdrover.rlib" \
		-o "$scratch/module.wasm" rust/capacity/lib.rs
	done_with rust/capacity.wasm
fi

# Installed by npm, for all or in the example's folder.
PATH="$PWD/assemblyscript/node_modules/.bin:$PATH"
is=$(asc --version 2>/dev/null || true)
if have "asc of AssemblyScript" "$asc" "${is#Version }" assemblyscript/role-pinning.wasm; then
	asc assemblyscript/role-pinning.ts -O3 --runtime stub --use abort= -o "$scratch/module.wasm"
	done_with assemblyscript/role-pinning.wasm
fi
