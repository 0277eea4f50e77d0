#!/bin/sh
# Builds and runs the steps of `make check`, and ends with a summary line, "N passed, N
# failed". Without arguments it runs all of these steps, in order:
#
#   lint      format, static analysis, layering, words (label lint)
#   release   every test of the release build
#   asan      these tests under the address, leak and undefined-behaviour sanitizers
#   valgrind  the unit tests of the release build under valgrind
#
# Each step must run the tests that tests/list.txt names for it; a missing test is a failure.
# If one or two tests of a step fail, they run again, one at a time: such a test may need
# more room or time than there is beside others. The summary calls it unstable.
#
# tests/run.sh tsan      the unit tests under the thread sanitizer, which no other call
#                        runs. Layers are left out: it takes libgomp's barriers for
#                        races.
# tests/run.sh release -R job    passes further arguments to ctest.
# tests/run.sh list      rewrites tests/list.txt after a test was added or removed.
set -eu
cd "$(dirname "$0")/.."

jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
tests_at_once=$((jobs + 1)) # many wait, for processes or until a time limit has passed
results=build/results
mkdir -p "$results"
rm -f "$results"/*.xml

whole="lint release asan valgrind"
if [ $# -gt 0 ]; then
    steps=$1
    shift
    [ $# -eq 0 ] || whole=
else
    steps=$whole
fi

title() { printf '\n== %s\n' "$*"; }

# choose <step>: sets its preset, its build folder, and the arguments of ctest.
choose() {
    preset=check folder=build
    case $1 in
    lint) tests='-L ^lint$' ;;
    release) tests='-LE ^(lint|bench)$' ;;
    asan) preset=asan folder=build/asan tests='-LE ^(lint|bench)$' ;;
    tsan) preset=tsan folder=build/tsan tests='-L ^unit$' ;;
    valgrind) tests='-C valgrind -L ^valgrind$' ;;
    *)
        echo "tests/run.sh: unknown step '$1'; the steps are lint, release, asan, valgrind, tsan, list" >&2
        exit 2
        ;;
    esac
}

# build <step>: configures again, once for each preset, since installed packages may have
# changed, and builds past errors (-k 0), so that a file that does not compile fails its own
# tests only. Lints need no build.
configured=
build() {
    case " $configured " in
    *" $preset "*) ;;
    *) cmake --preset "$preset" || return 1 ;;
    esac
    configured="$configured $preset"
    [ "$1" = lint ] || cmake --build "$folder" -j "$jobs" -- -k 0
}

# run_tests <results> <ctest arguments>: keeps all output of a test, since its last line says
# how many of its cases were skipped.
run_tests() {
    junit=$PWD/$results/$1.xml
    shift
    # shellcheck disable=SC2086
    ctest --test-dir "$folder" --output-on-failure --test-output-size-passed 10000000 \
        --output-junit "$junit" $tests "$@"
}

# again: runs what failed once more, one test at a time, if that is not more than two tests.
again() {
    failed=$folder/Testing/Temporary/LastTestsFailed.log
    if [ "$name" = lint ] || [ ! -f "$failed" ] || [ "$(wc -l <"$failed")" -gt 2 ]; then
        return
    fi
    run_tests "$name.again" --rerun-failed -j 1 || true
}

# step <name> <ctest arguments>
step() {
    name=$1
    shift
    choose "$name"
    title "$name"
    start=$(date +%s)
    if ! build "$name"; then
        tests/count.py --fail "the build" "$results/$name-build.xml"
    fi
    run_tests "$name" --no-tests=error -j "$tests_at_once" "$@" || again
    if [ ! -f "$results/$name.xml" ]; then
        tests/count.py --fail "ctest ran nothing" "$results/$name.xml"
    fi
    echo "$name took $(($(date +%s) - start)) s"
}

# list: writes the tests of the configured builds as the list of required tests.
list() {
    for name in $whole; do
        choose "$name"
        cmake --preset "$preset" >/dev/null
        # shellcheck disable=SC2086
        ctest --test-dir "$folder" --show-only=json-v1 $tests >"$results/$name.json"
        set -- "$@" "$name=$results/$name.json"
    done
    tests/count.py --write "$@"
}

if [ "$steps" = list ]; then
    whole="lint release asan valgrind"
    list
    exit
fi
for name in $steps; do
    step "$name" "$@"
done
title "summary"
set --
for name in $steps; do
    case " $whole " in
    *" $name "*) set -- "$@" --whole "$name" ;;
    esac
done
exec tests/count.py "$@" "$results"/*.xml
