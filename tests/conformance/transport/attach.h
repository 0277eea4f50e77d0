/* What the tests of attached memory share. */
#ifndef TEST_ATTACH_H
#define TEST_ATTACH_H

#include "group.h"

/* Every way of the transport that has several. */
enum { ATTACH_WAYS = 4 };
extern const group_kind attach_ways[ATTACH_WAYS];

/* Fails the test unless all ranks but the lost ones end well; in one way, or in all
 * those and on every other transport that attaches memory. */
void attach_run(const group_kind *kind, int ranks, uint64_t lost, rank_body *body);
void attach_run_all(int ranks, uint64_t lost, rank_body *body);

/* `count` floats that every rank has attached. */
float *attach(group *g, size_t count, dlc_memory *memory);
/* Closes the endpoint, then frees the memory; two: NULL allowed. */
void attach_finish(group *g, dlc_memory *one, dlc_memory *two);

/* Does the transport claim the SDK's order of sums? */
int attach_is_pairwise(const group *g);

#endif
