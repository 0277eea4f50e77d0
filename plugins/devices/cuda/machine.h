/* The GPUs of this machine that the process sees, found without starting CUDA: the
 * process may fork afterwards, and CUDA does not survive that. */
#ifndef MACHINE_H
#define MACHINE_H

#include <dlcore/device.h>

extern const dlc_host *host; /* plugin.c's */

enum {
    MACHINE_GPUS = 64,  /* that one machine has at most */
    MACHINE_LINKS = 36, /* that one GPU has at most */
};

typedef struct machine_gpu {
    char name[64];
    char uuid[96];
    char address[20]; /* PCI, "0000:1b:00.0" */
    uint64_t memory;
    int32_t units; /* 0: not known */
    int32_t numa;  /* -1: not known */
    int in_parts;  /* MIG is on */
    int32_t links;
    dlc_link link[MACHINE_LINKS]; /* each other end once */
} machine_gpu;

/* Once, first of all. DLC_ERR_UNAVAILABLE with a sentence where there is none. */
dlc_status machine_read(void);

/* The device's calls before open. */
dlc_status machine_count(int32_t *count);
dlc_status machine_describe(int32_t index, dlc_device_info *info);
dlc_status machine_links(int32_t index, dlc_link *links, int32_t room, int32_t *count);

/* The one to open. */
dlc_status machine_find(int32_t index, const machine_gpu **gpu);

#endif
