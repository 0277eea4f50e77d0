/* Memory that another process maps.
 *
 * By file descriptor, where it can be: the key says which number it has in the owner's
 * process, and the importer fetches it there (fds.c). Numbers are used again after
 * close, and the driver's files can't be told from each other; so each has a token, a
 * memory file that the owner closes first, and the importer looks at last: a token that
 * is still the one meant says that the memory fetched before is, too.
 *
 * Otherwise by cudaIpc, whose handle fills the key. Then the owner may not free the
 * memory while others have it open. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "fds.h"
#include "machine.h"

/* dlc_share.key, this device's meaning, unless it is a cudaIpcMemHandle_t. */
typedef struct share_key {
    char magic[12]; /* a handle of cudaIpc begins otherwise */
    uint32_t kind;  /* BLOCK_MAPPED, BLOCK_FILE */
    int32_t fd, token;
    uint64_t identity; /* of the token */
    uint64_t map_bytes;
    char address[16]; /* of the owner's GPU; no 0 at the end where it is full */
} share_key;

static const char magic[12] = "dlcore cuda";

_Static_assert(sizeof(share_key) <= sizeof((dlc_share){0}.key), "the key must fit");
_Static_assert(sizeof(cudaIpcMemHandle_t) <= sizeof((dlc_share){0}.key), "it, too");

/* ---- Export ------------------------------------------------------------------ */

static dlc_status export_ipc(const dlc_device *device, const block *b,
                             dlc_share *share) {
    cudaIpcMemHandle_t handle;
    GPU_TRY(device, cudaIpcGetMemHandle(&handle, b->base),
            "a cudaIpc handle for memory");
    memcpy(share->key, &handle, sizeof handle);
    return DLC_OK;
}

/* The memory file itself is a token, too. */
static dlc_status make_token(block *b) {
    if (b->kind == BLOCK_FILE || b->token >= 0)
        return DLC_OK;
    b->token = fds_make(1);
    if (b->token < 0)
        return host->fail(DLC_ERR_IO, "a memory file: %s", strerror(errno));
    return DLC_OK;
}

static dlc_status export_file(const dlc_device *device, block *b, dlc_share *share) {
    dlc_status status = b->kind == BLOCK_MAPPED ? vmm_export(device, b) : DLC_OK;
    if (status == DLC_OK)
        status = make_token(b);
    if (status != DLC_OK)
        return status;
    fds_allow();
    share_key key = {.kind = b->kind,
                     .fd = b->fd,
                     .token = b->token >= 0 ? b->token : b->fd,
                     .map_bytes = b->bytes};
    memcpy(key.magic, magic, sizeof magic);
    key.identity = fds_identity(key.token);
    memcpy(key.address, device->address,
           strnlen(device->address, sizeof key.address)); /* 0 else */
    memcpy(share->key, &key, sizeof key);
    return DLC_OK;
}

dlc_status share_export(dlc_device *device, const dlc_memory *memory,
                        dlc_share *share) {
    block *b = memory->handle;
    if (!b || !b->exported)
        return host->fail(DLC_ERR_CONFIG, "this memory cannot be exported: allocate it "
                                          "here, with DLC_MEM_SHARED");
    dlc_status status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    share->pid = (uint32_t)getpid();
    share->bytes = memory->bytes;
    memset(share->key, 0, sizeof share->key);
    return b->kind == BLOCK_PLAIN ? export_ipc(device, b, share)
                                  : export_file(device, b, share);
}

/* ---- Import ------------------------------------------------------------------ */

static dlc_status can_reach(const dlc_device *device, int from, int to, int *can) {
    *can = from == to;
    if (from != to)
        GPU_TRY(device, cudaDeviceCanAccessPeer(can, from, to),
                "cudaDeviceCanAccessPeer %d to %d", from, to);
    return DLC_OK;
}

static dlc_status check_reach(const dlc_device *device, const share_key *key) {
    char address[sizeof key->address + 1] = "";
    int its = -1, can = 0;
    memcpy(address, key->address, sizeof key->address);
    dlc_status status = gpu_number(address, &its);
    if (status == DLC_OK)
        status = can_reach(device, device->number, its, &can);
    if (status == DLC_OK && !can)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the GPU at %s cannot reach the memory of the one at %s: "
                          "neither NVLink nor PCIe lets it (nvidia-smi topo -p2p r "
                          "says more)",
                          device->address, address);
    return status;
}

dlc_status share_reaches(dlc_device *device, int32_t from, int32_t to, int *reaches) {
    const machine_gpu *a = NULL, *b = NULL;
    int its = -1, mine = -1;
    dlc_status status = machine_find(from, &a);
    if (status == DLC_OK)
        status = machine_find(to, &b);
    if (status == DLC_OK)
        status = gpu_number(a->address, &mine);
    if (status == DLC_OK)
        status = gpu_number(b->address, &its);
    return status == DLC_OK ? can_reach(device, mine, its, reaches) : status;
}

static dlc_status not_taken(const dlc_share *share, const char *what) {
    return host->fail(DLC_ERR_IO,
                      "shared memory of process %" PRIu32 ": %s: %s (is it alive, and "
                      "of the same user?)",
                      share->pid, what, strerror(errno));
}

/* The file descriptor of the memory, ours to close. */
static dlc_status take_file(const dlc_share *share, const share_key *key, int *out) {
    int fd = fds_take(share->pid, key->fd);
    if (fd < 0)
        return not_taken(share, "its file descriptor");
    int token = fds_take(share->pid, key->token);
    if (token < 0) {
        dlc_status status = not_taken(share, "its token");
        close(fd);
        return status;
    }
    uint64_t identity = fds_identity(token);
    close(token);
    if (identity == 0 || identity != key->identity) {
        close(fd);
        return host->fail(DLC_ERR_IO,
                          "shared memory of process %" PRIu32 " is not what was "
                          "exported: was it freed?",
                          share->pid);
    }
    *out = fd;
    return DLC_OK;
}

static dlc_status import_mapped(dlc_device *device, const dlc_share *share,
                                const share_key *key, block *b) {
    if (!device->by_file)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "process %" PRIu32 " shares memory by file descriptors, "
                          "which this GPU or this process can't",
                          share->pid);
    int fd = -1;
    dlc_status status = check_reach(device, key);
    if (status == DLC_OK)
        status = take_file(share, key, &fd);
    if (status != DLC_OK)
        return status;
    status = vmm_import(device, fd, (size_t)key->map_bytes, b);
    close(fd);
    return status;
}

static dlc_status import_pinned(dlc_device *device, const dlc_share *share,
                                const share_key *key, block *b) {
    int fd = -1;
    dlc_status status = take_file(share, key, &fd);
    if (status != DLC_OK)
        return status;
    return pinned_map(device, fd, (size_t)key->map_bytes, b);
}

/* Peer access between the GPUs comes with it. */
static dlc_status import_ipc(const dlc_device *device, const dlc_share *share,
                             block *b) {
    cudaIpcMemHandle_t handle;
    memcpy(&handle, share->key, sizeof handle);
    GPU_TRY(device,
            cudaIpcOpenMemHandle(&b->base, handle, cudaIpcMemLazyEnablePeerAccess),
            "opening memory that process %" PRIu32 " shares by cudaIpc", share->pid);
    b->bytes = (size_t)share->bytes;
    return DLC_OK;
}

static int makes_sense(const dlc_share *share, const share_key *key) {
    return (key->kind == BLOCK_MAPPED || key->kind == BLOCK_FILE) && key->fd >= 0 &&
           key->token >= 0 && key->map_bytes > 0 && key->map_bytes <= SIZE_MAX / 2 &&
           share->bytes <= key->map_bytes;
}

static dlc_status fill_in(dlc_device *device, const dlc_share *share,
                          const share_key *key, block *b) {
    if (b->kind == BLOCK_MAPPED)
        return import_mapped(device, share, key, b);
    return b->kind == BLOCK_FILE ? import_pinned(device, share, key, b)
                                 : import_ipc(device, share, b);
}

dlc_status share_import(dlc_device *device, const dlc_share *share,
                        dlc_memory *memory) {
    share_key key;
    memcpy(&key, share->key, sizeof key);
    int by_file = memcmp(key.magic, magic, sizeof magic) == 0;
    if (by_file && !makes_sense(share, &key))
        return host->fail(
            DLC_ERR_CONFIG,
            "these bytes do not describe shared memory of the cuda device");
    dlc_status status = record_refuse("importing memory");
    if (status == DLC_OK)
        status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    block *b = block_new(by_file ? (block_kind)key.kind : BLOCK_IPC);
    if (!b)
        return DLC_ERR_NOMEM;
    status = fill_in(device, share, &key, b);
    if (status != DLC_OK) {
        block_free(device, b);
        return status;
    }
    memory->flags = DLC_MEM_SHARED |
                    (b->kind == BLOCK_FILE ? (uint32_t)DLC_MEM_STAGING : 0);
    memory->base = b->base;
    memory->bytes = (size_t)share->bytes;
    memory->handle = b;
    return DLC_OK;
}
