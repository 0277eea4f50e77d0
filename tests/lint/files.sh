#!/bin/sh
# Prints the project's files, tracked or not, one per line; with arguments only those with
# these extensions: files.sh c h
set -eu
cd "$(dirname "$0")/../.."
if git rev-parse --is-inside-work-tree >/dev/null 2>&1 &&
    [ "$(git rev-parse --show-toplevel)" = "$(pwd -P)" ]; then
    git ls-files -co --exclude-standard
else
    find . -type f ! -path './build/*' ! -path './.git/*' | sed 's|^\./||'
fi | sort | while IFS= read -r file; do
    [ -f "$file" ] || continue # deleted but still in the index
    if [ $# -eq 0 ]; then
        printf '%s\n' "$file"
    fi
    for ending in "$@"; do
        case $file in *."$ending") printf '%s\n' "$file" ;; esac
    done
done
