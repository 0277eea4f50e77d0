#!/bin/sh
# Builds and runs everything `make check` promises, and ends with one line that
# sums it up: "N passed, N failed". Without a word it runs all of these, in order:
#
#   lint      format, static analysis, layering (label lint)
#   release   every test of the release build
#   asan      the same under the address, leak and undefined-behaviour sanitizers
#   valgrind  the unit tests of the release build under valgrind
#
# tests/run.sh tsan      the unit tests under the thread sanitizer; not part of the
#                        whole. The layers aren't among them: to it, libgomp's
#                        barriers look like races.
# tests/run.sh release -R job    hands what follows the first word to ctest.
set -eu
cd "$(dirname "$0")/.."

jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
results=build/results
mkdir -p "$results"
rm -f "$results"/*.xml

if [ $# -gt 0 ]; then
    steps=$1
    shift
else
    steps="lint release asan valgrind"
fi

title() { printf '\n== %s\n' "$*"; }

# build <name> <preset> <folder>: goes on past errors (-k 0), so that one file that
# does not compile fails its own tests and not everybody's. The lints need no build.
build() {
    if [ ! -f "$3/build.ninja" ]; then
        cmake --preset "$2" || return 1
    fi
    [ "$1" = lint ] || cmake --build "$3" -j "$jobs" -- -k 0
}

# step <name> <preset> <folder> <ctest arguments>
step() {
    name=$1 preset=$2 folder=$3
    shift 3
    title "$name"
    start=$(date +%s)
    if ! build "$name" "$preset" "$folder"; then
        tests/count.py --fail "the build" "$results/$name-build.xml"
    fi
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$jobs" \
        --output-junit "$PWD/$results/$name.xml" "$@" || true
    if [ ! -f "$results/$name.xml" ]; then
        tests/count.py --fail "ctest ran nothing" "$results/$name.xml"
    fi
    echo "$name took $(($(date +%s) - start)) s"
}

for word in $steps; do
    case $word in
    lint) step lint release build -L '^lint$' "$@" ;;
    release) step release release build -LE '^(lint|bench)$' "$@" ;;
    asan) step asan asan build/asan -LE '^(lint|bench)$' "$@" ;;
    tsan) step tsan tsan build/tsan -L '^unit$' "$@" ;;
    valgrind) step valgrind release build -C valgrind -L '^valgrind$' "$@" ;;
    *)
        echo "tests/run.sh: no step '$word': lint, release, asan, valgrind, tsan" >&2
        exit 2
        ;;
    esac
done
title "summary"
exec tests/count.py "$results"/*.xml
