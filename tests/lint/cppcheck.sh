#!/bin/sh
# Runs cppcheck on the core, the plugins and the command.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v cppcheck >/dev/null 2>&1; then
    echo "cppcheck: it is not installed (packaging/deps.sh)"
    exit 1
fi
cache=${DLCORE_BUILD_DIR:-build}/cppcheck
mkdir -p "$cache"
if cppcheck --quiet -j 2 --std=c11 --language=c --error-exitcode=1 --inline-suppr \
    --enable=warning,performance,portability \
    --cppcheck-build-dir="$cache" --suppressions-list=tests/lint/cppcheck.txt \
    --template='{file}:{line}: {severity}: {message} [{id}]' \
    -D_GNU_SOURCE -DDLC_VERSION='""' -DDLC_PLUGIN_DIR='""' \
    -I include -I core core plugins tools; then
    echo "cppcheck: nothing found"
else
    echo "cppcheck: fix the findings; suppress a false positive on the line before it:"
    echo "  // cppcheck-suppress ID ; why"
    exit 1
fi
