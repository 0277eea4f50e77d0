#!/bin/sh
# A job that mpirun has not started cannot use the mpi transport, and says so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
code=0
"$DLCORE_BIN" bench comm --transport=mpi --max=4K >"$folder/out" 2>&1 || code=$?
cat "$folder/out"
if [ $code != 2 ] || ! grep -q 'mpi.*not started by mpirun' "$folder/out"; then
    echo "expected exit code 2 and the reason, but the exit code is $code"
    exit 1
fi
