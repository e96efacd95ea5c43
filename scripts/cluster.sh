#!/usr/bin/env bash
# Starts a cluster of three nodes on loopback from node.toml, prints where they are, and stops them on Ctrl-C.
#
#   scripts/cluster.sh [path of drover] [further --set flags …]
#
# Data goes to data-a, data-b and data-c; logs to data-x/node.log. Each node is its own process: kill them as you like.
set -euo pipefail
set -m # each node in a process group of its own: Ctrl-C reaches this script alone, and a node gets one signal
cd "$(dirname "$0")/.."

drover=${1:-bin/drover}
shift || true
names=(a b c)
pids=()

stop() {
  trap '' INT TERM
  # All drain at once; a node that is gone already is no error.
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  wait
}
trap 'stop; exit 0' INT TERM
trap stop EXIT

for i in 0 1 2; do
  name=${names[$i]}
  gossip=127.0.0.1:$((7946 + 1000 * i))
  transport=127.0.0.1:$((7947 + 1000 * i))
  http=127.0.0.1:$((8080 + i))
  flags=(--set name="$name" --set data_dir="data-$name" --set gossip.bind="$gossip" --set transport.bind="$transport" --set http.address="$http")
  if ((i > 0)); then flags+=(--set 'gossip.join=["127.0.0.1:7946"]'); fi
  mkdir -p "data-$name"
  "$drover" run --config node.toml "${flags[@]}" "$@" >>"data-$name/node.log" 2>&1 &
  pids+=($!)
  echo "node $name: pid $!, http://$http, gossip $gossip, log data-$name/node.log"
done

echo "a fourth node:"
echo "  $drover run --config node.toml --set name=d --set data_dir=data-d --set gossip.bind=127.0.0.1:10946 --set transport.bind=127.0.0.1:10947 --set http.address=127.0.0.1:8083 --set 'gossip.join=[\"127.0.0.1:7946\"]'"
echo "Ctrl-C stops all three."

# One that ends by itself is reported and the others go on: that is what a cluster is for.
while ((${#pids[@]} > 0)); do
  code=0
  wait -n -p ended "${pids[@]}" || code=$?
  left=()
  for i in "${!pids[@]}"; do
    if [[ ${pids[$i]} == "${ended:-}" ]]; then
      echo "pid $ended ended with code $code"
    else
      left+=("${pids[$i]}")
    fi
  done
  pids=("${left[@]}")
done
echo "no node is left" >&2
exit 1
