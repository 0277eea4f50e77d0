/* Device memory behind the tests' host memory. The tests fill and look at host memory;
 * where the device's is not that, each call of group.h works in device memory that lies
 * as the host's does, with what is around it, and is copied there before and back
 * afterwards. Where it is, nothing of this is used. */
#ifndef TEST_SHADOW_H
#define TEST_SHADOW_H

#include "group.h"

typedef struct shadow shadow;

/* A piece of host memory for the device memory that is attached. It is zero, and the
 * group's. */
void *shadow_attached(group *g, const dlc_memory *memory);

/* Copies to the device; `at` is the address there. */
shadow *shadow_begin(group *g, void *host, size_t bytes, void **at);
/* Copies back, where there is something, and checks that nothing was
 * written beside it. */
void shadow_end(group *g, shadow *s, int copy_back);

/* A shadow for as long as a request is under way; `into`: it is received into. */
void shadow_keep(shadow *s, dlc_request *request, int into);
/* The request is done. */
void shadow_done(group *g, const dlc_request *request, dlc_status status);

/* Once the endpoint is closed. */
void shadows_free(group *g);

#endif
