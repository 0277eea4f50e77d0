/* concat: each row consists of one run per input, copied in units of up to 16 bytes. */
#ifndef DLCORE_CUDNN_CONCAT_BODY_H
#define DLCORE_CUDNN_CONCAT_BODY_H

#include <dlcore/layer.h>

#include "body.h"

typedef struct concat_args {
    int32_t inputs;
    int32_t piece;                      /* bytes: 16, 4 or 2 */
    int64_t rows;                       /* number of rows of the output */
    int64_t before[DLC_MAX_INPUTS + 1]; /* units before an input in a row */
    fast_divisor row;                   /* units in a row */
    const void *in[DLC_MAX_INPUTS]; /* backward: in_diff (written); NULL: not wanted */
    const void *out;                /* forward: written; backward: out_diff (read) */
} concat_args;

/* Sets the derived fields. */
BODY void concat_ready(concat_args *c) {
    c->row = fast_divisor_of(c->before[c->inputs]);
}

BODY int64_t concat_items(const concat_args *c) {
    return c->rows * c->before[c->inputs];
}

/* Copies unit `item`, counted from the start of row `first_row`. */
BODY void concat_at(const concat_args *c, int backward, int piece, int64_t first_row,
                    uint32_t item) {
    int64_t place = fast_divmod(&item, c->row), row = first_row + item;
    int32_t i = 0;
    while (place >= c->before[i + 1])
        i++;
    if (!c->in[i])
        return;
    int64_t run = c->before[i + 1] - c->before[i];
    char *in = (char *)c->in[i] + (row * run + place - c->before[i]) * piece;
    char *out = (char *)c->out + (row * c->before[c->inputs] + place) * piece;
    copy_aligned((size_t)piece, backward ? in : out, backward ? out : in);
}

#endif
