#!/bin/sh
# Builds the Debian packages into build/deb, from a copy of the sources: debian/
# must lie at the root of what dpkg-buildpackage reads.
set -eu
cd "$(dirname "$0")/.."
out=build/deb
rm -rf "$out"
mkdir -p "$out/dlcore"
tests/lint/files.sh | tar -cf - -T - | tar -xf - -C "$out/dlcore"
cp -R packaging/debian "$out/dlcore/debian"
cd "$out/dlcore"
dpkg-buildpackage -b -us -uc
cd ..
ls -- *.deb
