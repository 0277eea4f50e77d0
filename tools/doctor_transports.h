/* What each transport says to joining ranks of this machine: one that is loaded without
 * fault may still have nothing here to work with (no GPU, no library, no mpirun). */
#ifndef DLC_TOOLS_DOCTOR_TRANSPORTS_H
#define DLC_TOOLS_DOCTOR_TRANSPORTS_H

#include "base/json.h"
#include "comm/choose.h"

typedef struct doctor_choice {
    const char *device; /* of the registry */
    dlc_choice choice;  /* own */
} doctor_choice;

/* Start with {0}; release with doctor_transports_free. */
typedef struct doctor_transports {
    doctor_choice *choice; /* own; one a kind of device */
    size_t choices;
} doctor_transports;

/* Asks every transport about two ranks of this machine that compute on `device`, of
 * which there are `count` (one rank where the device is no CPU and there is one only).
 */
dlc_status doctor_transports_ask(doctor_transports *transports,
                                 const dlc_registry *registry,
                                 const dlc_feature *device, int32_t count);
/* Why it joins no ranks of any device here; NULL: it does. */
const char *doctor_transports_problem(const doctor_transports *transports,
                                      const char *name);
void doctor_transports_json(const doctor_transports *transports, dlc_json *json);
void doctor_transports_free(doctor_transports *transports);

#endif
