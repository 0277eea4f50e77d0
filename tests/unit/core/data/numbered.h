/* A fake source whose samples can be recognised: sample i has label i (if `classes` is
 * 0) and values 10 i + k modulo 251. It can be made to fail. */
#ifndef TEST_NUMBERED_H
#define TEST_NUMBERED_H

#include <stdatomic.h>

#include <dlcore/data.h>

#include "data/feed.h"
#include "feeds.h"
#include "listed.h"

#define NUMBERED_COUNT 24 /* values of a sample, 2 x 3 x 4 */

struct dlc_source {
    int64_t samples;
    int32_t classes;
    int64_t bad_from;          /* samples that cannot be read begin here; 0: none */
    int slow;                  /* a read takes a millisecond */
    int64_t fail_read;         /* the read that fails, counted from 1; 0: none */
    dlc_data_info *info;       /* what describe returns; NULL: the default */
    _Atomic int64_t reads;     /* reads so far */
    _Atomic int32_t busy;      /* threads within a read, never two */
    _Atomic int32_t collision; /* there were two threads within a read */
};

extern const dlc_data_ops numbered_ops;

/* Arguments for one rank that trains on whole batches, without transforms. */
dlc_feed_args numbered_args(struct dlc_source *source, int32_t batch);

#endif
