#!/bin/sh
# The core stays small: libdlcore, stripped, under 400 KB. Usage: size.sh LIBRARY
set -eu
most=400000
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$1"
size=$(wc -c <"$stripped")
if [ "$size" -gt "$most" ]; then
    echo "$1: $size bytes stripped, more than $most: move what grew into a plugin" >&2
    exit 1
fi
echo "size: $size bytes stripped, of $most"
