/* The machine as `dlcore doctor` and `dlcore plan` see it: CPU, memory, shared memory.
 */
#ifndef DLC_TOOLS_MACHINE_H
#define DLC_TOOLS_MACHINE_H

#include <stdint.h>

#include "base/json.h"

#define MACHINE_UNLIMITED UINT64_MAX

typedef struct dlc_machine {
    char cpu[128];      /* model name */
    char features[256]; /* instruction sets that matter for speed: "avx2 fma" */
    int cores;          /* that this process may use; 0: unknown */
    double quota;       /* CPU time that the cgroup allows, in cores; 0: no limit */
    uint64_t memory, memory_free; /* that the cgroup allows */
    uint64_t memory_whole;        /* of the machine */
    uint64_t shm, shm_free;       /* of /dev/shm; 0: there is none */
    int memfd;                    /* memfd_create works */
    uint64_t locked;              /* bytes that may be locked, or MACHINE_UNLIMITED */
} dlc_machine;

/* Unknown fields are 0 or empty. Fails only if memory runs out. */
dlc_status dlc_machine_read(dlc_machine *machine);
/* Prints the machine to stdout, as lines of `dlcore doctor`. */
void dlc_machine_print(const dlc_machine *machine);
void dlc_machine_json(const dlc_machine *machine, dlc_json *json); /* key "machine" */

#endif
