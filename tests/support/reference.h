/* Values whose sum depends on the order of addition, and their sum in the SDK's order.
 */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

/* Element i of a rank's contribution; `salt` selects another array. */
float reference_value(uint64_t salt, int rank, size_t i);
void reference_fill(uint64_t salt, int rank, size_t count, float *values);

/* ((v0+v1)+(v2+v3))+... over the ranks. */
float reference_sum(uint64_t salt, int ranks, size_t i);

/* How many of elements begin .. end-1 are not bitwise identical to the sum. */
size_t reference_wrong(uint64_t salt, int ranks, size_t begin, size_t end,
                       const float *sums);

#endif
