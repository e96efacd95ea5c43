#!/usr/bin/env bash
# Makes modules.tar.gz: random modules by binaryen's fuzzer (wasm-opt 108 made the committed ones), from the seeds 1 to $1,
# of the features that Drover admits but reference types, of which binaryen makes those that the standard does not have yet.
# Tests need the archive alone.
set -euo pipefail
cd "$(dirname "$0")"

count=${1:-160}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ((seed = 1; seed <= count; seed++)); do
  # The fuzzer turns any bytes into a module; the same bytes into the same one.
  openssl enc -aes-256-ctr -pass "pass:$seed" -nosalt -pbkdf2 -iter 1 -in /dev/zero 2>/dev/null |
    head -c $((500 + seed * 613 % 19500)) >"$work/input" || true
  wasm-opt "$work/input" --translate-to-fuzz --quiet --mvp-features --enable-multivalue --enable-bulk-memory \
    --enable-sign-ext --enable-nontrapping-float-to-int -o "$work/$(printf %04d "$seed").wasm"
done
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" --exclude input -c . | gzip -9n >modules.tar.gz
ls -l modules.tar.gz
