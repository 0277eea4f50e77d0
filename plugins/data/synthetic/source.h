/* The settings of the source, for the files that make its samples. */
#ifndef SYNTHETIC_SOURCE_H
#define SYNTHETIC_SOURCE_H

#include <dlcore/data.h>

enum { FIELDS = 6 };

extern const dlc_host *host; /* set by the plugin's load */

struct dlc_source {
    uint64_t seed;
    int64_t samples, first;
    int32_t classes;
    dlc_shape shape;
    dlc_dtype dtype;
    int blobs, has_labels;
    int32_t fields;
    dlc_field field[FIELDS];
};

#endif
