/* A piece of memory as free and share_export need to know it: dlc_memory.handle. */
#ifndef BLOCK_H
#define BLOCK_H

#include "gpu.h"

typedef enum block_kind {
    BLOCK_PLAIN = 1, /* cudaMalloc */
    BLOCK_MAPPED,    /* of the driver's virtual memory, shared by a file descriptor */
    BLOCK_IPC,       /* another process's, by cudaIpc */
    BLOCK_PINNED,    /* host memory, cudaHostAlloc */
    BLOCK_FILE       /* host memory of a memory file, pinned */
} block_kind;

typedef struct block {
    block_kind kind;
    int exported; /* may be exported: it was made here, with DLC_MEM_SHARED */
    void *base;
    size_t bytes; /* mapped, whole pages */
    int fd;       /* of the memory; -1: none (yet) */
    int token;    /* a memory file that lives as long as fd is its; -1: none */
    CUmemGenericAllocationHandle memory; /* BLOCK_MAPPED */
    int has_memory, is_mapped;           /* how far BLOCK_MAPPED came */
} block;

/* memory.c. An empty one of this kind; NULL: no memory. */
block *block_new(block_kind kind);
/* Gives back what there is of it. NULL allowed. */
void block_free(const dlc_device *device, block *b);

/* vmm.c: fills b->base in. `bytes` are whole granules, see vmm_round. */
dlc_status vmm_create(const dlc_device *device, size_t bytes, block *b);
/* Takes the memory behind a file descriptor of another process. */
dlc_status vmm_import(const dlc_device *device, int fd, size_t bytes, block *b);
/* The file descriptor of b, made at the first call. */
dlc_status vmm_export(const dlc_device *device, block *b);
void vmm_release(const dlc_device *device, block *b);
/* Whole granules; 0: more than there can be. */
dlc_status vmm_round(const dlc_device *device, size_t *bytes);

/* pinned.c: host memory of the file fd, which b then owns. */
dlc_status pinned_map(const dlc_device *device, int fd, size_t bytes, block *b);
void pinned_unmap(block *b);

#endif
