#!/bin/sh
# Trains on one accelerator, with captured iterations and without, and on both with each
# transport, whose weights must be bitwise identical. Argument: the dlcore command.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dlcore=${1:-dlcore}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# train <folder> [option...]
train() {
    folder=$1
    shift
    "$dlcore" train "$here/net.ini" -q --json --run-dir="$folder" "$@" >"$folder.json"
}

# begin <file>: prints where the tensors of a safetensors file begin: after 8 bytes with
# the length of the header, and the header.
begin() { echo $(($(od -An -t u8 -N 8 "$1") + 8)); }
# same_tensors <file> <file>: fails unless the tensors are bitwise identical; headers
# may differ.
same_tensors() { cmp -i "$(begin "$1"):$(begin "$2")" "$1" "$2"; }

# same <folder> <folder>: fails unless the weights are bitwise identical
same() {
    for file in "$1"/*.safetensors; do
        same_tensors "$file" "$2/${file##*/}" || { echo "$1 and $2 differ"; exit 1; }
    done
}

train captured
train launched --set=train.capture=no
same captured launched
for transport in p2p-tree host-staged; do
    train "$transport" --gpu=0,1 --transport="$transport"
done
same p2p-tree host-staged
loss=$(sed -n 's/.*"training_loss":\([^,}]*\).*/\1/p' captured.json)
echo "$loss" | awk '{ exit !($1 < 0.5) }' || { echo "the loss is $loss"; exit 1; }
echo "passed"
