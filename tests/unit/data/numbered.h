/* A source whose sample i is recognised: label i (while `classes` is 0), values
 * 10 i + k modulo 251. It can be told to fail. */
#ifndef TEST_NUMBERED_H
#define TEST_NUMBERED_H

#include <stdatomic.h>

#include <dlcore/data.h>

#include "train/feed/feed.h"

#define NUMBERED_COUNT 24 /* values of a sample, 2 x 3 x 4 */

struct dlc_source {
    int64_t samples;
    int32_t classes;
    int64_t fail_read;         /* this read fails, counted from 1; 0: none */
    dlc_data_info *info;       /* NULL, or what describe shall say */
    _Atomic int64_t reads;     /* so far */
    _Atomic int32_t busy;      /* within a read: never two */
    _Atomic int32_t collision; /* there were */
};

extern const dlc_data_ops numbered_ops;

/* Arguments for one rank that trains on all of a batch, no augmentation. */
dlc_feed_args numbered_args(struct dlc_source *source, int32_t batch);

/* A feed that must open; one batch that must come. */
dlc_feed *numbered_open(const dlc_feed_args *args);
dlc_batch numbered_next(dlc_feed *feed);

#endif
