#!/bin/sh
# Checks that every header compiles by itself, as the first include; public headers also as
# strict C11 and as C++, and in a plugin in C++ without warnings.
set -eu
cd "$(dirname "$0")/../.."
status=0
count=0
try() {
    if ! printf '#include "%s"\n' "$header" | "$@" -fsyntax-only - 2>&1; then
        echo "$header:1: error: does not compile by itself as the first include:"
        echo "    $*"
        echo "    Add the missing includes to it."
        status=1
    fi
}
for header in $(tests/lint/files.sh h); do
    case $header in
    include/dlcore/*)
        try cc -x c -std=c11 -Wall -Wextra -Wpedantic -Werror -I include -I .
        if command -v c++ >/dev/null 2>&1; then
            try c++ -x c++ -std=c++17 -Wall -Wextra -Werror -I include -I .
        fi
        ;;
    core/*) try cc -x c -std=gnu11 -D_GNU_SOURCE -I include -I core -I . ;;
    *) continue ;;
    esac
    count=$((count + 1))
done
for standard in c++11 c++17 c++20; do
    command -v c++ >/dev/null 2>&1 || break
    c++ -std=$standard -Wall -Wextra -Wpedantic -Werror -I include -fsyntax-only \
        tests/lint/plugin.cpp 2>&1 || {
        echo "tests/lint/plugin.cpp:1: error: a plugin in C++ does not compile without"
        echo "    warnings in $standard: mend the macro in include/dlcore"
        status=1
    }
done
if [ $status -eq 0 ]; then
    echo "headers: $count headers, all compile alone"
fi
exit $status
