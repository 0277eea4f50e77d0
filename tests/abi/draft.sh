#!/bin/sh
# Uses plugins that were built with the copy of the draft interface with today's core:
# inspects, checks and trains with each. Arguments: the folder that they were built in, the
# folder of their nets.
set -eu
plugins=$1
nets=$2
export DLCORE_PLUGIN_PATH="$DLCORE_PLUGIN_PATH:$plugins"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

for kind in device transport layer solver consistency data decoder; do
    "$DLCORE_BIN" plugin inspect "$plugins/$kind.so" >inspected
    grep -q '^interface  0\.[0-9]*$' inspected || { cat inspected; exit 1; }
    if [ -z "$DLCORE_SANITIZE" ]; then
        "$DLCORE_BIN" plugin check "$plugins/$kind.so" >checked || { cat checked; exit 1; }
    fi
done
for net in cpu device; do
    "$DLCORE_BIN" train "$nets/$net.ini" -q --json >"$net.json"
    sed -n 's/.*"accuracy":\([^,}]*\).*/\1/p' "$net.json" | awk -v net="$net" '{
        print net ": accuracy " $1
        exit !($1 >= 0.95)
    }'
done
