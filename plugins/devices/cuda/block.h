/* A block of memory, which dlc_memory.handle points to: what free and ipc_export need.
 */
#ifndef BLOCK_H
#define BLOCK_H

#include "gpu.h"

typedef enum block_kind {
    BLOCK_PLAIN = 1, /* cudaMalloc */
    BLOCK_MAPPED, /* virtual memory management of the driver, shared by file descriptor
                   */
    BLOCK_IPC,    /* imported from another process by cudaIpc */
    BLOCK_PINNED, /* host memory, cudaHostAlloc */
    BLOCK_FILE    /* host memory of a memory file, pinned */
} block_kind;

typedef struct block {
    block_kind kind;
    int exported; /* may be exported: allocated here with DLC_MEM_SHARED */
    void *base;
    size_t bytes; /* mapped, whole pages */
    int fd;       /* of the memory; -1: none yet */
    int token;    /* a memory file that lives as long as `fd` is valid; -1: none */
    CUmemGenericAllocationHandle memory; /* BLOCK_MAPPED */
    int has_memory, is_mapped;           /* how far creating BLOCK_MAPPED came */
} block;

/* memory.c: an empty block; NULL: out of memory. */
block *block_new(block_kind kind);
/* Frees what has been allocated of it. NULL allowed. */
void block_free(const dlc_device *device, block *b);

/* vmm.c: allocates b->base. `bytes` is a multiple of the granularity, see vmm_round. */
dlc_status vmm_create(const dlc_device *device, size_t bytes, block *b);
/* Maps the memory behind a file descriptor of another process. */
dlc_status vmm_import(const dlc_device *device, int fd, size_t bytes, block *b);
/* Creates b's file descriptor on first use. */
dlc_status vmm_export(const dlc_device *device, block *b);
void vmm_release(const dlc_device *device, block *b);
/* Rounds up to the granularity; 0 when that overflows. */
dlc_status vmm_round(const dlc_device *device, size_t *bytes);

/* pinned.c: maps and pins the memory file fd, which b then owns. */
dlc_status pinned_map(const dlc_device *device, int fd, size_t bytes, block *b);
void pinned_unmap(block *b);

#endif
