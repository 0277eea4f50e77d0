#!/bin/sh
# run.sh <processes> <plugin> <program> [argument...]: the program as so many processes
# of mpirun, which share a file and see the mpi transport alone. TEST_CODE: the exit
# code that they are to end with (0).
set -eu
processes=$1 plugin=$2 program=$3
shift 3

flags=
case $(mpirun --version) in
*'Open MPI'*) flags='--allow-run-as-root --oversubscribe' ;;
esac

folder=$(mktemp -d)
chmod 755 "$folder"
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/plugins"
cp "$plugin" "$(dirname "$plugin")/device-cpu.so" "$folder/plugins"
chmod -R go-w "$folder/plugins"
truncate -s 1M "$folder/board"
export DLCORE_PLUGIN_PATH="$folder/plugins" TEST_BOARD="$folder/board"
# Sockets of the library have long names there.
export TMPDIR=/tmp
# Leaks of the libraries are told from ours by whole call stacks.
here=$(cd "$(dirname "$0")" && pwd)
cat "$here/../lsan.supp" "$here/lsan.supp" >"$folder/lsan.supp"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:fast_unwind_on_malloc=0"
export LSAN_OPTIONS="${LSAN_OPTIONS:-}:suppressions=$folder/lsan.supp"

code=0
# shellcheck disable=SC2086
timeout -k 5 240 mpirun $flags -n "$processes" "$program" "$@" || code=$?
if [ $code != "${TEST_CODE:-0}" ]; then
    echo "ended with $code, not with ${TEST_CODE:-0}"
    exit 1
fi
