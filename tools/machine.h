/* What this machine gives a job: processor, memory, shared memory. */
#ifndef DLC_TOOLS_MACHINE_H
#define DLC_TOOLS_MACHINE_H

#include <stdint.h>

#include "base/json.h"

#define MACHINE_UNLIMITED UINT64_MAX

typedef struct dlc_machine {
    char processor[128];
    char features[256]; /* of the processor, those that matter here: "avx2 fma" */
    int cores;          /* that this process may use; 0: not known */
    double quota;       /* cores' worth of time that the cgroup allows; 0: all */
    uint64_t memory, memory_free;
    uint64_t shm, shm_free; /* /dev/shm; 0: there is none */
    int memfd;              /* anonymous shared memory can be made */
    uint64_t locked;        /* bytes that may be locked, or MACHINE_UNLIMITED */
} dlc_machine;

/* What cannot be found out stays 0 or empty. */
void dlc_machine_read(dlc_machine *machine);
void dlc_machine_print(const dlc_machine *machine);
void dlc_machine_json(const dlc_machine *machine, dlc_json *json); /* "machine" */

#endif
