#!/bin/sh
# Builds the Debian packages into build/deb, from a copy of the sources: debian/
# must lie at the root of what dpkg-buildpackage reads. Arguments go to it (instead of
# -b: the binary packages alone).
#
#   packaging/build-deb.sh --build-profiles=pkg.dlcore.cuda -b      those for GPUs, too
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- -b
out=build/deb
rm -rf "$out"
mkdir -p "$out/dlcore"
tests/lint/files.sh | tar -cf - -T - | tar -xf - -C "$out/dlcore"
cp -R packaging/debian "$out/dlcore/debian"
cd "$out/dlcore"
dpkg-buildpackage -us -uc "$@"
cd ..
ls -- *.deb
