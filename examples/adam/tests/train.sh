#!/bin/sh
# A small net learns with it; twice the same; stopped and resumed the same as in one go; on
# two ranks the same, whether or not updates are sharded or late. Arguments: the dlcore
# command.
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

# Where the tensors begin: behind 8 bytes, which say how long the header is, and the header.
begin() { echo $(($(od -An -t u8 -N 8 "$1") + 8)); }
# same_tensors <file> <file>: to the bit; what the headers tell of the runs may differ
same_tensors() { cmp -i "$(begin "$1"):$(begin "$2")" "$1" "$2"; }

# same <folder> <folder>: the last checkpoint, to the bit
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
train shards --ranks=2 --set=transport.shard_optimizer=yes
train late --ranks=2 --set=transport.shard_optimizer=no --set=transport.overlap_forward=yes
same whole shards
same whole late
