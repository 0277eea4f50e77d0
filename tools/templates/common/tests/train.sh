#!/bin/sh
# Trains tests/@NAME@.ini several times and checks the results, as expect.sh says.
# Argument: the dlcore command.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dlcore=${1:-dlcore}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# train <name> [option...]: trains; makes <name>.json, and <name>/ with checkpoints
train() {
    name=$1
    shift
    "$dlcore" train "$here/@NAME@.ini" --json --run-dir="$name" "$@" >"$name.json"
}

# value <name> <key>: prints a value of <name>.json
value() { sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$1.json"; }

# at_least <name> <accuracy>: fails if the accuracy is lower
at_least() {
    value "$1" accuracy | awk -v least="$2" '{ exit !($1 >= least) }' || {
        echo "$1: the accuracy is $(value "$1" accuracy), less than $2"
        exit 1
    }
}

# near <name> <name>: fails unless the losses are within 0.1 % of each other
near() {
    echo "$(value "$1" training_loss) $(value "$2" training_loss)" | awk '{
        difference = $1 > $2 ? $1 - $2 : $2 - $1
        exit !(difference <= 0.001 * $1)
    }' || {
        echo "$1 and $2 differ in their loss:" \
            "$(value "$1" training_loss) and $(value "$2" training_loss)"
        exit 1
    }
}

# begin <file>: prints where the tensors of a safetensors file begin: after 8 bytes with
# the length of the header, and the header.
begin() { echo $(($(od -An -t u8 -N 8 "$1") + 8)); }
# same_tensors <file> <file>: fails unless the tensors are bitwise identical; headers
# may differ.
same_tensors() { cmp -i "$(begin "$1"):$(begin "$2")" "$1" "$2"; }

# same <name> <name>: fails unless the weights of two runs are bitwise identical
same() {
    for file in "$1"/*.safetensors; do
        same_tensors "$file" "$2/${file##*/}" || { echo "$1 and $2 differ"; exit 1; }
    done
}

# shellcheck source=/dev/null
. "$here/expect.sh"
echo "passed"
