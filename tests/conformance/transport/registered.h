/* Helpers of the tests of registered buffers. */
#ifndef TEST_REGISTERED_H
#define TEST_REGISTERED_H

#include "group.h"

/* Settings of the transport that has several schedules. */
enum { REGISTERED_SETTINGS = 4 };
extern const group_kind registered_settings[REGISTERED_SETTINGS];

/* Fails the test unless all ranks but the lost ones end normally; with one setting, or
 * with all of those and on every other transport that registers buffers. */
void registered_run(const group_kind *kind, int ranks, uint64_t lost, rank_body *body);
void registered_run_all(int ranks, uint64_t lost, rank_body *body);

/* Allocates `count` floats and registers them on every rank. */
float *register_floats(group *g, size_t count, dlc_memory *memory);
/* Closes the endpoint, then frees the memory; `two` may be NULL. */
void registered_finish(group *g, dlc_memory *one, dlc_memory *two);

/* Does the transport claim the SDK's order of reduction? */
int registered_is_pairwise(const group *g);

#endif
