#!/bin/sh
# Trains a net on images. Training must be reproducible, and give nearly the same loss on
# two ranks. Arguments: the dlcore command, the folder of images that the test `samples`
# made.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dlcore=$1
pictures=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

train() {
    folder=$1
    shift
    "$dlcore" train "$here/net.ini" -q --json --run-dir="$folder" \
        --set=train.keep_best=false \
        --set=data.path="$pictures" "$@" >"$folder.json"
}
# begin <file>: prints where the tensors of a safetensors file begin: after 8 bytes with
# the length of the header, and the header.
begin() { echo $(($(od -An -t u8 -N 8 "$1") + 8)); }
# same_tensors <file> <file>: fails unless the tensors are bitwise identical; headers
# may differ.
same_tensors() { cmp -i "$(begin "$1"):$(begin "$2")" "$1" "$2"; }

loss() { sed -n 's/.*"training_loss":\([^,}]*\).*/\1/p' "$1.json"; }

# If test data lacks a class, the labels of the others stay the same.
cp -r "$pictures" test
rm -r test/bee
cat "$here/net.ini" - >tested.ini <<'END'

[data.test]
source = image-folder
path = test
shape = 3,16,16
batch = 12
scale = 0.00390625

[accuracy]
type = accuracy
input = scores
END
"$dlcore" train tested.ini --json --run-dir=tested --set=data.path="$pictures" \
    --set=train.keep_best=false \
    >tested.json 2>said
grep -q "no folder for the class bee (label 1)" said
value() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1.json"; }
# The names of checkpoints have the iteration, so the last name is the last checkpoint.
for last in tested/*.safetensors; do :; done
"$dlcore" test tested.ini --json --set=data.path="$pictures" \
    --weights="$last" >alone.json 2>said
grep -q "no folder for the class bee (label 1)" said
for run in tested alone; do
    echo "$run: accuracy $(value $run accuracy)"
    value $run accuracy | awk '{ exit !($1 >= 0.95) }'
done

# A class that the training data does not have is an error that names the folder.
mkdir test/dodo
cp test/ant/* test/dodo
code=0
"$dlcore" train tested.ini --set=data.path="$pictures" >said 2>&1 || code=$?
test $code -eq 4
grep -q "test/dodo: a folder whose name is none of the 3 classes" said
rm -r test

train once
train again
for file in once/*.safetensors; do
    same_tensors "$file" "again/${file##*/}"
done
train two --ranks=2 --scaling=strong
echo "$(loss once) $(loss two)" | awk '{
    print "loss", $1, "on two ranks", $2
    difference = $1 > $2 ? $1 - $2 : $2 - $1
    exit !($1 < 0.1 && difference < 0.001)
}'
