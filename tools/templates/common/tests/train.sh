#!/bin/sh
# Trains tests/@NAME@.ini, twice on one rank and once on two, and looks at what came of
# it. Arguments: the dlcore command.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dlcore=${1:-dlcore}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# train <name> [option...]: a JSON document in <name>.json, checkpoints in <name>/
train() {
    name=$1
    shift
    "$dlcore" train "$here/@NAME@.ini" --json --run-dir="$name" "$@" >"$name.json"
}

# value <name> <key>
value() { sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1.json"; }

# at_least <name> <accuracy>
at_least() {
    value "$1" accuracy | awk -v least="$2" '{ exit !($1 >= least) }' || {
        echo "$1: the accuracy is $(value "$1" accuracy), less than $2"
        exit 1
    }
}

# near <name> <name>: nearly the same loss
near() {
    echo "$(value "$1" training_loss) $(value "$2" training_loss)" | awk '{
        difference = $1 > $2 ? $1 - $2 : $2 - $1
        exit !(difference <= 0.001 * $1)
    }' || {
        echo "$1 and $2: the loss is $(value "$1" training_loss) and $(value "$2" training_loss)"
        exit 1
    }
}

# Where the tensors begin: behind 8 bytes, which say how long the header is, and the header.
begin() { echo $(($(od -An -t u8 -N 8 "$1") + 8)); }
# same_tensors <file> <file>: to the bit; what the headers tell of the runs may differ
same_tensors() { cmp -i "$(begin "$1"):$(begin "$2")" "$1" "$2"; }

# same <name> <name>: the same weights, to the bit
same() {
    for file in "$1"/*.safetensors; do
        same_tensors "$file" "$2/${file##*/}" || { echo "$1 and $2 differ"; exit 1; }
    done
}

# shellcheck source=/dev/null
. "$here/expect.sh"
echo "passed"
