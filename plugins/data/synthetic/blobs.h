/* Samples that show blobs, and what there is to tell about them. */
#ifndef SYNTHETIC_BLOBS_H
#define SYNTHETIC_BLOBS_H

#include "source.h"

/* The fields of a sample that a caller wants; NULL: not this one. */
typedef struct wanted_fields {
    void *image;
    unsigned char *mask, *labels;
    float *center, *boxes;
} wanted_fields;

/* The most boxes of a sample. */
int64_t blobs_most(const dlc_source *source);
/* Makes the fields that are wanted of a sample. */
dlc_status blobs_make(const dlc_source *source, int64_t sample, int32_t label,
                      const wanted_fields *wanted);

#endif
