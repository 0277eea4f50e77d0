/* Memory that another process maps.
 *
 * By file descriptor, where possible: the key holds its number in the owner's process,
 * and the importer fetches it there (fds.c). Numbers are reused after close, and the
 * driver's files cannot be told apart; so each has a token, a memory file that the
 * owner closes first and the importer checks last: if the token is still the exported
 * one, so is the memory fetched before.
 *
 * Otherwise by cudaIpc, whose handle fills the key. Then the owner must not free the
 * memory while others have it open.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "fds.h"
#include "machine.h"

/* Contents of dlc_ipc_handle.key, unless it is a cudaIpcMemHandle_t. */
typedef struct share_key {
    char magic[12]; /* a handle of cudaIpc begins differently */
    uint32_t kind;  /* BLOCK_MAPPED, BLOCK_FILE */
    int32_t fd, token;
    uint64_t identity; /* of the token */
    uint64_t map_bytes;
    char address[16]; /* of the owner's GPU; not terminated if it fills the array */
} share_key;

static const char magic[12] = "dlcore cuda";

_Static_assert(sizeof(share_key) <= sizeof((dlc_ipc_handle){0}.key),
               "the key must fit");
_Static_assert(sizeof(cudaIpcMemHandle_t) <= sizeof((dlc_ipc_handle){0}.key),
               "a cudaIpc handle must fit");

/* ---- Export ------------------------------------------------------------------ */

static dlc_status export_ipc(const dlc_device *device, const block *b,
                             dlc_ipc_handle *handle) {
    cudaIpcMemHandle_t ipc;
    GPU_TRY(device, cudaIpcGetMemHandle(&ipc, b->base), "a cudaIpc handle for memory");
    memcpy(handle->key, &ipc, sizeof ipc);
    return DLC_OK;
}

/* A memory file is its own token. */
static dlc_status make_token(block *b) {
    if (b->kind == BLOCK_FILE || b->token >= 0)
        return DLC_OK;
    b->token = fds_make(1);
    if (b->token < 0)
        return host->fail(DLC_ERR_IO, "a memory file: %s", strerror(errno));
    return DLC_OK;
}

static dlc_status export_file(const dlc_device *device, block *b,
                              dlc_ipc_handle *handle) {
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
           strnlen(device->address, sizeof key.address)); /* zero-filled */
    memcpy(handle->key, &key, sizeof key);
    return DLC_OK;
}

dlc_status ipc_export(dlc_device *device, const dlc_memory *memory,
                      dlc_ipc_handle *handle) {
    block *b = memory->handle;
    if (!b || !b->exported)
        return host->fail(DLC_ERR_CONFIG, "this memory cannot be exported: allocate it "
                                          "here, with DLC_MEM_SHARED");
    dlc_status status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    handle->pid = (uint32_t)getpid();
    handle->bytes = memory->bytes;
    memset(handle->key, 0, sizeof handle->key);
    return b->kind == BLOCK_PLAIN ? export_ipc(device, b, handle)
                                  : export_file(device, b, handle);
}

/* ---- Import ------------------------------------------------------------------ */

static dlc_status query_peer_access(const dlc_device *device, int from, int to,
                                    int *can) {
    *can = from == to;
    if (from != to)
        GPU_TRY(device, cudaDeviceCanAccessPeer(can, from, to),
                "cudaDeviceCanAccessPeer %d to %d", from, to);
    return DLC_OK;
}

static dlc_status check_peer_access(const dlc_device *device, const share_key *key) {
    char address[sizeof key->address + 1] = "";
    int its = -1, can = 0;
    memcpy(address, key->address, sizeof key->address);
    dlc_status status = gpu_number(address, &its);
    if (status == DLC_OK)
        status = query_peer_access(device, device->number, its, &can);
    if (status == DLC_OK && !can)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the GPU at %s cannot access the memory of the one at %s: "
                          "neither NVLink nor PCIe allows it (see nvidia-smi topo "
                          "-p2p r)",
                          device->address, address);
    return status;
}

dlc_status ipc_can_access_peer(dlc_device *device, int32_t from, int32_t to, int *can) {
    const machine_gpu *a = NULL, *b = NULL;
    int its = -1, mine = -1;
    dlc_status status = machine_find(from, &a);
    if (status == DLC_OK)
        status = machine_find(to, &b);
    if (status == DLC_OK)
        status = gpu_number(a->address, &mine);
    if (status == DLC_OK)
        status = gpu_number(b->address, &its);
    return status == DLC_OK ? query_peer_access(device, mine, its, can) : status;
}

static dlc_status fetch_failed(const dlc_ipc_handle *handle, const char *what) {
    return host->fail(DLC_ERR_IO,
                      "shared memory of process %" PRIu32 ": %s: %s (is it alive, and "
                      "of the same user?)",
                      handle->pid, what, strerror(errno));
}

/* Fetches the memory's file descriptor, which the caller closes. */
static dlc_status fetch_file(const dlc_ipc_handle *handle, const share_key *key,
                             int *out) {
    int fd = fds_take(handle->pid, key->fd);
    if (fd < 0)
        return fetch_failed(handle, "its file descriptor");
    int token = fds_take(handle->pid, key->token);
    if (token < 0) {
        dlc_status status = fetch_failed(handle, "its token");
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
                          handle->pid);
    }
    *out = fd;
    return DLC_OK;
}

static dlc_status import_mapped(dlc_device *device, const dlc_ipc_handle *handle,
                                const share_key *key, block *b) {
    if (!device->by_file)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "process %" PRIu32 " shares memory by file descriptors, "
                          "which this GPU or this process cannot import",
                          handle->pid);
    int fd = -1;
    dlc_status status = check_peer_access(device, key);
    if (status == DLC_OK)
        status = fetch_file(handle, key, &fd);
    if (status != DLC_OK)
        return status;
    status = vmm_import(device, fd, (size_t)key->map_bytes, b);
    close(fd);
    return status;
}

static dlc_status import_pinned(dlc_device *device, const dlc_ipc_handle *handle,
                                const share_key *key, block *b) {
    int fd = -1;
    dlc_status status = fetch_file(handle, key, &fd);
    if (status != DLC_OK)
        return status;
    return pinned_map(device, fd, (size_t)key->map_bytes, b);
}

/* Also enables peer access between the GPUs. */
static dlc_status import_ipc(const dlc_device *device, const dlc_ipc_handle *handle,
                             block *b) {
    cudaIpcMemHandle_t ipc;
    memcpy(&ipc, handle->key, sizeof ipc);
    GPU_TRY(device, cudaIpcOpenMemHandle(&b->base, ipc, cudaIpcMemLazyEnablePeerAccess),
            "opening memory that process %" PRIu32 " shares by cudaIpc", handle->pid);
    b->bytes = (size_t)handle->bytes;
    return DLC_OK;
}

static int is_valid(const dlc_ipc_handle *handle, const share_key *key) {
    return (key->kind == BLOCK_MAPPED || key->kind == BLOCK_FILE) && key->fd >= 0 &&
           key->token >= 0 && key->map_bytes > 0 && key->map_bytes <= SIZE_MAX / 2 &&
           handle->bytes <= key->map_bytes;
}

static dlc_status fill_in(dlc_device *device, const dlc_ipc_handle *handle,
                          const share_key *key, block *b) {
    if (b->kind == BLOCK_MAPPED)
        return import_mapped(device, handle, key, b);
    return b->kind == BLOCK_FILE ? import_pinned(device, handle, key, b)
                                 : import_ipc(device, handle, b);
}

dlc_status ipc_import(dlc_device *device, const dlc_ipc_handle *handle,
                      dlc_memory *memory) {
    share_key key;
    memcpy(&key, handle->key, sizeof key);
    int by_file = memcmp(key.magic, magic, sizeof magic) == 0;
    if (by_file && !is_valid(handle, &key))
        return host->fail(
            DLC_ERR_CONFIG,
            "these bytes do not describe shared memory of the cuda device");
    dlc_status status = capture_refuse("importing memory");
    if (status == DLC_OK)
        status = gpu_use(device);
    if (status != DLC_OK)
        return status;
    block *b = block_new(by_file ? (block_kind)key.kind : BLOCK_IPC);
    if (!b)
        return DLC_ERR_NOMEM;
    status = fill_in(device, handle, &key, b);
    if (status != DLC_OK) {
        block_free(device, b);
        return status;
    }
    memory->flags = DLC_MEM_SHARED |
                    (b->kind == BLOCK_FILE ? (uint32_t)DLC_MEM_STAGING : 0);
    memory->base = b->base;
    memory->bytes = (size_t)handle->bytes;
    memory->handle = b;
    return DLC_OK;
}
