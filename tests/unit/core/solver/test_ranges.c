/* Tests which segments are joined in one range. */
#include "solver/ranges.h"

#include "support/test.h"

enum { COUNT = 48, MOST = 3 };

static const struct {
    double lr_mult[MOST]; /* of three segments of 10 elements, 16 apart */
    int32_t ranges;
    size_t begin[MOST], end[MOST];
} cases[] = {
    {{1, 1, 1}, 1, {0}, {42}},         {{1, 2, 1}, 3, {0, 16, 32}, {10, 26, 42}},
    {{1, 0, 1}, 2, {0, 32}, {10, 42}}, /* equal neighbours of one that is left out */
    {{0, 1, 1}, 1, {16}, {42}},        {{0, 0, 1}, 1, {32}, {42}},
    {{0, 0, 0}, 0, {0}, {0}},
};

TEST_EACH(equal_neighbours_are_joined, COUNT(cases)) {
    dlc_segment segment[MOST];
    dlc_param_ranges ranges = {0};
    for (size_t i = 0; i < MOST; i++)
        segment[i] = (dlc_segment){.name = "a",
                                   .offset = 16 * i,
                                   .count = 10,
                                   .lr_mult = cases[_i].lr_mult[i],
                                   .decay_mult = 1};
    const dlc_param_ranges_args args = {
        .segment = segment, .segments = MOST, .count = COUNT};
    ck_assert_int_eq(dlc_param_ranges_make(&args, &ranges), DLC_OK);
    ck_assert_int_eq(ranges.buckets, 1);
    ck_assert_uint_eq(ranges.first[1], (size_t)cases[_i].ranges);
    for (size_t i = 0; i < ranges.first[1]; i++) {
        ck_assert_uint_eq(ranges.at[i].begin, cases[_i].begin[i]);
        ck_assert_uint_eq(ranges.at[i].begin + ranges.at[i].count, cases[_i].end[i]);
    }
    dlc_param_ranges_free(&ranges);
}
