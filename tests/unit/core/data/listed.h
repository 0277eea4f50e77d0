/* Lists of transforms for tests, from text. */
#ifndef TEST_LISTED_H
#define TEST_LISTED_H

#include "data/transform.h"

/* Parses a list that has no mistakes; the caller frees it. */
dlc_transforms *listed(const char *text);

/* The same, but the list is kept until the process ends. */
const dlc_transforms *listed_for_good(const char *text);

/* The mistakes of a list, one a line. Valid until the next call. */
const char *listed_mistakes(const char *text);

/* Plans and applies a list to the sample at `position` (seed 3), decoded whole. */
void listed_apply(const dlc_transforms *list, uint64_t position, const dlc_image *image,
                  dlc_dtype type, void *out);

#endif
