/* What libhdf5 says about a dataset. Runs in a process of its own. */
#ifndef HDF5_DESCRIBE_H
#define HDF5_DESCRIBE_H

#include "layout.h"

/* The answer: what layout has but memory, or a reason why not. */
typedef struct description {
    enum { DESCRIBED, NOT_FOUND, REFUSED } result;
    char reason[REASON];
    layout at;
} description;

/* Describes the dataset `name` of the file `path`, and writes the description to `fd`,
 * then the places of its chunks, or its numbers if they are in the header. Does not
 * return. */
_Noreturn void describe_dataset(const char *path, const char *name, int fd);

#endif
