#!/bin/sh
# Trains over TCP on three and five ranks. The weights must be bitwise identical to those of
# another transport, and a job that loses a rank must end at once. Argument: the dlcore
# command.
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
    rm -rf "$folder"
    "$dlcore" train "$here/net.ini" -q --json --run-dir="$folder" \
        --set=transport.reduction_order=pairwise "$@" >"$folder.json"
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

train auto5 --ranks=5
train tcp5 --ranks=5 --transport=tcp
grep -q '"transport":"tcp"' tcp5.json
same tcp5 auto5
for shards in yes no; do
    train tcp3 --ranks=3 --transport=tcp --set=transport.shard_optimizer=$shards
    train auto3 --ranks=3 --set=transport.shard_optimizer=$shards
    same tcp3 auto3
done
train tcp3 --ranks=3 --transport=tcp --set=transport.overlap_forward=yes
same tcp3 auto3

# If a rank dies, the job ends with exit code 5.
"$dlcore" train "$here/net.ini" --ranks=3 --transport=tcp --iterations=10000000 \
    --run-dir=lost >lost.log 2>&1 &
job=$!
sleep 1
victim=$(cut -d " " -f 1 "/proc/$job/task/$job/children")
kill -KILL "$victim"
code=0
wait "$job" || code=$?
[ "$code" -eq 5 ] || { cat lost.log; echo "exit code $code, not 5"; exit 1; }
echo "passed"
