/* Memory of the accelerator: files without a name, so that other processes can map it.
 * The addresses that the core gets are DISTANCE above those at which it is mapped, so
 * that a CPU that reads them by mistake ends with SIGSEGV. */
#include "accelerator.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DISTANCE ((uintptr_t)1 << 52) /* beyond what a process can map */

/* dlc_memory.handle */
typedef struct block {
    char *mapped;
    size_t bytes;
    int file;
    int32_t
        owner; /* the device whose memory it is; -1: staging, or another process's */
} block;

static atomic_size_t used[DEVICES];

int is_device_memory(const void *address) {
    return (uintptr_t)address >= DISTANCE;
}

void *view(const void *address) {
    uintptr_t at = (uintptr_t)address;
    return (void *)(is_device_memory(address) ? at - DISTANCE : at);
}

/* Takes the memory from what the device has. */
static dlc_status take(int32_t index, size_t capacity, size_t bytes) {
    size_t before = atomic_fetch_add(&used[index], bytes);
    if (bytes <= capacity && before <= capacity - bytes)
        return DLC_OK;
    atomic_fetch_sub(&used[index], bytes);
    return host->fail(DLC_ERR_NOMEM,
                      "accelerator %d: %zu bytes do not fit, %zu of %zu "
                      "are in use",
                      index, bytes, before, capacity);
}

/* Maps a file, which it owns from then on, also if it fails. */
static dlc_status map(int file, size_t bytes, uint32_t flags, int32_t owner,
                      dlc_memory *memory) {
    block *made = host->alloc(sizeof *made);
    void *mapped = made ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                        : MAP_FAILED;
    if (mapped == MAP_FAILED) {
        host->free(made);
        (void)close(file);
        return made ? host->fail(DLC_ERR_NOMEM, "mmap of %zu bytes: %m", bytes)
                    : DLC_ERR_NOMEM;
    }
    *made = (block){mapped, bytes, file, owner};
    memory->flags = flags;
    memory->base = flags & DLC_MEM_STAGING ? mapped : (char *)mapped + DISTANCE;
    memory->bytes = bytes;
    memory->handle = made;
    return DLC_OK;
}

static dlc_status make_file(size_t bytes, int *made) {
    int file = memfd_create("accelerator", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0) {
        *made = file;
        return DLC_OK;
    }
    dlc_status status = host->fail(DLC_ERR_NOMEM, "a file of %zu bytes: %m", bytes);
    if (file >= 0)
        (void)close(file);
    return status;
}

dlc_status device_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory) {
    int32_t owner = flags & DLC_MEM_STAGING ? -1 : device->index;
    size_t rounded = bytes > 0 ? bytes : 1;
    int file = -1;
    dlc_status status = owner < 0 ? DLC_OK : take(owner, device->capacity, rounded);
    if (status != DLC_OK)
        return status;
    status = make_file(rounded, &file);
    if (status == DLC_OK)
        status = map(file, rounded, flags, owner, memory);
    if (status != DLC_OK && owner >= 0)
        atomic_fetch_sub(&used[owner], rounded);
    return status;
}

void device_free(dlc_device *device, dlc_memory *memory) {
    block *gone = memory->handle;
    (void)device;
    (void)munmap(gone->mapped, gone->bytes);
    (void)close(gone->file);
    if (gone->owner >= 0)
        atomic_fetch_sub(&used[gone->owner], gone->bytes);
    host->free(gone);
    *memory = (dlc_memory){.size = memory->size};
}

/* ---- Other processes -------------------------------------------------------- */

/* dlc_ipc_handle.key */
typedef struct key {
    int32_t file;
    uint32_t flags;
} key;

dlc_status device_export(dlc_device *device, const dlc_memory *memory,
                         dlc_ipc_handle *handle) {
    const block *of = memory->handle;
    key made = {of->file, memory->flags};
    (void)device;
    if (!(memory->flags & DLC_MEM_SHARED))
        return host->fail(DLC_ERR_CONFIG,
                          "this memory was not allocated with DLC_MEM_SHARED");
    handle->pid = (uint32_t)getpid();
    handle->bytes = memory->bytes;
    memcpy(handle->key, &made, sizeof made);
    return DLC_OK;
}

dlc_status device_import(dlc_device *device, const dlc_ipc_handle *handle,
                         dlc_memory *memory) {
    char path[64];
    key of;
    (void)device;
    memcpy(&of, handle->key, sizeof of);
    (void)snprintf(path, sizeof path, "/proc/%u/fd/%d", handle->pid, of.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return host->fail(DLC_ERR_IO, "%s: %m", path);
    return map(file, (size_t)handle->bytes, of.flags, -1, memory);
}
