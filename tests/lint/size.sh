#!/bin/sh
# The core stays small: libdlcore, stripped, under 470 KB. Usage: size.sh LIBRARY
# 400 KB held until the core took on what keeps a user's work safe: folders of runs,
# checkpoints compared with the run that takes them, and all mistakes of a net, its shapes
# and its data told before a job is started. None of it can be a plugin's, since it is about
# all of them. 20 KB more went to words that other frameworks have for what is meant
# (base/foreign.c), to safe showing of names, and to memory that is compared with what there is.
set -eu
most=470000
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$1"
size=$(wc -c <"$stripped")
if [ "$size" -gt "$most" ]; then
    echo "$1: $size bytes stripped, more than $most: move what grew into a plugin" >&2
    exit 1
fi
echo "size: $size bytes stripped, of $most"
