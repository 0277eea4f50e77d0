/* Tests the endless sequence of samples (core/data/order.c). */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/order.h"
#include "support/test.h"

#define SAMPLES 37

static void epoch_of(dlc_order *order, int64_t epoch, int64_t *samples) {
    for (int64_t i = 0; i < SAMPLES; i++)
        samples[i] = dlc_order_at(order, epoch * SAMPLES + i);
}

TEST(every_epoch_has_every_sample) {
    dlc_order order;
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, 0, &order), DLC_OK);
    int64_t before[SAMPLES] = {0}, now[SAMPLES];
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        int seen[SAMPLES] = {0};
        epoch_of(&order, epoch, now);
        for (int i = 0; i < SAMPLES; i++) {
            ck_assert_int_ge(now[i], 0);
            ck_assert_int_lt(now[i], SAMPLES);
            ck_assert_int_eq(seen[now[i]]++, 0);
        }
        ck_assert_int_ne(memcmp(before, now, sizeof now), 0);
        memcpy(before, now, sizeof now);
    }
    dlc_order_close(&order);
}

/* Several at once are what single ones are, from anywhere to any later epoch. */
TEST_EACH(taken_at_once, 4) {
    dlc_order one, several;
    int64_t index[4 * SAMPLES], window = _i / 2 * 10;
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, _i % 2, window, &one), DLC_OK);
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, _i % 2, window, &several), DLC_OK);
    for (int64_t begin = 0; begin < SAMPLES; begin += 9) {
        dlc_order_take(&several, begin, 3 * SAMPLES, index);
        for (int64_t i = 0; i < 3 * SAMPLES; i++)
            ck_assert_int_eq(index[i], dlc_order_at(&one, begin + i));
    }
    dlc_order_close(&one);
    dlc_order_close(&several);
}

TEST(depends_on_seed_and_epoch_alone) {
    dlc_order a, b, c;
    int64_t one[SAMPLES], two[SAMPLES];
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, 0, &a), DLC_OK);
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, 0, &b), DLC_OK);
    ck_assert_int_eq(dlc_order_open(SAMPLES, 5, 1, 0, &c), DLC_OK);
    epoch_of(&a, 0, one);
    epoch_of(&a, 3, one);
    epoch_of(&b, 3, two);
    ck_assert_mem_eq(one, two, sizeof one);
    epoch_of(&c, 3, two);
    ck_assert_int_ne(memcmp(one, two, sizeof one), 0);
    epoch_of(&a, INT64_MAX / SAMPLES - 1, one); /* far away */
    dlc_order_close(&a);
    dlc_order_close(&b);
    dlc_order_close(&c);
}

/* Each sample is at each position about equally often. */
TEST(evenly_shuffled) {
    dlc_order order;
    int count[5][5] = {{0}};
    ck_assert_int_eq(dlc_order_open(5, 1, 1, 0, &order), DLC_OK);
    for (int64_t position = 0; position < 5 * 5000; position++)
        count[position % 5][dlc_order_at(&order, position)]++;
    for (int place = 0; place < 5; place++) {
        for (int sample = 0; sample < 5; sample++)
            ck_assert_int_lt(abs(count[place][sample] - 1000), 150);
    }
    dlc_order_close(&order);
}

/* Windows of any size have every sample once an epoch, and depend on nothing else. */
TEST(windows_have_every_sample) {
    for (int64_t window = 1; window <= SAMPLES + 1; window++) {
        dlc_order order, other;
        ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, window, &order), DLC_OK);
        ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, window, &other), DLC_OK);
        for (int64_t epoch = 0; epoch < 5; epoch++) {
            int64_t now[SAMPLES], seen = 0;
            epoch_of(&order, epoch, now);
            for (int i = 0; i < SAMPLES; i++)
                seen |= INT64_C(1) << now[i];
            ck_assert_int_eq(seen, (INT64_C(1) << SAMPLES) - 1);
        }
        for (int64_t position = 5 * SAMPLES; position-- > 0;)
            ck_assert_int_eq(dlc_order_at(&other, position),
                             dlc_order_at(&order, position));
        dlc_order_close(&order);
        dlc_order_close(&other);
    }
}

/* A window reads from few places: blocks of a sixteenth of it. */
TEST(windows_read_blocks) {
    enum { COUNT = 100000, WINDOW = 1600, BLOCK = WINDOW / DLC_ORDER_BLOCKS };
    dlc_order order;
    ck_assert_int_eq(dlc_order_open(COUNT, 4, 1, WINDOW, &order), DLC_OK);
    ck_assert_uint_eq(dlc_order_bytes(COUNT, 1, WINDOW), WINDOW * sizeof(uint32_t));
    char *seen = calloc(COUNT, 1);
    ck_assert_ptr_nonnull(seen);
    for (int64_t i = 0; i < WINDOW; i++)
        seen[dlc_order_at(&order, i)] = 1;
    int places = 0, whole = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        int begins = seen[i] && !seen[(i + COUNT - 1) % COUNT];
        places += begins;
        whole += begins && seen[(i + BLOCK - 1) % COUNT];
    }
    ck_assert_int_ge(places, DLC_ORDER_BLOCKS / 2);
    ck_assert_int_le(places, DLC_ORDER_BLOCKS);
    ck_assert_int_eq(whole, places);
    free(seen);
    dlc_order_close(&order);
}

/* Each sample is at each position about equally often. */
TEST(windows_evenly_shuffled) {
    dlc_order order;
    int count[5][5] = {{0}};
    ck_assert_int_eq(dlc_order_open(5, 1, 1, 2, &order), DLC_OK);
    for (int64_t position = 0; position < 5 * 5000; position++)
        count[position % 5][dlc_order_at(&order, position)]++;
    for (int place = 0; place < 5; place++) {
        for (int sample = 0; sample < 5; sample++)
            ck_assert_int_lt(abs(count[place][sample] - 1000), 150);
    }
    dlc_order_close(&order);
}

/* More samples than fit in memory are permuted without any. */
TEST(huge) {
    const int64_t samples = INT64_C(1) << 40;
    dlc_order order, windows;
    ck_assert_int_eq(dlc_order_open(samples, 4, 1, 0, &order), DLC_OK);
    ck_assert_int_eq(dlc_order_open(samples, 4, 1, 1000, &windows), DLC_OK);
    ck_assert_ptr_null(order.map);
    ck_assert_uint_eq(dlc_order_bytes(samples, 1, 0), 0);
    int64_t upper = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t at = dlc_order_at(&order, samples + i);
        ck_assert_int_ge(at, 0);
        ck_assert_int_lt(at, samples);
        upper += at >= samples / 2;
        at = dlc_order_at(&windows, 3 * samples - 1 - i);
        ck_assert_int_ge(at, 0);
        ck_assert_int_lt(at, samples);
    }
    ck_assert_int_gt(upper, 400);
    ck_assert_int_lt(upper, 600);
    dlc_order_close(&order);
    dlc_order_close(&windows);
}

/* Permutations of every small number, each even and each of its own. */
TEST(permutations) {
    enum { MOST = 40, TIMES = 3000 };
    for (int64_t count = 1; count <= MOST; count++) {
        int64_t seen = 0;
        for (int64_t i = 0; i < count; i++)
            seen |= INT64_C(1) << dlc_permutation_at(3, 7, count, i);
        ck_assert_int_eq(seen, (INT64_C(1) << count) - 1);
    }
    int places[3][3] = {{0}};
    for (uint64_t stream = 0; stream < TIMES; stream++)
        for (int i = 0; i < 3; i++)
            places[i][dlc_permutation_at(3, stream, 3, i)]++;
    for (int i = 0; i < 9; i++)
        ck_assert_int_lt(abs(places[i / 3][i % 3] - TIMES / 3), 150);
}

TEST(not_shuffled) {
    dlc_order order;
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 0, 0, &order), DLC_OK);
    for (int64_t position = 0; position < 3 * SAMPLES; position++)
        ck_assert_int_eq(dlc_order_at(&order, position), position % SAMPLES);
    dlc_order_close(&order);
}

TEST(one_sample) {
    dlc_order order;
    ck_assert_int_eq(dlc_order_open(1, 4, 1, 0, &order), DLC_OK);
    ck_assert_int_eq(dlc_order_at(&order, 0), 0);
    ck_assert_int_eq(dlc_order_at(&order, 100), 0);
    dlc_order_close(&order);
}

TEST(no_memory) {
    dlc_order order = {0};
    dlc_memory_fail_at(1);
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, 0, &order), DLC_ERR_NOMEM);
    dlc_memory_fail_at(0);
    dlc_order_close(&order);
}
