#!/bin/sh
# run.sh <processes> <plugin> <program> [argument...]: runs a program under mpirun, in
# processes that share a file and have no transport plugin but mpi. TEST_CODE: the
# expected exit code (0).
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
# Names of the library's sockets would be too long elsewhere.
export TMPDIR=/tmp
# Whole call stacks tell leaks of the libraries from ours.
here=$(cd "$(dirname "$0")" && pwd)
cat "$here/../lsan.supp" "$here/lsan.supp" >"$folder/lsan.supp"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:fast_unwind_on_malloc=0"
export LSAN_OPTIONS="${LSAN_OPTIONS:-}:suppressions=$folder/lsan.supp"

code=0
# shellcheck disable=SC2086
timeout -k 5 240 mpirun $flags -n "$processes" "$program" "$@" || code=$?
if [ $code != "${TEST_CODE:-0}" ]; then
    echo "exit code $code, expected ${TEST_CODE:-0}"
    exit 1
fi
