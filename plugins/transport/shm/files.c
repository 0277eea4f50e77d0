/* Memory files: creates this rank's, exchanges their descriptions, checks and maps
 * those of the other ranks.
 *
 * A memory file (memfd) has no name in any file system: it disappears with the last
 * process that maps it, however that process ends. Peers open it through
 * /proc/<pid>/fd/<n> of its creator.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PAGE ((size_t)4096)
#define MAGIC 0x6467617473636c64u
/* What every rank sends to the others about its file. */
typedef struct file_info {
    uint64_t magic, nonce;
    uint64_t device, inode; /* of the file */
    uint64_t slots, slot_bytes, chunk_bytes, windows;
    uint32_t pid;
    int32_t fd;
    cpu_set_t cores; /* CPUs that it may run on */
} file_info;

static size_t slot_stride(const dlc_endpoint *e) {
    return sizeof(slot) + e->slot_bytes;
}

static size_t ring_stride(const dlc_endpoint *e) {
    return sizeof(ring) + e->slots * slot_stride(e);
}

static size_t windows_offset(const dlc_endpoint *e) {
    return sizeof(head) + (size_t)e->ranks * ring_stride(e);
}

static size_t window_stride(const dlc_endpoint *e) {
    return (size_t)e->ranks * e->chunk_bytes;
}

unsigned char *files_window(const dlc_endpoint *e, int32_t rank, uint64_t step) {
    return (unsigned char *)e->peers[rank].map + windows_offset(e) +
           step % e->windows * window_stride(e);
}

static ring *ring_in(const dlc_endpoint *e, char *map, int32_t sender) {
    return (ring *)(void *)(map + sizeof(head) + (size_t)sender * ring_stride(e));
}

static dlc_status map_file(const dlc_endpoint *e, int fd, char **map) {
    void *at = mmap(NULL, e->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return host->fail(DLC_ERR_NOMEM,
                          "cannot map %zu bytes of shared memory: %s: make slots or "
                          "slot_bytes smaller",
                          e->file_bytes, strerror(errno));
    *map = at;
    return DLC_OK;
}

static dlc_status make_file(dlc_endpoint *e, file_info *mine) {
    struct stat about;

    e->fd = memfd_create("dlcore-transport", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (e->fd < 0 || ftruncate(e->fd, (off_t)e->file_bytes) != 0 ||
        fcntl(e->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        fstat(e->fd, &about) != 0)
        return host->fail(DLC_ERR_NOMEM, "cannot make %zu bytes of shared memory: %s",
                          e->file_bytes, strerror(errno));
    *mine = (file_info){.magic = MAGIC,
                        .nonce = host->now_ns() ^ (uint64_t)getpid() << 40,
                        .device = about.st_dev,
                        .inode = about.st_ino,
                        .slots = e->slots,
                        .slot_bytes = e->slot_bytes,
                        .chunk_bytes = e->chunk_bytes,
                        .windows = e->windows,
                        .pid = (uint32_t)getpid(),
                        .fd = e->fd};
    if (sched_getaffinity(0, sizeof mine->cores, &mine->cores) != 0)
        CPU_ZERO(&mine->cores); /* more CPUs than the set can hold */

    dlc_status status = map_file(e, e->fd, &e->peers[e->rank].map);
    if (status != DLC_OK)
        return status;
    /* Populates the windows, which every gradient exchange uses; rings are populated on
     * first use. */
    size_t used = windows_offset(e) / PAGE * PAGE;
    (void)madvise(e->peers[e->rank].map + used, e->file_bytes - used,
                  MADV_POPULATE_WRITE);
    e->head = (head *)(void *)e->peers[e->rank].map;
    e->head->magic = MAGIC;
    e->head->nonce = mine->nonce;
    return DLC_OK;
}

static dlc_status open_file(dlc_endpoint *e, int32_t rank, const file_info *its) {
    char path[64];
    struct stat about;

    if (its->windows != e->windows)
        return host->fail(DLC_ERR_CONFIG,
                          "rank %d and this rank compute in different kinds of memory: "
                          "give all ranks the same device",
                          rank);
    if (its->magic != MAGIC || its->slots != e->slots ||
        its->slot_bytes != e->slot_bytes || its->chunk_bytes != e->chunk_bytes)
        return host->fail(
            DLC_ERR_CONFIG,
            "rank %d has different settings of this transport (slots %" PRIu64
            ", slot_bytes %" PRIu64 ", chunk_bytes %" PRIu64
            "; here %zu, %zu, %zu): give all ranks the same",
            rank, its->slots, its->slot_bytes, its->chunk_bytes, e->slots,
            e->slot_bytes, e->chunk_bytes);
    (void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/fd/%" PRId32, its->pid,
                   its->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return host->fail(DLC_ERR_PEER,
                          "shared memory of rank %d: %s: %s (is it alive, and in the "
                          "same container?)",
                          rank, path, strerror(errno));
    int meant = fstat(fd, &about) == 0 && about.st_dev == its->device &&
                about.st_ino == its->inode && about.st_size == (off_t)e->file_bytes &&
                (fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
    dlc_status status = DLC_OK;
    if (meant)
        status = map_file(e, fd, &e->peers[rank].map);
    close(fd);
    if (status != DLC_OK)
        return status;
    const head *h = (const head *)(const void *)e->peers[rank].map;
    if (!meant || h->magic != MAGIC || h->nonce != its->nonce)
        return host->fail(DLC_ERR_PEER, "shared memory of rank %d: %s is another file",
                          rank, path);
    return DLC_OK;
}

/* Is there a core for every rank? */
static int enough_cores(const file_info *infos, int32_t ranks) {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int32_t r = 0; r < ranks; r++)
        CPU_OR(&all, &all, &infos[r].cores);
    return CPU_COUNT(&all) >= ranks;
}

static dlc_status open_peers(dlc_endpoint *e, const file_info *infos) {
    for (int32_t r = 0; r < e->ranks; r++) {
        peer *p = &e->peers[r];
        p->rank = r;
        if (r != e->rank) {
            dlc_status status = open_file(e, r, &infos[r]);
            if (status != DLC_OK)
                return status;
        }
        p->head = (head *)(void *)p->map;
        p->out = ring_in(e, p->map, e->rank);
        p->in = ring_in(e, e->peers[e->rank].map, r);
    }
    return DLC_OK;
}

dlc_status files_open(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;
    file_info mine;
    file_info *infos = host->alloc((size_t)e->ranks * sizeof *infos);
    if (!infos)
        return DLC_ERR_NOMEM;

    e->file_bytes = windows_offset(e) + e->windows * window_stride(e);
    dlc_status status = make_file(e, &mine);
    if (status == DLC_OK)
        status = args->oob_all_gather(args->job, &mine, sizeof mine, infos);
    if (status == DLC_OK)
        status = open_peers(e, infos);
    if (status == DLC_OK)
        e->oversubscribed = !enough_cores(infos, e->ranks);
    /* No rank may continue, and perhaps exit, before all ranks have opened its file. */
    if (status == DLC_OK)
        status = args->oob_all_gather(args->job, &mine, 1, infos);
    host->free(infos);
    return status;
}

void files_close(dlc_endpoint *e) {
    for (int32_t r = 0; r < e->ranks; r++)
        if (e->peers[r].map)
            munmap(e->peers[r].map, e->file_bytes);
    if (e->fd >= 0)
        close(e->fd);
}
