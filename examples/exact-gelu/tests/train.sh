#!/bin/sh
# A small net learns with it, twice the same, with little memory the same; and nearly the
# same as with the gelu that dlcore's own layers have. Arguments: the dlcore command.
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

value() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1.json"; }

train once
train again
train low --set=train.recompute=yes
for other in again low; do
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
