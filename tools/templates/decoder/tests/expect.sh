# Read by train.sh.
"$dlcore" plugin inspect "@NAME@" >inspected
grep -q "decoder" inspected
