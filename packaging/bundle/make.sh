#!/bin/sh
# Makes build/dlcore-VERSION-linux-x86_64.tar.gz, which runs wherever it is unpacked, for
# machines without root access. Made on Debian 12, it runs on systems at least as new.
#
#   packaging/bundle/make.sh           without the GPU plugins
#   packaging/bundle/make.sh --cuda    with them (...-x86_64-cuda.tar.gz); needs nvcc
set -eu
cd "$(dirname "$0")/../.."
cuda=OFF suffix=''
case ${1-} in
'') ;;
--cuda) cuda=ON suffix=-cuda ;;
*)
    echo "usage: packaging/bundle/make.sh [--cuda]" >&2
    exit 2
    ;;
esac
machine=$(uname -m)
build=build/bundle$suffix

# Keeps paths of this machine out of the binaries, so that builds are reproducible.
map="-ffile-prefix-map=$PWD=."
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/opt/dlcore \
    -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_C_FLAGS="$map" -DDLC_CUDA=$cuda -DDLC_WERROR=OFF \
    -DDLC_BUILD_TESTS=OFF
if [ $cuda = ON ] && grep -q '^CMAKE_CUDA_COMPILER:[A-Z]*=.*NOTFOUND' "$build/CMakeCache.txt"; then
    echo "packaging/bundle/make.sh: no CUDA compiler: put nvcc on the PATH" >&2
    exit 1
fi
cmake --build "$build" -j "${JOBS:-$(nproc)}"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$build/CMakeCache.txt")
packaging/bundle/bundle.py "$build" "build/dlcore-$version-linux-$machine$suffix.tar.gz"
