/* Tests the placement of buffers (core/net/pass_memory.c): those in use at the same
 * time do not overlap, and little memory is wasted. */
#include "net/ir.h"

#include <stdlib.h>

#include "base/random.h"
#include "support/test.h"

static size_t end_of(const dlc_buffer *buffer) {
    return buffer->offset + buffer->bytes;
}

static void check_placed(const dlc_buffer *buffers, size_t count, size_t total) {
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_eq(buffers[i].offset % DLC_BUFFER_ALIGNMENT, 0);
        ck_assert_uint_le(end_of(&buffers[i]), total);
        for (size_t j = 0; j < i; j++) {
            int together = buffers[i].first <= buffers[j].last &&
                           buffers[j].first <= buffers[i].last;
            int apart = end_of(&buffers[i]) <= buffers[j].offset ||
                        end_of(&buffers[j]) <= buffers[i].offset;
            ck_assert_msg(!together || apart, "buffers %zu and %zu overlap", i, j);
        }
    }
}

/* What any plan needs at least: the most bytes in use at one step. */
static size_t lower_bound(const dlc_buffer *buffers, size_t count, int32_t steps) {
    size_t most = 0;
    for (int32_t step = 0; step < steps; step++) {
        size_t used = 0;
        for (size_t i = 0; i < count; i++)
            if (buffers[i].first <= step && step <= buffers[i].last)
                used += buffers[i].bytes;
        most = used > most ? used : most;
    }
    return most;
}

TEST_EACH(random_lifetimes, 50) {
    enum { COUNT = 60, STEPS = 40 };
    dlc_random random = dlc_random_make((uint64_t)_i, 0);
    dlc_buffer buffers[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        int32_t first = (int32_t)dlc_random_below(&random, STEPS);
        int32_t length = (int32_t)dlc_random_below(&random, 8);
        int32_t last = first + length < STEPS ? first + length : STEPS - 1;
        buffers[i] = (dlc_buffer){.bytes = 64 * (size_t)dlc_random_below(&random, 1000),
                                  .first = first,
                                  .last = last};
    }
    size_t total = 0;
    ck_assert_int_eq(dlc_buffers_place(buffers, COUNT, &total), DLC_OK);
    check_placed(buffers, COUNT, total);
    size_t least = lower_bound(buffers, COUNT, STEPS);
    ck_assert_uint_ge(total, least);
    ck_assert_msg(total <= least + least / 2, "%zu bytes, but %zu might suffice", total,
                  least);
}

/* A chain of layers without backward needs two buffers, however long it is. */
TEST(a_chain_needs_two_buffers) {
    dlc_buffer buffers[20];
    for (int32_t i = 0; i < 20; i++)
        buffers[i] = (dlc_buffer){.bytes = 4096, .first = i, .last = i + 1};
    size_t total = 0;
    ck_assert_int_eq(dlc_buffers_place(buffers, 20, &total), DLC_OK);
    ck_assert_uint_eq(total, 2 * 4096);
}

/* Large buffers are placed first, which wastes less; a gap of exactly the right size is
 * used. */
TEST(exact_placement) {
    enum { UNIT = DLC_BUFFER_ALIGNMENT };
    dlc_buffer rising[] = {{.bytes = 1 * UNIT, .first = 3, .last = 3},
                           {.bytes = 2 * UNIT, .first = 2, .last = 3},
                           {.bytes = 3 * UNIT, .first = 1, .last = 2},
                           {.bytes = 4 * UNIT, .first = 0, .last = 2}};
    dlc_buffer gap[] = {{.bytes = 1 * UNIT, .first = 0, .last = 1},
                        {.bytes = 2 * UNIT, .first = 0, .last = 3},
                        {.bytes = 3 * UNIT, .first = 1, .last = 1},
                        {.bytes = 4 * UNIT, .first = 2, .last = 2}};
    size_t total = 0;
    ck_assert_int_eq(dlc_buffers_place(rising, 4, &total), DLC_OK);
    ck_assert_uint_eq(total, 9 * UNIT);
    ck_assert_int_eq(dlc_buffers_place(gap, 4, &total), DLC_OK);
    ck_assert_uint_eq(total, 6 * UNIT);
}

TEST(no_buffers) {
    size_t total = 1;
    ck_assert_int_eq(dlc_buffers_place(NULL, 0, &total), DLC_OK);
    ck_assert_uint_eq(total, 0);
}
