/* Host memory that processes share and the GPU copies from at full speed: a memory
 * file, mapped and pinned. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "block.h"

dlc_status pinned_map(const dlc_device *device, int fd, size_t bytes, block *b) {
    b->fd = fd;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                    0);
    if (at == MAP_FAILED)
        return host->fail(DLC_ERR_NOMEM,
                          "cannot map %zu bytes of shared memory "
                          "(mmap: %s)",
                          bytes, strerror(errno));
    cudaError_t error = cudaHostRegister(
        at, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error != cudaSuccess) {
        munmap(at, bytes);
        return gpu_failed(device, error, "pinning %zu bytes", bytes);
    }
    b->base = at;
    b->bytes = bytes;
    return DLC_OK;
}

void pinned_unmap(block *b) {
    if (!b->base)
        return;
    (void)cudaHostUnregister(b->base);
    munmap(b->base, b->bytes);
    b->base = NULL;
}

dlc_status pin(dlc_device *device, void *base, size_t bytes) {
    dlc_status status = capture_refuse("pinning memory");
    if (status == DLC_OK)
        status = gpu_use(device);
    if (status != DLC_OK || bytes == 0)
        return status;
    GPU_TRY(device, cudaHostRegister(base, bytes, cudaHostRegisterPortable),
            "pinning %zu bytes of host memory", bytes);
    return DLC_OK;
}

void unpin(dlc_device *device, void *base) {
    if (gpu_use(device) == DLC_OK && cudaHostUnregister(base) != cudaSuccess)
        (void)cudaGetLastError();
}
