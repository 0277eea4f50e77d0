#!/bin/sh
# Builds the Debian packages in build/deb, from a copy of the sources, since
# dpkg-buildpackage expects debian/ at the root. Arguments are passed to it and replace the
# default, -b (binary packages only).
#
#   packaging/build-deb.sh --build-profiles=pkg.dlcore.cuda -b      with the GPU packages
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
