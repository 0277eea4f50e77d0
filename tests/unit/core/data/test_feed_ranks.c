/* Tests how feeds split samples among ranks: together the ranks always get the same
 * samples, however many they are. */
#include <string.h>

#include "numbered.h"
#include "support/test.h"

#define RANKS_MAX 5
#define CROPPED (2 * 2 * 2)

static dlc_feed_args transformed_args(struct dlc_source *source, int32_t batch) {
    dlc_feed_args args = numbered_args(source, batch);
    args.transforms = listed_for_good(
        "random_crop(2, padding=1), mirror, normalize(mean=(3, 4), scale=0.5)");
    return args;
}

/* Feeds of `ranks` that split a batch unevenly: rank r begins at batch * r / ranks,
 * shifted by one if there is room. */
static int open_ranks(const dlc_feed_args *whole, int ranks, struct dlc_source *sources,
                      dlc_feed **feeds) {
    int64_t begin = 0;
    int opened = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t end = whole->batch * (r + 1) / ranks;
        if (r + 1 < ranks && end + 1 < whole->batch && r % 2)
            end++;
        if (end == begin)
            continue; /* fewer samples than ranks */
        dlc_feed_args args = *whole;
        sources[r] = (struct dlc_source){.samples = whole->source->samples};
        args.source = &sources[r];
        args.offset = begin;
        args.count = (int32_t)(end - begin);
        feeds[opened++] = feeds_open(&args);
        begin = end;
    }
    return opened;
}

TEST_SETTINGS(.timeout = 30);

/* An iteration of a single rank equals those of all ranks concatenated: labels and
 * transformed values. _i chooses batch and samples. */
TEST_EACH(training, 15) {
    static const int32_t batches[] = {1, 5, 7, 12, 40};
    static const int64_t samples[] = {1, 17, 36};
    int32_t batch = batches[_i % 5];
    struct dlc_source source = {.samples = samples[_i / 5]};
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct dlc_source sources[RANKS_MAX];
        dlc_feed *feeds[RANKS_MAX];
        dlc_feed_args args = transformed_args(&source, batch);
        dlc_feed *alone = feeds_open(&args);
        int opened = open_ranks(&args, ranks, sources, feeds);
        for (int64_t iteration = 0; iteration < 20; iteration++) {
            dlc_batch all = feeds_next(alone);
            ck_assert_int_eq(all.iteration, iteration);
            ck_assert_int_eq(all.samples, batch);
            int32_t at = 0;
            for (int r = 0; r < opened; r++) {
                dlc_batch part = feeds_next(feeds[r]);
                size_t n = (size_t)part.samples;
                ck_assert_int_eq(part.iteration, iteration);
                ck_assert_mem_eq(part.labels, all.labels + at, n * sizeof(int32_t));
                ck_assert_mem_eq(part.data, (const float *)all.data + at * CROPPED,
                                 n * CROPPED * sizeof(float));
                at += part.samples;
            }
            ck_assert_int_eq(at, batch);
        }
        for (int r = 0; r < opened; r++)
            dlc_feed_close(feeds[r]);
        dlc_feed_close(alone);
    }
}

/* The sequence goes through all samples, epoch after epoch, across batches. */
TEST(epochs) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args args = numbered_args(&source, 5);
    dlc_feed *feed = feeds_open(&args);
    int64_t sequence[5 * 17];
    ck_assert_int_eq(dlc_feed_samples(feed), 17);
    for (int i = 0; i < 17; i++) {
        dlc_batch batch = feeds_next(feed);
        for (int k = 0; k < 5; k++)
            sequence[5 * i + k] = batch.labels[k];
    }
    for (int epoch = 0; epoch < 5; epoch++) {
        int seen[17] = {0};
        for (int i = 0; i < 17; i++)
            ck_assert_int_eq(seen[sequence[17 * epoch + i]]++, 0);
        if (epoch)
            ck_assert_int_ne(memcmp(sequence, sequence + (ptrdiff_t)17 * epoch,
                                    17 * sizeof *sequence),
                             0);
    }
    dlc_feed_close(feed);
}

/* Without shuffling and transforms samples come in order, with the values of the
 * source. */
TEST(plain_values) {
    struct dlc_source source = {.samples = 7};
    dlc_feed_args args = numbered_args(&source, 3);
    args.shuffle = 0;
    dlc_feed *feed = feeds_open(&args);
    dlc_shape shape = dlc_feed_shape(feed);
    ck_assert_int_eq(shape.rank, 3);
    ck_assert_int_eq(shape.dims[0], 2);
    ck_assert_int_eq(shape.dims[1], 3);
    ck_assert_int_eq(shape.dims[2], 4);
    for (int64_t position = 0; position < 21; position++) {
        static dlc_batch batch;
        if (position % 3 == 0)
            batch = feeds_next(feed);
        ck_assert_int_eq(batch.labels[position % 3], position % 7);
        const float *data = batch.data;
        for (int k = 0; k < NUMBERED_COUNT; k++)
            ck_assert_float_eq(data[position % 3 * NUMBERED_COUNT + k],
                               (float)((10 * (position % 7) + k) % 251));
    }
    dlc_feed_close(feed);
}

/* A test uses each sample exactly once over all ranks, and again in the next pass; the
 * padding of the last batch is marked. */
TEST_EACH(testing, 14) {
    int64_t samples = _i + 1;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        int seen[2][16] = {{0}};
        for (int rank = 0; rank < ranks; rank++) {
            struct dlc_source source = {.samples = samples};
            dlc_feed_args args = numbered_args(&source, 4);
            args.test = 1;
            args.rank = rank;
            args.ranks = ranks;
            dlc_feed *feed = feeds_open(&args);
            int64_t batches = dlc_feed_batches(feed);
            for (int64_t i = 0; i < 2 * batches; i++) {
                dlc_batch batch = feeds_next(feed);
                ck_assert_int_eq(batch.iteration, i % batches);
                ck_assert_int_ge(batch.samples, 1);
                if (i % batches < batches - 1)
                    ck_assert_int_eq(batch.samples, 4);
                const float *data = batch.data;
                for (int k = 0; k < 4; k++) {
                    int32_t label = batch.labels[k];
                    ck_assert_int_eq(label == DLC_LABEL_NONE, k >= batch.samples);
                    if (k < batch.samples)
                        seen[i / batches][label]++;
                    ck_assert_float_eq(data[k * NUMBERED_COUNT + 1],
                                       k < batch.samples ? (float)(10 * label + 1) : 1);
                }
            }
            dlc_feed_close(feed);
        }
        for (int64_t i = 0; i < 16; i++) {
            ck_assert_int_eq(seen[0][i], i < samples);
            ck_assert_int_eq(seen[1][i], i < samples);
        }
    }
}

/* Batches of 12 in two micro-batches of 6, of which a rank has the third and fourth
 * sample. */
TEST(micro_batches) {
    struct dlc_source source = {.samples = 100};
    dlc_feed_args args = numbered_args(&source, 4);
    args.shuffle = 0;
    args.batch = 12;
    args.offset = 2;
    args.run = 2;
    args.stride = 6;
    dlc_feed *feed = feeds_open(&args);
    for (int32_t iteration = 0; iteration < 3; iteration++) {
        const int32_t wanted[] = {2, 3, 8, 9};
        dlc_batch batch = feeds_next(feed);
        for (int32_t i = 0; i < 4; i++)
            ck_assert_int_eq(batch.labels[i], 12 * iteration + wanted[i]);
    }
    dlc_feed_close(feed);
}

/* Tests of 8 samples, 5 at a time, of which a rank has the last two. */
TEST(parts_of_test_batches) {
    const int32_t wanted[2][2] = {{3, 4}, {DLC_LABEL_NONE, DLC_LABEL_NONE}};
    struct dlc_source source = {.samples = 8};
    dlc_feed_args args = numbered_args(&source, 2);
    args.test = 1;
    args.offset = 3;
    args.stride = 5;
    dlc_feed *feed = feeds_open(&args);
    ck_assert_int_eq(dlc_feed_batches(feed), 2);
    for (int32_t i = 0; i < 4; i++) {
        dlc_batch batch = feeds_next(feed);
        ck_assert_int_eq(batch.iteration, i % 2);
        ck_assert_int_eq(batch.samples, i % 2 ? 0 : 2);
        ck_assert_mem_eq(batch.labels, wanted[i % 2], sizeof wanted[0]);
    }
    dlc_feed_close(feed);
}
