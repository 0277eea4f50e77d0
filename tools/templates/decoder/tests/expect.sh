# The expected results; read by train.sh. The pictures are made first: dark and bright ones.
picture() { # grey, as a character
    printf 'P5\n16 16\n255\n'
    head -c 256 /dev/zero | tr '\0' "$1"
}
mkdir -p pictures/bright pictures/dark
for i in 0 1 2 3 4 5 6 7; do
    picture "\\04$i" >"pictures/dark/$i.pgm"
    picture "\\33$i" >"pictures/bright/$i.pgm"
done
places="--set data.folder=$PWD/pictures --set data.test.folder=$PWD/pictures"

# shellcheck disable=SC2086
train once $places
at_least once 0.95
# shellcheck disable=SC2086
train two $places --ranks=2 --scaling=strong
near once two
