/* A fake data source with a field of each role, for tests of the feed. */
#ifndef TEST_FIELDED_H
#define TEST_FIELDED_H

#include "data/feed.h"

enum { FIELDED_HEIGHT = 6, FIELDED_WIDTH = 8, FIELDED_CLASSES = 4, FIELDED_MOST = 5 };

/* In this order; the pixels of the image are those of the mask. */
enum {
    FIELDED_IMAGE,
    FIELDED_LABEL,
    FIELDED_MASK,
    FIELDED_NUMBERS, /* 1 to FIELDED_MOST of them */
    FIELDED_CLASSES_OF,
    FIELDED_TOKENS, /* as many */
    FIELDED_FIELDS
};

struct dlc_source {
    int64_t samples;
    int broken_mask; /* the mask is smaller than the image */
    int unlabelled;  /* no class is known */
    dlc_field field[FIELDED_FIELDS];
};

extern const dlc_data_ops fielded_ops;

uint8_t fielded_pixel(int64_t sample, int64_t y, int64_t x);
/* How many numbers, and tokens, a sample has. */
int64_t fielded_count(int64_t sample);

/* Arguments of a feed of all fields in that order, of which all but the image are
 * labels; shuffled. */
dlc_feed_args fielded_args(struct dlc_source *source, int32_t batch);

#endif
