#!/bin/sh
# Trains a small net with exact-gelu. Training must be reproducible, also with recomputed
# activations, and give nearly the same loss as dlcore's own gelu. Argument: the dlcore
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
# begin <file>: prints where the tensors of a safetensors file begin: after 8 bytes with
# the length of the header, and the header.
begin() { echo $(($(od -An -t u8 -N 8 "$1") + 8)); }
# same_tensors <file> <file>: fails unless the tensors are bitwise identical; headers
# may differ.
same_tensors() { cmp -i "$(begin "$1"):$(begin "$2")" "$1" "$2"; }

value() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1.json"; }

train once
train again
train recomputed --set=train.recompute=yes
for other in again recomputed; do
    for file in once/*.safetensors; do
        same_tensors "$file" "$other/${file##*/}"
    done
done
train built-in --set=bend.type=gelu
echo "$(value once accuracy) $(value once test_loss) $(value built-in test_loss)" | awk '{
    print "accuracy", $1, "loss", $2, "with the built-in gelu", $3
    difference = $2 > $3 ? $2 - $3 : $3 - $2
    exit !($1 >= 0.95 && difference <= 0.001 * $3)
}'
