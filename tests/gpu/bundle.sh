#!/bin/bash
# Packs everything that tests/gpu/run.sh needs on a machine where nothing can be installed
# into build/gpu-bundle.tar.xz, from a release build for one generation of GPUs.
#
#     tests/gpu/bundle.sh [BUILD]        (build/gpu, which is built here)
#
# It contains the command, its library, all plugins, the test programs, the libraries of this
# system that they need (not cuDNN, cuBLAS and NCCL, which run.sh looks for there),
# models, Fashion-MNIST, and a tenth of CIFAR-10 if it is in data/. ARCHITECTURES
# (90-real) is cmake's.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/gpu}
tree=build/gpu-bundle
most=$((60 << 20)) # bytes

cmake -G Ninja -B "$build" -DCMAKE_BUILD_TYPE=Release -DDLC_BUILD_TESTS=ON \
    -DCMAKE_CUDA_ARCHITECTURES="${ARCHITECTURES:-90-real}" >/dev/null
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target all device_speed update_speed norm_speed \
    >"$build/bundle.log" || {
    tail -20 "$build/bundle.log" >&2
    exit 1
}
rm -rf "$tree"
mkdir -p "$tree/lib/dlcore/0" "$tree/bin" "$tree/tests" "$tree/needed" "$tree/data"
cp "$build/bin/dlcore" "$tree/bin/"
cp -L "$build"/lib/libdlcore.so.? "$tree/lib/"
cp "$build"/lib/dlcore/0/*.so "$tree/lib/dlcore/0/"
rm -f "$tree/lib/dlcore/0/transport-mpi.so" # would bring half of MPI along
cp "$build"/bench/{device,update,norm}_speed "$build"/tests/bin/test_device_{kernels,convert,precision} \
    "$build"/tests/bin/test_layers_* "$build"/tests/bin/test_gpu_{device,semaphores} \
    "$build/tests/bin/test_transport_queues" "$tree/tests/"
strip --strip-unneeded "$tree"/bin/* "$tree"/lib/*.so.? "$tree"/lib/dlcore/0/*.so \
    "$tree"/tests/*

# Libraries that the loader finds, without those of every system and CUDA's.
find "$tree" -type f \( -name '*.so*' -o -perm -u+x \) -exec ldd {} + 2>/dev/null |
    awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
    grep -Ev '/(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+)[.-]' |
    grep -Ev '/(libdlcore|libcu|libnccl|libnv)' |
    while IFS= read -r library; do cp -L "$library" "$tree/needed/"; done

cp -r models examples "$tree/"
cp /usr/share/datasets/fashion-mnist/*.gz "$tree/data/"
if [ -f data/cifar10/data_batch_1.bin ]; then
    head -c $((5000 * 3073)) data/cifar10/data_batch_1.bin >"$tree/data/data_batch_1.bin"
    head -c $((1000 * 3073)) data/cifar10/test_batch.bin >"$tree/data/test_batch.bin"
fi
cp tests/gpu/run.sh tests/gpu/checks.py tests/gpu/torch_gpu.py bench/torch_nets.py "$tree/"
git rev-parse --short HEAD >"$tree/commit" 2>/dev/null || echo unknown >"$tree/commit"

tar -C build -cf - gpu-bundle | xz -T0 -6 >build/gpu-bundle.tar.xz
size=$(stat -c %s build/gpu-bundle.tar.xz)
echo "build/gpu-bundle.tar.xz: $((size >> 20)) MiB of $((most >> 20))"
[ "$size" -le "$most" ] || {
    echo "the bundle is too large" >&2
    exit 1
}
