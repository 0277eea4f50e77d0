/* Numbers whose sum depends on the order, and that sum in the order of the SDK. */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

/* Element i of what a rank puts in; `salt` makes another array of it. */
float reference_value(uint64_t salt, int rank, size_t i);
void reference_fill(uint64_t salt, int rank, size_t count, float *values);

/* ((v0+v1)+(v2+v3))+... over the ranks. */
float reference_sum(uint64_t salt, int ranks, size_t i);

/* How many of elements begin .. end-1 differ from the sum, in any bit. */
size_t reference_wrong(uint64_t salt, int ranks, size_t begin, size_t end,
                       const float *sums);

#endif
