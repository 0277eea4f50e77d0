/* The GPUs of this machine that the process sees, found without starting CUDA: the
 * process may fork afterwards, and CUDA does not survive that. */
#ifndef MACHINE_H
#define MACHINE_H

#include <dlcore/device.h>

extern const dlc_host *host; /* plugin.c's */

enum {
    MACHINE_GPUS = 64,  /* most GPUs of a machine */
    MACHINE_LINKS = 36, /* most links of a GPU */
};

typedef struct machine_gpu {
    char name[64];
    char uuid[96];
    char address[20]; /* PCI, "0000:1b:00.0" */
    uint64_t memory;
    int32_t units; /* 0: unknown */
    int32_t numa;  /* -1: unknown */
    int is_mig;    /* MIG is on */
    int32_t links;
    dlc_link link[MACHINE_LINKS]; /* one per peer */
} machine_gpu;

/* Reads everything; called once, first of all. DLC_ERR_UNAVAILABLE, with a message, if
 * there is no GPU. */
dlc_status machine_read(void);

/* Implement the calls of dlc_device_ops that come before open. */
dlc_status machine_count(int32_t *count);
dlc_status machine_describe(int32_t index, dlc_device_info *info);
dlc_status machine_links(int32_t index, dlc_link *links, int32_t room, int32_t *count);

/* The GPU to open, by its index here. */
dlc_status machine_find(int32_t index, const machine_gpu **gpu);

#endif
