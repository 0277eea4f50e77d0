/* Memory, zeroed: the GPU's, which other processes may map, and host memory that the
 * GPU copies from at full speed. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "fds.h"

enum {
    IPC_UNIT = 2 << 20
}; /* cudaMalloc allocates small blocks from units of this size */

block *block_new(block_kind kind) {
    block *b = host->alloc(sizeof *b);
    if (b) {
        b->kind = kind;
        b->fd = b->token = -1;
    }
    return b;
}

void block_free(const dlc_device *device, block *b) {
    if (!b)
        return;
    /* The token first: a process that finds the token has fetched the memory's file,
     * too. */
    if (b->token >= 0)
        close(b->token);
    if (b->fd >= 0)
        close(b->fd);
    switch (b->kind) {
    case BLOCK_PLAIN:
        (void)cudaFree(b->base);
        break;
    case BLOCK_MAPPED:
        vmm_release(device, b);
        break;
    case BLOCK_IPC:
        if (b->base)
            (void)cudaIpcCloseMemHandle(b->base);
        break;
    case BLOCK_PINNED:
        (void)cudaFreeHost(b->base);
        break;
    case BLOCK_FILE:
        pinned_unmap(b);
        break;
    }
    (void)cudaGetLastError();
    host->free(b);
}

static dlc_status no_memory(const dlc_device *device, size_t bytes) {
    size_t left = 0, total = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&left, &total);
    return host->fail(
        DLC_ERR_NOMEM,
        "no memory for %zu bytes on GPU %d at %s: %zu of its %zu bytes "
        "are free; take a smaller batch, [train] recompute = yes, or end what "
        "else uses it (see nvidia-smi)",
        bytes, device->number, device->address, left, total);
}

/* `bytes` rounded up to a multiple of `unit`, at least one; 0: overflow. */
static size_t round_up(size_t bytes, size_t unit) {
    size_t whole = bytes > 0 ? bytes : 1;
    return whole > SIZE_MAX / 2 ? 0 : (whole + unit - 1) / unit * unit;
}

static dlc_status alloc_plain(const dlc_device *device, size_t bytes, size_t unit,
                              block *b) {
    b->bytes = round_up(bytes, unit);
    cudaError_t error = cudaErrorMemoryAllocation;
    if (b->bytes > 0)
        error = cudaMalloc(&b->base, b->bytes);
    if (error == cudaErrorMemoryAllocation)
        return no_memory(device, bytes);
    GPU_TRY(device, error, "%zu bytes of memory", bytes);
    return DLC_OK;
}

static dlc_status alloc_mapped(const dlc_device *device, size_t bytes, block *b) {
    size_t whole = bytes;
    dlc_status status = vmm_round(device, &whole);
    if (status != DLC_OK)
        return status;
    if (whole == 0 || whole > SIZE_MAX / 2)
        return no_memory(device, bytes);
    status = vmm_create(device, whole, b);
    return status == DLC_ERR_NOMEM ? no_memory(device, bytes) : status;
}

static dlc_status alloc_pinned(const dlc_device *device, size_t bytes, block *b) {
    b->bytes = round_up(bytes, 64);
    cudaError_t error = cudaErrorMemoryAllocation;
    if (b->bytes > 0)
        error = cudaHostAlloc(&b->base, b->bytes, cudaHostAllocPortable);
    GPU_TRY(device, error, "%zu bytes of pinned host memory", bytes);
    memset(b->base, 0, b->bytes);
    return DLC_OK;
}

static dlc_status alloc_file(const dlc_device *device, size_t bytes, block *b) {
    size_t whole = round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
    errno = ENOMEM;
    int fd = whole > 0 ? fds_make(whole) : -1;
    if (fd < 0)
        return host->fail(DLC_ERR_NOMEM,
                          "cannot create a memory file of %zu bytes (%s)", bytes,
                          strerror(errno));
    return pinned_map(device, fd, whole, b);
}

static block_kind kind_of(const dlc_device *device, uint32_t flags) {
    if (flags & DLC_MEM_STAGING)
        return flags & DLC_MEM_SHARED ? BLOCK_FILE : BLOCK_PINNED;
    return flags & DLC_MEM_SHARED && device->by_file ? BLOCK_MAPPED : BLOCK_PLAIN;
}

/* GPU memory is not zeroed when allocated. */
static dlc_status clear(dlc_device *device, const block *b) {
    if (b->kind != BLOCK_PLAIN && b->kind != BLOCK_MAPPED)
        return DLC_OK;
    GPU_TRY(device, cudaMemsetAsync(b->base, 0, b->bytes, device->own),
            "clearing memory");
    GPU_TRY(device, cudaStreamSynchronize(device->own), "clearing memory");
    return DLC_OK;
}

static dlc_status fill_in(dlc_device *device, size_t bytes, uint32_t flags, block *b) {
    dlc_status status;
    switch (b->kind) {
    case BLOCK_MAPPED:
        status = alloc_mapped(device, bytes, b);
        break;
    case BLOCK_PINNED:
        status = alloc_pinned(device, bytes, b);
        break;
    case BLOCK_FILE:
        status = alloc_file(device, bytes, b);
        break;
    default:
        /* cudaIpc shares whole units: nothing else may be in them. */
        status = alloc_plain(device, bytes, flags & DLC_MEM_SHARED ? IPC_UNIT : 64, b);
    }
    return status == DLC_OK ? clear(device, b) : status;
}

dlc_status memory_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory) {
    dlc_status status = capture_refuse("allocating memory");
    if (status == DLC_OK)
        status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    block *b = block_new(kind_of(device, flags));
    if (!b)
        return DLC_ERR_NOMEM;
    status = fill_in(device, bytes, flags, b);
    if (status != DLC_OK) {
        block_free(device, b);
        return status;
    }
    b->exported = (flags & DLC_MEM_SHARED) != 0;
    memory->flags = flags;
    memory->base = b->base;
    memory->bytes = bytes;
    memory->handle = b;
    return DLC_OK;
}

void memory_free(dlc_device *device, dlc_memory *memory) {
    if (!memory || !memory->handle)
        return;
    const block *b = memory->handle;
    if (gpu_use(device) == DLC_OK &&
        (b->kind == BLOCK_MAPPED || b->kind == BLOCK_IPC)) {
        /* Work in flight may still use it. cudaFree waits by itself, unmapping does
         * not. */
        (void)cudaDeviceSynchronize();
        (void)cudaGetLastError();
    }
    block_free(device, memory->handle);
    memory->base = NULL;
    memory->bytes = 0;
    memory->handle = NULL;
}
