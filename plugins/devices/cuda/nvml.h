/* NVIDIA's management library (NVML), as far as this plugin uses it: loaded when
 * needed, closed again. Its header is missing from some CUDA toolkits, so the
 * declarations here follow its documentation. It does not start CUDA: a process may
 * fork after using it. */
#ifndef NVML_H
#define NVML_H

#include <dlcore/plugin.h>

enum { NVML_OK = 0, NVML_UNSIGNED_INT = 1 };

/* nvmlReturn_t, the values that get a message of ours. */
enum {
    NVML_NO_PERMISSION = 4,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_BLOCKED = 17, /* NVML_ERROR_OPERATING_SYSTEM */
    NVML_VERSION_MISMATCH = 18
};

/* nvmlIntNvLinkDeviceType_t */
enum {
    NVML_END_GPU = 0,
    NVML_END_PROCESSOR = 1, /* IBM's */
    NVML_END_SWITCH = 2,
    NVML_END_UNKNOWN = 255
};

/* Fields of nvmlDeviceGetFieldValues: MB/s of one link, one way. */
enum { NVML_LINK_SPEED_COMMON = 90, NVML_LINK_SPEED = 164 };

typedef struct nvml_gpu nvml_gpu; /* nvmlDevice_t */

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_pci {
    char old_address[16];
    unsigned domain, bus, device, id, subsystem_id;
    char address[32];
} nvml_pci;

typedef struct nvml_field {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type; /* NVML_UNSIGNED_INT ... */
    int result;
    union {
        double d;
        unsigned ui;
        unsigned long long ull;
    } value;
} nvml_field;

/* Those after `optional` may be NULL: an older library does not have them. */
typedef struct nvml_calls {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error)(int);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_gpu **);
    int (*name)(nvml_gpu *, char *, unsigned);
    int (*uuid)(nvml_gpu *, char *, unsigned);
    int (*memory)(nvml_gpu *, nvml_memory *);
    int (*pci)(nvml_gpu *, nvml_pci *);
    /* optional: */
    int (*capability)(nvml_gpu *, int *, int *);
    int (*cores)(nvml_gpu *, unsigned *);
    int (*mig)(nvml_gpu *, unsigned *, unsigned *);
    int (*link_state)(nvml_gpu *, unsigned, unsigned *);
    int (*link_pci)(nvml_gpu *, unsigned, nvml_pci *);
    int (*link_end)(nvml_gpu *, unsigned, unsigned *);
    int (*fields)(nvml_gpu *, int, nvml_field *);
    int (*driver)(char *, unsigned);
    int (*cuda)(int *);
} nvml_calls;

/* Loads and starts it, or fails with a message. */
dlc_status nvml_open(nvml_calls *nvml);
void nvml_close(nvml_calls *nvml);

#endif
