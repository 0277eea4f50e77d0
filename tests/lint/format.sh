#!/bin/sh
# Checks that every C and CUDA file is formatted according to .clang-format.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v clang-format >/dev/null 2>&1; then
    echo "format: clang-format is not installed (packaging/deps.sh)"
    exit 1
fi
# Versions of clang-format differ in details; Debian 12's decides.
version=$(clang-format --version | sed 's/.*version \([0-9]*\).*/\1/')
if [ "$version" != 14 ]; then
    echo "format: skipped: clang-format 14 is needed, this is $version"
    exit 77
fi
files=$(tests/lint/files.sh c h cu cuh)
[ -n "$files" ] || { echo "format: no C files"; exit 1; }
count=$(printf '%s\n' "$files" | wc -l)
if printf '%s\n' "$files" | tr '\n' '\0' |
    xargs -0 -P 2 -n 40 clang-format --dry-run --Werror; then
    echo "format: $count files, all formatted"
else
    echo "format: run 'make format' (clang-format -i) and check the changes"
    exit 1
fi
