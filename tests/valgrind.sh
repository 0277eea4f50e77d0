#!/bin/sh
# Runs one test program under valgrind.
set -eu
here=$(dirname "$0")
exec valgrind --quiet --error-exitcode=99 --leak-check=full \
    --errors-for-leak-kinds=definite --show-leak-kinds=definite \
    --suppressions="$here/valgrind.supp" "$@"
