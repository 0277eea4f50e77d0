#!/bin/sh
# Runs one test program under valgrind; exit 77 (skipped) where there is none.
set -eu
command -v valgrind >/dev/null 2>&1 || { echo "valgrind is not installed"; exit 77; }
here=$(dirname "$0")
exec valgrind --quiet --error-exitcode=99 --leak-check=full \
    --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    --suppressions="$here/valgrind.supp" "$@"
