#!/bin/sh
# Refreshes the copy of the draft interface in tests/abi/draft: the headers, and a plugin of
# each kind as `dlcore plugin new KIND draft-KIND` makes it. Refuses if a struct or constant
# changed while DLC_ABI_MINOR stayed the same. --same-number does it all the same, for
# headers that nobody has built a plugin with yet.
set -eu
cd "$(dirname "$0")/../.."
copy=tests/abi/draft
if [ "${1:-}" != --same-number ]; then
    changed=0
    tests/abi/layout.py "$copy/include" include || changed=$?
    [ "$changed" -ne 1 ] || exit 1
fi
cp include/dlcore/*.h "$copy/include/dlcore/"

make_file() { # kind, file of the template, file of the copy
    sed "s/@NAME@/draft-$1/g; s/@KIND@/$1/g" "tools/templates/$1/$2" >"$copy/plugins/$3"
}
for kind in device transport layer solver consistency data decoder; do
    make_file "$kind" NAME.c "$kind.c"
done
make_file solver rule.h rule.h
make_file device layers.c layers.c
make_file device device.h device.h
clang-format -i "$copy"/plugins/*.c "$copy"/plugins/*.h
