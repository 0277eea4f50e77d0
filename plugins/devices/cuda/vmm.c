/* Memory by the driver's virtual memory management: physical memory, a range of
 * addresses, and access rights. Unlike cudaMalloc's it can be passed to other processes
 * as a file descriptor, and lives until the last of them releases it. */
#include <unistd.h>

#include "block.h"

#define DRIVER_TRY(device, call, ...) GPU_TRY(device, DRIVER_ERROR(call), __VA_ARGS__)

static CUmemAllocationProp properties(const dlc_device *device) {
    int rdma = 0;
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->number}};
    (void)device->calls.attribute(
        &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        device->number);
    wanted.allocFlags.gpuDirectRDMACapable = rdma != 0; /* for network adapters */
    return wanted;
}

dlc_status vmm_round(const dlc_device *device, size_t *bytes) {
    CUmemAllocationProp wanted = properties(device);
    size_t granule = 0;
    DRIVER_TRY(device,
               device->calls.granularity(&granule, &wanted,
                                         CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "cuMemGetAllocationGranularity");
    size_t rest = *bytes % granule;
    if (*bytes == 0)
        *bytes = granule;
    else if (rest > 0)
        *bytes = *bytes > SIZE_MAX - granule ? 0 : *bytes - rest + granule;
    return DLC_OK;
}

/* Maps b's physical memory to addresses that this GPU may read and write. */
static dlc_status map(const dlc_device *device, size_t bytes, block *b) {
    CUdeviceptr at = 0;
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->number},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER_TRY(device, device->calls.reserve(&at, bytes, 0, 0, 0),
               "addresses for %zu bytes", bytes);
    b->base = (void *)(uintptr_t)at;
    b->bytes = bytes;
    DRIVER_TRY(device, device->calls.map(at, bytes, 0, b->memory, 0),
               "mapping %zu bytes", bytes);
    b->is_mapped = 1;
    DRIVER_TRY(device, device->calls.access(at, bytes, &access, 1),
               "access to %zu bytes", bytes);
    return DLC_OK;
}

dlc_status vmm_create(const dlc_device *device, size_t bytes, block *b) {
    CUmemAllocationProp wanted = properties(device);
    CUresult result = device->calls.create(&b->memory, bytes, &wanted, 0);
    if (result != CUDA_SUCCESS && wanted.allocFlags.gpuDirectRDMACapable) {
        wanted.allocFlags.gpuDirectRDMACapable = 0; /* optional */
        result = device->calls.create(&b->memory, bytes, &wanted, 0);
    }
    DRIVER_TRY(device, result, "%zu bytes of memory to share", bytes);
    b->has_memory = 1;
    return map(device, bytes, b);
}

dlc_status vmm_import(const dlc_device *device, int fd, size_t bytes, block *b) {
    DRIVER_TRY(device,
               device->calls.import_handle(&b->memory, (void *)(uintptr_t)fd,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "importing another process's memory");
    b->has_memory = 1;
    return map(device, bytes, b);
}

dlc_status vmm_export(const dlc_device *device, block *b) {
    if (b->fd >= 0)
        return DLC_OK;
    DRIVER_TRY(device,
               device->calls.export_handle(&b->fd, b->memory,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "a file descriptor for memory");
    return DLC_OK;
}

void vmm_release(const dlc_device *device, block *b) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)b->base;
    if (b->is_mapped)
        (void)device->calls.unmap(at, b->bytes);
    if (b->base)
        (void)device->calls.unreserve(at, b->bytes);
    if (b->has_memory)
        (void)device->calls.release(b->memory);
    b->is_mapped = b->has_memory = 0;
    b->base = NULL;
}
