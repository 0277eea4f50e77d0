/* dropout: which elements are kept is drawn by (seed, layer, iteration, index of the
 * element in the global batch, in plain order), as by the family on the CPU; backward
 * draws again. Element e uses word e % 4 of block e / 4. */
#ifndef DLCORE_CUDNN_DROPOUT_BODY_H
#define DLCORE_CUDNN_DROPOUT_BODY_H

#include <dlcore/layer.h>

#include "../../shared/philox.h"
#include "body.h"

typedef struct dropout_args {
    dlc_dtype type;
    int64_t count;                       /* elements */
    int64_t features, channels, spatial; /* of a sample */
    int last; /* 1: channels last, and more than one position */
    uint64_t seed;
    uint32_t index, limit; /* elements with a word below this are dropped */
    float scale;           /* of kept elements */
    dlc_step step;
    const dlc_step *step_at; /* not NULL: replaces `step` */
    const void *from;
    void *to;
} dropout_args;

BODY dlc_step dropout_step(const dropout_args *d) {
    return d->step_at ? *d->step_at : d->step;
}

BODY philox_words dropout_words(const dropout_args *d, uint64_t block,
                                int64_t iteration) {
    return philox(d->seed, block, d->index, (uint32_t)iteration);
}

/* Returns word k without indexing, which would place the words in memory. */
BODY uint32_t word_of(const philox_words *words, uint64_t k) {
    uint32_t low = k & 1 ? words->word[1] : words->word[0];
    uint32_t high = k & 1 ? words->word[3] : words->word[2];
    return k & 2 ? high : low;
}

/* Number of threads. Plain order: one per group of four elements that share a block,
 * plus one since the batch may start inside a block. Otherwise one per element. */
BODY int64_t dropout_items(const dropout_args *d) {
    return d->last ? d->count : d->count / 4 + 2;
}

BODY float dropout_kept(const dropout_args *d, uint32_t word, float value) {
    return word >= d->limit ? value * d->scale : 0;
}

BODY void dropout_plain_at(const dropout_args *d, dlc_dtype type, int64_t item) {
    const dlc_step step = dropout_step(d);
    uint64_t first = (uint64_t)step.sample * (uint64_t)d->features;
    uint64_t block = first / 4 + (uint64_t)item;
    int64_t at =
        (int64_t)(block * 4 -
                  first); /* of its first element; negative: before the batch */
    if (at >= d->count)
        return;
    const philox_words random = dropout_words(d, block, step.iteration);
    if (first % 4 == 0 && at + 4 <= d->count) {
        pack v = load(type, 4, d->from, at);
        for (int k = 0; k < 4; k++)
            v.v[k] = dropout_kept(d, random.word[k], v.v[k]);
        store(type, 4, d->to, at, v);
        return;
    }
    for (uint32_t k = 0; k < 4; k++)
        if (at + k >= 0 && at + k < d->count)
            store_one(
                type, d->to, at + k,
                dropout_kept(d, word_of(&random, k), load_one(type, d->from, at + k)));
}

/* Channels last: elements that are adjacent in memory belong to different blocks. */
BODY void dropout_last_at(const dropout_args *d, dlc_dtype type, int64_t item) {
    if (item >= d->count)
        return;
    const dlc_step step = dropout_step(d);
    int64_t sample = item / d->features, rest = item % d->features;
    int64_t place = rest / d->channels, channel = rest % d->channels;
    uint64_t e = (uint64_t)(step.sample + sample) * (uint64_t)d->features +
                 (uint64_t)(channel * d->spatial + place);
    const philox_words random = dropout_words(d, e / 4, step.iteration);
    uint32_t word = word_of(&random, e % 4);
    store_one(type, d->to, item, dropout_kept(d, word, load_one(type, d->from, item)));
}

BODY void dropout_at(const dropout_args *d, dlc_dtype type, int64_t item) {
    if (d->last)
        dropout_last_at(d, type, item);
    else
        dropout_plain_at(d, type, item);
}

#endif
