/* [parallel] batch_split: what it accepts, and how it splits a batch over the ranks. */
#include <string.h>

#include "setup/batch_split.h"
#include "support/test.h"

enum { MOST_RANKS = 8 };

typedef struct split_case {
    const char *text;
    int64_t batch;
    int32_t ranks, servers;
    int64_t count[MOST_RANKS];
} split_case;

static const split_case splits[] = {
    {"equal", 100, 1, 0, {100}},
    {"equal", 100, 3, 0, {34, 33, 33}},
    {"equal", 8, 5, 0, {2, 2, 2, 1, 1}},
    {"equal", 96, 4, 1, {32, 32, 32, 0}},
    {"auto", 7, 2, 0, {4, 3}},
    {"1,1,1", 100, 3, 0, {34, 33, 33}},
    {"1,1,0.5", 100, 3, 0, {40, 40, 20}},
    {" 1 , .5,1e0", 100, 3, 0, {40, 20, 40}},
    /* 10.2, 40.8, 51: the largest remainder gets the sample that is left. */
    {"1,4,5", 102, 3, 0, {10, 41, 51}},
    {"0.1,0.2,0.7", 10, 3, 0, {1, 2, 7}},
    /* A rank with a proportion above 0 gets a sample, one with 0 does not. */
    {"1000,1,0", 10, 3, 0, {9, 1, 0}},
    {"0,1,0", 10, 3, 0, {0, 10, 0}},
    {"1000,1,1", 3, 3, 0, {1, 1, 1}},
    /* The first of the ranks with most samples gives one away. */
    {"1000,1000,1", 4, 3, 0, {1, 2, 1}},
    {"1,3,7", 8, 3, 1, {2, 6, 0}},
    {NULL, 100, 3, 0, {34, 33, 33}},
    {"1000000,0.000001", 1048576, 2, 0, {1048575, 1}},
};

TEST_EACH(splits_in_proportion, COUNT(splits)) {
    const split_case *c = &splits[_i];
    dlc_batch_split split = {0};
    ck_assert_int_eq(dlc_batch_split_parse(c->text, &split), DLC_OK);
    ck_assert_int_eq(dlc_batch_split_assign(&split, c->batch, c->ranks, c->servers),
                     DLC_OK);
    int64_t end = 0;
    for (int32_t r = 0; r < c->ranks; r++) {
        int64_t offset, count;
        dlc_batch_split_range(&split, r, &offset, &count);
        ck_assert_msg(count == c->count[r], "%s: rank %d has %lld",
                      c->text ? c->text : "-", (int)r, (long long)count);
        ck_assert_int_eq(offset, end);
        end = offset + count;
    }
    ck_assert_int_eq(end, c->batch);
    dlc_batch_split_free(&split);
}

/* The printed list, parsed again, gives the same split. */
TEST_EACH(prints_what_repeats_it, COUNT(splits)) {
    const split_case *c = &splits[_i];
    dlc_batch_split split = {0}, again = {0};
    dlc_text text = {0};
    ck_assert_int_eq(dlc_batch_split_parse(c->text, &split), DLC_OK);
    ck_assert_int_eq(dlc_batch_split_assign(&split, c->batch, c->ranks, c->servers),
                     DLC_OK);
    dlc_batch_split_print(&split, &text);
    ck_assert_int_eq(dlc_batch_split_parse(dlc_text_string(&text), &again), DLC_OK);
    ck_assert_int_eq(dlc_batch_split_assign(&again, c->batch, c->ranks, c->servers),
                     DLC_OK);
    ck_assert_mem_eq(again.count, split.count, (size_t)c->ranks * sizeof *again.count);
    dlc_text_free(&text);
    dlc_batch_split_free(&split);
    dlc_batch_split_free(&again);
}

typedef struct bad_text {
    const char *text, *says;
} bad_text;

static const bad_text bad_texts[] = {
    {"", "value 1 of"},          {"1,", "value 2 of"},
    {",1", "value 1 of"},        {"1,,1", "value 2 of"},
    {"1 1", "value 1 of"},       {"1;1", "value 1 of"},
    {"-1,1", "value 1 of"},      {"+1,-1", "value 2 of"},
    {"1,x", "value 2 of"},       {"1,2x", "value 2 of"},
    {"0x10,1", "value 1 of"},    {"nan,1", "value 1 of"},
    {"1,inf", "value 2 of"},     {"1,1e300", "value 2 of"},
    {"Even", "equal, auto, or"}, {"0,0", "no rank has any samples"},
};

TEST_EACH(refuses_texts, COUNT(bad_texts)) {
    dlc_batch_split split = {0};
    ck_assert_int_eq(dlc_batch_split_parse(bad_texts[_i].text, &split), DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), bad_texts[_i].says) != NULL, "'%s': %s",
                  bad_texts[_i].text, dlc_detail());
    ck_assert_ptr_null(split.proportion);
}

typedef struct bad_split {
    const char *text;
    int64_t batch;
    int32_t ranks, servers;
    const char *says;
} bad_split;

static const bad_split bad_splits[] = {
    {"1,1", 10, 3, 0,
     "has 2 proportions, but there are 3 ranks; give one for each rank"},
    {"1", 10, 2, 0, "has 1 proportion, but there are 2 ranks"},
    {"1,1", 10, 1, 0, "has 2 proportions, but there is 1 rank;"},
    {"equal", 2, 3, 0, "a batch of 2 cannot be split among 3 ranks"},
    {"1,1,0,1", 2, 4, 0, "a batch of 2 cannot be split among 3 ranks"},
    {"0,1", 10, 2, 1, "of 2 ranks 1 are servers"},
};

TEST_EACH(refuses_splits, COUNT(bad_splits)) {
    const bad_split *c = &bad_splits[_i];
    dlc_batch_split split = {0};
    ck_assert_int_eq(dlc_batch_split_parse(c->text, &split), DLC_OK);
    ck_assert_int_eq(dlc_batch_split_assign(&split, c->batch, c->ranks, c->servers),
                     DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), c->says) != NULL, "%s", dlc_detail());
    ck_assert_ptr_null(split.count);
    dlc_batch_split_free(&split);
}

/* The shortest time of all splits over three ranks, by trying them all. */
static double least_of_three(const dlc_batch_split *split,
                             const dlc_rank_throughput *throughput) {
    double least = 1e300;
    for (int64_t a = 1; a < split->batch - 1; a++)
        for (int64_t b = 1; a + b < split->batch; b++) {
            const int64_t count[3] = {a, b, split->batch - a - b};
            double seconds = dlc_batch_split_seconds(split, throughput, count);
            least = seconds < least ? seconds : least;
        }
    return least;
}

/* Samples per second and fixed seconds of an iteration, of three ranks. */
static const dlc_rank_throughput throughputs[][3] = {
    {{1, 0}, {1, 0}, {1, 0}},       {{2, 0}, {2, 0}, {1, 0}},
    {{1, 0}, {2, 0}, {4, 0}},       {{1, 0}, {1, 0}, {0.9, 0}},
    {{100, 0}, {1, 0}, {1, 0}},     {{1, 0}, {1, 0}, {0.01, 0}},
    {{3, 0}, {5, 0}, {7, 0}},       {{10, 0}, {9.9, 0}, {0.3, 0}},
    {{2, 1}, {2, 1}, {1, 2}},       {{1, 0}, {1, 5}, {1, 50}},
    {{1, 1000}, {1, 0}, {1, 1000}}, {{7, 3}, {0.5, 0.1}, {3, 3}},
};

TEST_EACH(balances, COUNT(throughputs)) {
    static const int64_t batches[] = {3, 4, 7, 24, 64, 100, 192};
    const dlc_rank_throughput *throughput = throughputs[_i];
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        dlc_batch_split split = {0};
        int64_t count[4], sum = 0;
        ck_assert_int_eq(dlc_batch_split_assign(&split, batches[b], 4, 1), DLC_OK);
        dlc_batch_split_balance(&split, throughput, count);
        for (int r = 0; r < 3; r++) {
            ck_assert_int_ge(count[r], 1);
            sum += count[r];
        }
        ck_assert_int_eq(sum, batches[b]);
        ck_assert_int_eq(count[3], 0);
        double least = least_of_three(&split, throughput);
        ck_assert_double_le(dlc_batch_split_seconds(&split, throughput, count),
                            1.1001 * least);
        dlc_batch_split_free(&split);
    }
}

/* Round numbers are preferred where they cost little. */
TEST(prefers_round_numbers) {
    dlc_batch_split split = {0};
    int64_t count[3];
    ck_assert_int_eq(dlc_batch_split_assign(&split, 192, 3, 0), DLC_OK);
    dlc_batch_split_balance(
        &split, (const dlc_rank_throughput[]){{2, 0}, {1.99, 0}, {1, 0}}, count);
    ck_assert_int_eq(count[0], 80);
    ck_assert_int_eq(count[1], 80);
    ck_assert_int_eq(count[2], 32);
    ck_assert(dlc_batch_split_is_equal(&split));
    dlc_batch_split_set(&split, count, 0);
    ck_assert(!dlc_batch_split_is_equal(&split));
    ck_assert_int_eq(split.count[2], 32);
    dlc_batch_split_free(&split);
}

/* Of equally fast ranks the first gets what is left; and the one sample that every rank
 * has is part of its first chunk. */
static const struct exact_case {
    int64_t batch;
    dlc_rank_throughput throughput[3];
    int64_t count[3];
} exact[] = {
    {4, {{1, 0}, {1, 0}, {1, 0}}, {2, 1, 1}},
    {5, {{1, 0}, {1, 0}, {1, 0}}, {2, 2, 1}},
    {100, {{1, 0}, {1, 0}, {1, 0}}, {36, 32, 32}},
    {8, {{3, 0}, {4, 0}, {8, 0}}, {2, 2, 4}},
    {8, {{5, 0}, {3, 0}, {2, 0}}, {4, 3, 1}},
    {16, {{8, 0}, {3, 0}, {3, 0}}, {8, 4, 4}},
};

TEST_EACH(balances_exactly, COUNT(exact)) {
    const struct exact_case *c = &exact[_i];
    dlc_batch_split split = {0};
    int64_t count[3];
    ck_assert_int_eq(dlc_batch_split_assign(&split, c->batch, 3, 0), DLC_OK);
    dlc_batch_split_balance(&split, c->throughput, count);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(count[r] == c->count[r], "of %lld rank %d has %lld, not %lld",
                      (long long)c->batch, r, (long long)count[r],
                      (long long)c->count[r]);
    dlc_batch_split_free(&split);
}

static void expect_split(const dlc_batch_split *split, int64_t a, int64_t b,
                         int64_t c) {
    ck_assert_int_eq(split->count[0], a);
    ck_assert_int_eq(split->count[1], b);
    ck_assert_int_eq(split->count[2], c);
}

/* A split that made iterations longer is reverted, and not tried again until they take
 * much longer still. */
TEST(verifies_a_new_split) {
    dlc_batch_split split = {0};
    ck_assert_int_eq(dlc_batch_split_assign(&split, 192, 3, 0), DLC_OK);
    ck_assert(!dlc_batch_split_verify(&split, 1));
    dlc_batch_split_set(&split, (const int64_t[]){80, 80, 32}, 0);
    ck_assert(!dlc_batch_split_verify(&split, 10)); /* the time before is unknown */
    dlc_batch_split_set(&split, (const int64_t[]){80, 80, 32}, 10);
    ck_assert(!dlc_batch_split_verify(&split, 10.9)); /* noise */
    dlc_batch_split_set(&split, (const int64_t[]){80, 72, 40}, 10);
    ck_assert(!dlc_batch_split_verify(&split, 9));
    ck_assert(!dlc_batch_split_is_kept(&split, 9));
    ck_assert(!dlc_batch_split_verify(&split, 99)); /* it is verified only once */
    expect_split(&split, 80, 72, 40);

    dlc_batch_split_set(&split, (const int64_t[]){72, 72, 48}, 9);
    ck_assert(dlc_batch_split_verify(&split, 12));
    expect_split(&split, 80, 72, 40);
    ck_assert(dlc_batch_split_is_kept(&split, 9));
    ck_assert(dlc_batch_split_is_kept(&split, 11));
    ck_assert(!dlc_batch_split_is_kept(&split, 12));
    ck_assert(!dlc_batch_split_verify(&split, 12));
    ck_assert_int_eq(dlc_batch_split_assign(&split, 192, 3, 0), DLC_OK);
    ck_assert(!dlc_batch_split_is_kept(&split, 9));
    dlc_batch_split_free(&split);
}

/* Balancing the largest possible job must not take long. */
TEST(balances_many) {
    enum { MANY = 1024 };
    static dlc_rank_throughput throughput[MANY];
    static int64_t count[MANY];
    dlc_batch_split split = {0};
    int64_t sum = 0;
    for (int r = 0; r < MANY; r++)
        throughput[r] = (dlc_rank_throughput){1 + (double)(r % 7), (double)(r % 3)};
    ck_assert_int_eq(dlc_batch_split_assign(&split, (int64_t)MANY << 20, MANY, 0),
                     DLC_OK);
    dlc_batch_split_balance(&split, throughput, count);
    for (int r = 0; r < MANY; r++)
        sum += count[r];
    ck_assert_int_eq(sum, (int64_t)MANY << 20);
    dlc_batch_split_free(&split);
}
