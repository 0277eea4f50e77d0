/* Device memory that shadows the tests' host memory. Tests fill and check host memory;
 * if the device's memory is not host memory, each call of group.h works in device
 * memory with the same surroundings and alignment, which is copied there before and
 * back afterwards. Otherwise none of this is used. */
#ifndef TEST_SHADOW_H
#define TEST_SHADOW_H

#include "group.h"

typedef struct shadow shadow;

/* Host memory that stands for registered device memory. Zeroed; the group owns it. */
void *shadow_registered(group *g, const dlc_memory *memory);

/* Copies to the device; *at is the address there. */
shadow *shadow_begin(group *g, void *host, size_t bytes, void **at);
/* Copies back if `copy_back`, and checks that nothing else was written. */
void shadow_end(group *g, shadow *s, int copy_back);

/* Keeps a shadow while a request is in flight; `into`: it is a receive. */
void shadow_keep(shadow *s, dlc_request *request, int into);
/* The request is done. */
void shadow_done(group *g, const dlc_request *request, dlc_status status);

/* Call after the endpoint was closed. */
void shadows_free(group *g);

#endif
