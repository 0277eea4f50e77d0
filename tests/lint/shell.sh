#!/bin/sh
# Checks that every shell script passes shellcheck and stops at errors (set -e).
set -eu
cd "$(dirname "$0")/../.."
if ! command -v shellcheck >/dev/null 2>&1; then
    echo "shell: shellcheck is not installed (packaging/deps.sh)"
    exit 1
fi
# One process for all scripts: starting shellcheck takes longer than checking a file.
scripts=$(tests/lint/files.sh | tr '\n' '\0' |
    xargs -0 awk 'FNR == 1 && /^#!.*[\/ ](sh|bash)$/ { print FILENAME } { nextfile }')
status=0
printf '%s\n' "$scripts" | tr '\n' '\0' | xargs -0 shellcheck -f gcc -S style ||
    status=1
for script in $scripts; do
    if ! grep -qE '^set -[a-z]*e' "$script"; then
        echo "$script:1: error: does not stop at errors; write 'set -eu' at its beginning"
        status=1
    fi
done
if [ $status -eq 0 ]; then
    echo "shell: $(printf '%s\n' "$scripts" | wc -l) scripts, nothing found"
fi
exit $status
