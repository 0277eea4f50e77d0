/* Memory: zeroed, in huge pages where it is large, touched by the threads that use it,
 * and shared with other processes through memory files (memfd).
 *
 * A memory file has no name in any file system: it disappears with the last process
 * that maps it, however that process ends. A peer opens it through /proc/<pid>/fd/<n>
 * of its owner and checks that it is the exported one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE_PAGE ((size_t)2 << 20)

/* dlc_memory.handle: what free needs. */
typedef struct block {
    void *map; /* NULL: on the heap */
    size_t map_bytes;
    int fd; /* memory file; -1: none */
} block;

/* Contents of dlc_ipc_handle.key. */
typedef struct share_key {
    uint32_t magic;
    int32_t fd; /* descriptor number in the owner's process */
    uint64_t device, inode;
    uint64_t map_bytes;
} share_key;

enum { SHARE_MAGIC = 0x646c6370 };

_Static_assert(sizeof(share_key) <= sizeof((dlc_ipc_handle){0}.key),
               "the key must fit");

static dlc_status no_memory(size_t bytes, const char *step) {
    return host->fail(DLC_ERR_NOMEM, "no memory for %zu bytes (%s: %s)", bytes, step,
                      strerror(errno));
}

/* Maps `bytes` of fd (or anonymous memory) at a multiple of `align`, by reserving more
 * than needed and unmapping the excess. */
static void *map_aligned(size_t bytes, size_t align, int fd) {
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    size_t room = bytes + align;
    char *reserved = mmap(NULL, room, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return NULL;

    size_t before = (align - (uintptr_t)reserved % align) % align;
    char *at = reserved + before;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        int error = errno;
        munmap(reserved, room);
        errno = error;
        return NULL;
    }
    if (before > 0)
        munmap(reserved, before);
    if (room - before > bytes)
        munmap(at + bytes, room - before - bytes);
    return at;
}

typedef struct pages {
    char *map;
    int fresh;  /* contains no data yet */
    int shared; /* of a memory file */
    _Atomic int error;
} pages;

/* Populates pages with one system call instead of a fault per page; older kernels don't
 * support it. Before that it asks for huge pages for memory files:
 * madvise(MADV_HUGEPAGE) has no effect on them unless the machine is configured for it
 * (shmem_enabled, usually `never`), but MADV_COLLAPSE does; an older kernel, or one
 * without free huge pages, refuses, which does no harm. */
static void range_touch(const void *job, size_t begin, size_t end) {
    pages *p = *(pages *const *)job;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (p->shared && end - begin >= HUGE_PAGE)
        (void)madvise(p->map + begin, end - begin, MADV_COLLAPSE);
    if (madvise(p->map + begin, end - begin, MADV_POPULATE_WRITE) == 0)
        return;
    if (errno != EINVAL)
        p->error = errno;
    else if (p->fresh)
        for (size_t at = begin; at < end; at += page)
            ((volatile char *)p->map)[at] = 0;
}

/* Touches memory with the threads that will use it, so that it is on their NUMA node.
 * Returns 0, or -1 when out of memory. */
static int touch(const dlc_device *device, void *map, size_t bytes, int fresh,
                 int shared) {
    pages job = {.map = map, .fresh = fresh, .shared = shared}, *at = &job;
    if (bytes >= HUGE_PAGE) {
        (void)madvise(map, bytes, MADV_HUGEPAGE);
        threads_parallel_for(device, bytes, HUGE_PAGE, range_touch, &at);
    } else {
        range_touch(&at, 0, bytes);
    }
    errno = job.error;
    return job.error ? -1 : 0;
}

/* Rounds up to whole pages; 0 when that overflows. Not to huge pages: the remainder
 * uses small ones. */
static size_t whole_pages(size_t bytes, size_t page) {
    size_t rounded = (bytes + page - 1) / page * page;
    return rounded >= bytes && rounded < SIZE_MAX / 2 ? rounded : 0;
}

/* Creates a sealed memory file, which nobody can shrink while others map it. */
static int make_file(size_t bytes) {
    int fd = memfd_create("dlcore", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static dlc_status map_block(const dlc_device *device, size_t bytes, uint32_t flags,
                            block *b) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    b->map_bytes = whole_pages(bytes > 0 ? bytes : 1, page);
    errno = ENOMEM;
    if (b->map_bytes == 0)
        return no_memory(bytes, "size");
    if (flags & DLC_MEM_SHARED) {
        b->fd = make_file(b->map_bytes);
        if (b->fd < 0)
            return no_memory(bytes, "memfd_create");
    }
    b->map = map_aligned(b->map_bytes, b->map_bytes >= HUGE_PAGE ? HUGE_PAGE : page,
                         b->fd);
    if (!b->map)
        return no_memory(bytes, "mmap");
    if (touch(device, b->map, b->map_bytes, 1, b->fd >= 0) != 0)
        return no_memory(bytes, "populating it");
    return DLC_OK;
}

static void release(block *b) {
    if (!b)
        return;
    if (b->map)
        munmap(b->map, b->map_bytes);
    if (b->fd >= 0)
        close(b->fd);
    host->free(b);
}

dlc_status memory_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory) {
    block *b = host->alloc(sizeof *b);
    if (!b)
        return DLC_ERR_NOMEM;
    b->fd = -1;

    void *base = NULL;
    if ((flags & DLC_MEM_SHARED) || bytes >= HUGE_PAGE) {
        dlc_status status = map_block(device, bytes, flags, b);
        if (status != DLC_OK) {
            release(b);
            return status;
        }
        base = b->map;
    } else {
        base = host->alloc(bytes);
        if (!base) {
            release(b);
            return DLC_ERR_NOMEM;
        }
    }
    memory->flags = flags;
    memory->base = base;
    memory->bytes = bytes;
    memory->handle = b;
    return DLC_OK;
}

void memory_free(dlc_device *device, dlc_memory *memory) {
    (void)device;
    block *b = memory ? memory->handle : NULL;
    if (!b)
        return;
    if (!b->map)
        host->free(memory->base);
    release(b);
    memory->base = NULL;
    memory->bytes = 0;
    memory->handle = NULL;
}

dlc_status memory_export(dlc_device *device, const dlc_memory *memory,
                         dlc_ipc_handle *handle) {
    (void)device;
    const block *b = memory->handle;
    struct stat about;

    if (!b || b->fd < 0)
        return host->fail(DLC_ERR_CONFIG, "this memory cannot be exported: allocate it "
                                          "here, with DLC_MEM_SHARED");
    if (fstat(b->fd, &about) != 0)
        return host->fail(DLC_ERR_IO, "memory file: %s", strerror(errno));
    share_key key = {.magic = SHARE_MAGIC,
                     .fd = b->fd,
                     .device = about.st_dev,
                     .inode = about.st_ino,
                     .map_bytes = b->map_bytes};
    handle->pid = (uint32_t)getpid();
    handle->bytes = memory->bytes;
    memset(handle->key, 0, sizeof handle->key);
    memcpy(handle->key, &key, sizeof key);
    return DLC_OK;
}

/* Is fd the memory file that the owner exported, and unable to shrink? */
static int is_exported(int fd, const share_key *key) {
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);
    return fstat(fd, &about) == 0 && about.st_dev == key->device &&
           about.st_ino == key->inode && (uint64_t)about.st_size == key->map_bytes &&
           seals >= 0 && (seals & F_SEAL_SHRINK);
}

static dlc_status open_share(const dlc_ipc_handle *handle, const share_key *key,
                             int *out) {
    char path[64];

    if (key->magic != SHARE_MAGIC || key->fd < 0 || handle->bytes > key->map_bytes ||
        key->map_bytes == 0 || key->map_bytes > SIZE_MAX / 2)
        return host->fail(
            DLC_ERR_CONFIG,
            "these bytes do not describe shared memory of the cpu device");
    (void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/fd/%" PRId32, handle->pid,
                   key->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return host->fail(DLC_ERR_IO,
                          "shared memory of process %" PRIu32 ": %s: %s (is it alive, "
                          "and of the same user?)",
                          handle->pid, path, strerror(errno));
    if (!is_exported(fd, key)) {
        close(fd);
        return host->fail(DLC_ERR_IO,
                          "shared memory of process %" PRIu32 ": %s is not what was "
                          "exported: was it freed?",
                          handle->pid, path);
    }
    *out = fd;
    return DLC_OK;
}

dlc_status memory_import(dlc_device *device, const dlc_ipc_handle *handle,
                         dlc_memory *memory) {
    share_key key;
    memcpy(&key, handle->key, sizeof key);
    int fd = -1;
    dlc_status status = open_share(handle, &key, &fd);
    if (status != DLC_OK)
        return status;

    block *b = host->alloc(sizeof *b);
    if (!b) {
        close(fd);
        return DLC_ERR_NOMEM;
    }
    b->fd = -1;
    b->map_bytes = (size_t)key.map_bytes;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    b->map = map_aligned(b->map_bytes, b->map_bytes >= HUGE_PAGE ? HUGE_PAGE : page,
                         fd);
    int error = errno;
    close(fd);
    if (!b->map) {
        errno = error;
        status = no_memory(b->map_bytes, "mmap of shared memory");
        release(b);
        return status;
    }
    /* The pages exist already: this fills the page table. */
    (void)touch(device, b->map, b->map_bytes, 0, 1);
    memory->flags = DLC_MEM_SHARED;
    memory->base = b->map;
    memory->bytes = (size_t)handle->bytes;
    memory->handle = b;
    return DLC_OK;
}
