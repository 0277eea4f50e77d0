/* Which transports can connect ranks of this machine: one that loads without error may
 * still have nothing to work with (no GPU, no library, no mpirun). Used by doctor.c. */
#ifndef DLC_TOOLS_DOCTOR_TRANSPORTS_H
#define DLC_TOOLS_DOCTOR_TRANSPORTS_H

#include "base/json.h"
#include "comm/choose.h"

typedef struct doctor_choice {
    const char *device;          /* owned by the registry */
    dlc_transport_choice choice; /* owned */
} doctor_choice;

/* Initialize with {0}; release with doctor_transports_free. */
typedef struct doctor_transports {
    doctor_choice *choice; /* owned; one per kind of device */
    size_t choices;
} doctor_transports;

/* Asks every transport about two ranks of this machine that compute on `device`, of
 * which there are `count` (about one rank, if that is a single accelerator). */
dlc_status doctor_transports_ask(doctor_transports *transports,
                                 const dlc_registry *registry,
                                 const dlc_feature *device, int32_t count);
/* Why the transport cannot connect ranks of any device here; NULL if it can. */
const char *doctor_transports_problem(const doctor_transports *transports,
                                      const char *name);
void doctor_transports_json(const doctor_transports *transports, dlc_json *json);
void doctor_transports_free(doctor_transports *transports);

#endif
