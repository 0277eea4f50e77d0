#!/bin/sh
# Every C and CUDA file is formatted as .clang-format says.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v clang-format >/dev/null 2>&1; then
    echo "format: clang-format is not installed (packaging/deps.sh)"
    exit 1
fi
# Versions disagree about details, so one of them decides: Debian 12's.
version=$(clang-format --version | sed 's/.*version \([0-9]*\).*/\1/')
if [ "$version" != 14 ]; then
    echo "format: skipped: clang-format 14 decides, this is $version"
    exit 77
fi
files=$(tests/lint/files.sh c h cu cuh)
[ -n "$files" ] || { echo "format: no C files"; exit 1; }
count=$(printf '%s\n' "$files" | wc -l)
if printf '%s\n' "$files" | tr '\n' '\0' |
    xargs -0 -P 2 -n 40 clang-format --dry-run --Werror; then
    echo "format: $count files, all formatted"
else
    echo "format: run 'make format' (clang-format -i) and look at the difference"
    exit 1
fi
