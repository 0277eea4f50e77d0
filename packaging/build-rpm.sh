#!/bin/sh
# Builds the RPMs in build/rpm, from a copy of the sources. Arguments are passed to rpmbuild
# and replace the default, -ba (source and binary packages, tests run).
#
#   packaging/build-rpm.sh -bb --without tests     binary packages only, without tests
#   packaging/build-rpm.sh -ba --with cuda         with the GPU packages
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- -ba
command -v rpmbuild >/dev/null || {
    echo "packaging/build-rpm.sh: rpmbuild is missing (Fedora: rpm-build, Debian: rpm)" >&2
    exit 1
}
spec=packaging/rpm/dlcore.spec
version=$(sed -n 's/^Version: *//p' $spec)
top=$PWD/build/rpm
name=dlcore-$version

rm -rf "$top"
mkdir -p "$top/SOURCES" "$top/SPECS"
# Sorted and with a fixed owner, so that the archive is reproducible.
tests/lint/files.sh | tar --owner=0 --group=0 --numeric-owner --transform "s|^|$name/|" \
    -cf - -T - | gzip -n >"$top/SOURCES/$name.tar.gz"
cp $spec "$top/SPECS/"

# On systems that do not install packages with rpm, its database is empty; there
# packaging/deps.sh has installed the dependencies.
if ! rpm -q --whatprovides rpm >/dev/null 2>&1; then
    set -- --nodeps "$@"
fi
if [ "$(rpm --eval '%{?cmake:yes}')" != yes ]; then
    set -- --load "$PWD/packaging/rpm/macros.cmake" "$@"
fi
rpmbuild --define "_topdir $top" "$@" "$top/SPECS/dlcore.spec"
if command -v rpmlint >/dev/null; then
    find "$top/SPECS" "$top/RPMS" -name '*.spec' -o -name '*.rpm' | tr '\n' '\0' |
        xargs -0 rpmlint --ignore-unused-rpmlintrc -r packaging/rpm/dlcore.rpmlintrc
fi
find "$top" -name '*.rpm' | sort
