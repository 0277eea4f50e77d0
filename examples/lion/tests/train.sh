#!/bin/sh
# Trains a small net with lion. Training must be reproducible, bitwise identical if it is
# resumed, and on two ranks with sharded and with deferred updates, and with bounded
# staleness of 0 iterations. Argument: the dlcore command.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dlcore=${1:-dlcore}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

train() {
    folder=$1
    shift
    "$dlcore" train "$here/net.ini" -q --json --run-dir="$folder" "$@" \
        >"$folder.json"
}

# begin <file>: prints where the tensors of a safetensors file begin: after 8 bytes with
# the length of the header, and the header.
begin() { echo $(($(od -An -t u8 -N 8 "$1") + 8)); }
# same_tensors <file> <file>: fails unless the tensors are bitwise identical; headers
# may differ.
same_tensors() { cmp -i "$(begin "$1"):$(begin "$2")" "$1" "$2"; }

# same <folder> <folder>: fails unless the last checkpoints are bitwise identical
same() {
    last=$(basename "$(find "$1" -name '*.safetensors' | sort | tail -n 1)")
    same_tensors "$1/$last" "$2/$last" || { echo "$1 and $2 differ"; exit 1; }
}

train once
sed -n 's/.*"accuracy":\([^,}]*\).*/\1/p' once.json | awk '{ exit !($1 >= 0.95) }'
train again
same once again
train part --iterations=50
train part --resume=auto
same once part

train whole --ranks=2 --set=transport.shard_optimizer=no --set=transport.overlap_forward=no
train sharded --ranks=2 --set=transport.shard_optimizer=yes
train deferred --ranks=2 --set=transport.shard_optimizer=no --set=transport.overlap_forward=yes
same whole sharded
same whole deferred
train stale --ranks=2 --consistency=ssp --set=consistency.staleness=0
same whole stale
