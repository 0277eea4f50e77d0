/* How a batch is shared out: what [parallel] batch_split may say, and what comes of it. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "train/shares/shares.h"

enum { MOST_RANKS = 8 };

typedef struct deal_case {
    const char *text;
    int64_t batch;
    int32_t ranks, servers;
    int64_t count[MOST_RANKS];
} deal_case;

static const deal_case deals[] = {
    {"equal", 100, 1, 0, {100}},
    {"equal", 100, 3, 0, {34, 33, 33}},
    {"equal", 8, 5, 0, {2, 2, 2, 1, 1}},
    {"equal", 96, 4, 1, {32, 32, 32, 0}},
    {"auto", 7, 2, 0, {4, 3}},
    {"1,1,1", 100, 3, 0, {34, 33, 33}},
    {"1,1,0.5", 100, 3, 0, {40, 40, 20}},
    {" 1 , .5,1e0", 100, 3, 0, {40, 20, 40}},
    /* 10.2, 40.8, 51: the largest remainder gets what is left. */
    {"1,4,5", 102, 3, 0, {10, 41, 51}},
    {"0.1,0.2,0.7", 10, 3, 0, {1, 2, 7}},
    /* Who has a proportion gets a sample, who has none doesn't. */
    {"1000,1,0", 10, 3, 0, {9, 1, 0}},
    {"0,1,0", 10, 3, 0, {0, 10, 0}},
    {"1000,1,1", 3, 3, 0, {1, 1, 1}},
    /* It is the first of those who have most that gives. */
    {"1000,1000,1", 4, 3, 0, {1, 2, 1}},
    {"1,3,7", 8, 3, 1, {2, 6, 0}},
    {NULL, 100, 3, 0, {34, 33, 33}},
    {"1000000,0.000001", 1048576, 2, 0, {1048575, 1}},
};

START_TEST(deals_in_proportion) {
    const deal_case *c = &deals[_i];
    dlc_shares shares = {0};
    ck_assert_int_eq(dlc_shares_parse(c->text, &shares), DLC_OK);
    ck_assert_int_eq(dlc_shares_deal(&shares, c->batch, c->ranks, c->servers), DLC_OK);
    int64_t end = 0;
    for (int32_t r = 0; r < c->ranks; r++) {
        int64_t offset, count;
        dlc_shares_of(&shares, r, &offset, &count);
        ck_assert_msg(count == c->count[r], "%s: rank %d has %lld",
                      c->text ? c->text : "-", (int)r, (long long)count);
        ck_assert_int_eq(offset, end);
        end = offset + count;
    }
    ck_assert_int_eq(end, c->batch);
    dlc_shares_free(&shares);
}
END_TEST

/* What is printed can be given again, and comes out the same. */
START_TEST(prints_what_repeats_it) {
    const deal_case *c = &deals[_i];
    dlc_shares shares = {0}, again = {0};
    dlc_text text = {0};
    ck_assert_int_eq(dlc_shares_parse(c->text, &shares), DLC_OK);
    ck_assert_int_eq(dlc_shares_deal(&shares, c->batch, c->ranks, c->servers), DLC_OK);
    dlc_shares_print(&shares, &text);
    ck_assert_int_eq(dlc_shares_parse(dlc_text_string(&text), &again), DLC_OK);
    ck_assert_int_eq(dlc_shares_deal(&again, c->batch, c->ranks, c->servers), DLC_OK);
    ck_assert_mem_eq(again.count, shares.count, (size_t)c->ranks * sizeof *again.count);
    dlc_text_free(&text);
    dlc_shares_free(&shares);
    dlc_shares_free(&again);
}
END_TEST

typedef struct bad_text {
    const char *text, *says;
} bad_text;

static const bad_text bad_texts[] = {
    {"", "number 1 of"},        {"1,", "number 2 of"},
    {",1", "number 1 of"},      {"1,,1", "number 2 of"},
    {"1 1", "number 1 of"},     {"1;1", "number 1 of"},
    {"-1,1", "number 1 of"},    {"+1,-1", "number 2 of"},
    {"1,x", "number 2 of"},     {"1,2x", "number 2 of"},
    {"0x10,1", "number 1 of"},  {"nan,1", "number 1 of"},
    {"1,inf", "number 2 of"},   {"1,1e300", "number 2 of"},
    {"Even", "even, auto, or"}, {"0,0", "nobody has any samples"},
};

START_TEST(refuses_texts) {
    dlc_shares shares = {0};
    ck_assert_int_eq(dlc_shares_parse(bad_texts[_i].text, &shares), DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), bad_texts[_i].says) != NULL, "'%s': %s",
                  bad_texts[_i].text, dlc_detail());
    ck_assert_ptr_null(shares.proportion);
}
END_TEST

typedef struct bad_deal {
    const char *text;
    int64_t batch;
    int32_t ranks, servers;
    const char *says;
} bad_deal;

static const bad_deal bad_deals[] = {
    {"1,1", 10, 3, 0, "has 2 proportions, and there are 3 ranks; give one a rank"},
    {"1", 10, 2, 0, "has 1 proportion, and there are 2 ranks"},
    {"1,1", 10, 1, 0, "has 2 proportions, and there is 1 rank;"},
    {"equal", 2, 3, 0, "a batch of 2 cannot be shared out among 3 ranks"},
    {"1,1,0,1", 2, 4, 0, "a batch of 2 cannot be shared out among 3 ranks"},
    {"0,1", 10, 2, 1, "of 2 ranks 1 are servers"},
};

START_TEST(refuses_deals) {
    const bad_deal *c = &bad_deals[_i];
    dlc_shares shares = {0};
    ck_assert_int_eq(dlc_shares_parse(c->text, &shares), DLC_OK);
    ck_assert_int_eq(dlc_shares_deal(&shares, c->batch, c->ranks, c->servers),
                     DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), c->says) != NULL, "%s", dlc_detail());
    ck_assert_ptr_null(shares.count);
    dlc_shares_free(&shares);
}
END_TEST

/* The least time that there is, by trying all ways to share out among three. */
static double least_of_three(const dlc_shares *shares, const dlc_rank_pace *pace) {
    double least = 1e300;
    for (int64_t a = 1; a < shares->batch - 1; a++)
        for (int64_t b = 1; a + b < shares->batch; b++) {
            const int64_t count[3] = {a, b, shares->batch - a - b};
            double seconds = dlc_shares_seconds(shares, pace, count);
            least = seconds < least ? seconds : least;
        }
    return least;
}

/* Of three ranks; seconds of an iteration that are fixed come second. */
static const dlc_rank_pace paces[][3] = {
    {{1, 0}, {1, 0}, {1, 0}},       {{2, 0}, {2, 0}, {1, 0}},
    {{1, 0}, {2, 0}, {4, 0}},       {{1, 0}, {1, 0}, {0.9, 0}},
    {{100, 0}, {1, 0}, {1, 0}},     {{1, 0}, {1, 0}, {0.01, 0}},
    {{3, 0}, {5, 0}, {7, 0}},       {{10, 0}, {9.9, 0}, {0.3, 0}},
    {{2, 1}, {2, 1}, {1, 2}},       {{1, 0}, {1, 5}, {1, 50}},
    {{1, 1000}, {1, 0}, {1, 1000}}, {{7, 3}, {0.5, 0.1}, {3, 3}},
};

START_TEST(balances) {
    static const int64_t batches[] = {3, 4, 7, 24, 64, 100, 192};
    const dlc_rank_pace *pace = paces[_i];
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        dlc_shares shares = {0};
        int64_t count[4], sum = 0;
        ck_assert_int_eq(dlc_shares_deal(&shares, batches[b], 4, 1), DLC_OK);
        dlc_shares_balance(&shares, pace, count);
        for (int r = 0; r < 3; r++) {
            ck_assert_int_ge(count[r], 1);
            sum += count[r];
        }
        ck_assert_int_eq(sum, batches[b]);
        ck_assert_int_eq(count[3], 0);
        double least = least_of_three(&shares, pace);
        ck_assert_double_le(dlc_shares_seconds(&shares, pace, count), 1.1001 * least);
        dlc_shares_free(&shares);
    }
}
END_TEST

/* Round numbers where they cost little. */
START_TEST(likes_round_numbers) {
    dlc_shares shares = {0};
    int64_t count[3];
    ck_assert_int_eq(dlc_shares_deal(&shares, 192, 3, 0), DLC_OK);
    dlc_shares_balance(&shares, (const dlc_rank_pace[]){{2, 0}, {1.99, 0}, {1, 0}},
                       count);
    ck_assert_int_eq(count[0], 80);
    ck_assert_int_eq(count[1], 80);
    ck_assert_int_eq(count[2], 32);
    ck_assert(dlc_shares_are_even(&shares));
    dlc_shares_take(&shares, count, 0);
    ck_assert(!dlc_shares_are_even(&shares));
    ck_assert_int_eq(shares.count[2], 32);
    dlc_shares_free(&shares);
}
END_TEST

/* Of equally fast ranks the first gets what is left; and the sample that everybody has
 * is part of a first piece, not one beside it. */
static const struct exact_case {
    int64_t batch;
    dlc_rank_pace pace[3];
    int64_t count[3];
} exact[] = {
    {4, {{1, 0}, {1, 0}, {1, 0}}, {2, 1, 1}},
    {5, {{1, 0}, {1, 0}, {1, 0}}, {2, 2, 1}},
    {100, {{1, 0}, {1, 0}, {1, 0}}, {36, 32, 32}},
    {8, {{3, 0}, {4, 0}, {8, 0}}, {2, 2, 4}},
    {8, {{5, 0}, {3, 0}, {2, 0}}, {4, 3, 1}},
    {16, {{8, 0}, {3, 0}, {3, 0}}, {8, 4, 4}},
};

START_TEST(balances_exactly) {
    const struct exact_case *c = &exact[_i];
    dlc_shares shares = {0};
    int64_t count[3];
    ck_assert_int_eq(dlc_shares_deal(&shares, c->batch, 3, 0), DLC_OK);
    dlc_shares_balance(&shares, c->pace, count);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(count[r] == c->count[r], "of %lld rank %d has %lld, not %lld",
                      (long long)c->batch, r, (long long)count[r],
                      (long long)c->count[r]);
    dlc_shares_free(&shares);
}
END_TEST

static void expect_shares(const dlc_shares *shares, int64_t a, int64_t b, int64_t c) {
    ck_assert_int_eq(shares->count[0], a);
    ck_assert_int_eq(shares->count[1], b);
    ck_assert_int_eq(shares->count[2], c);
}

/* What made iterations longer is taken back, and not tried again before they take much
 * longer still. */
START_TEST(proves_what_it_took) {
    dlc_shares shares = {0};
    ck_assert_int_eq(dlc_shares_deal(&shares, 192, 3, 0), DLC_OK);
    ck_assert(!dlc_shares_prove(&shares, 1));
    dlc_shares_take(&shares, (const int64_t[]){80, 80, 32}, 0);
    ck_assert(!dlc_shares_prove(&shares, 10)); /* nobody knows how it was */
    dlc_shares_take(&shares, (const int64_t[]){80, 72, 40}, 10);
    ck_assert(!dlc_shares_prove(&shares, 9));
    ck_assert(!dlc_shares_are_held(&shares, 9));
    ck_assert(!dlc_shares_prove(&shares, 99)); /* proved once and for all */
    expect_shares(&shares, 80, 72, 40);

    dlc_shares_take(&shares, (const int64_t[]){72, 72, 48}, 9);
    ck_assert(dlc_shares_prove(&shares, 12));
    expect_shares(&shares, 80, 72, 40);
    ck_assert(dlc_shares_are_held(&shares, 9));
    ck_assert(dlc_shares_are_held(&shares, 11));
    ck_assert(!dlc_shares_are_held(&shares, 12));
    ck_assert(!dlc_shares_prove(&shares, 12));
    ck_assert_int_eq(dlc_shares_deal(&shares, 192, 3, 0), DLC_OK);
    ck_assert(!dlc_shares_are_held(&shares, 9));
    dlc_shares_free(&shares);
}
END_TEST

/* The largest job there may be must not take long. */
START_TEST(balances_many) {
    enum { MANY = 1024 };
    static dlc_rank_pace pace[MANY];
    static int64_t count[MANY];
    dlc_shares shares = {0};
    int64_t sum = 0;
    for (int r = 0; r < MANY; r++)
        pace[r] = (dlc_rank_pace){1 + (double)(r % 7), (double)(r % 3)};
    ck_assert_int_eq(dlc_shares_deal(&shares, (int64_t)MANY << 20, MANY, 0), DLC_OK);
    dlc_shares_balance(&shares, pace, count);
    for (int r = 0; r < MANY; r++)
        sum += count[r];
    ck_assert_int_eq(sum, (int64_t)MANY << 20);
    dlc_shares_free(&shares);
}
END_TEST

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

int main(void) {
    Suite *suite = suite_create("shares");
    TCase *cases = tcase_create("shares");
    tcase_add_loop_test(cases, deals_in_proportion, 0, COUNT(deals));
    tcase_add_loop_test(cases, prints_what_repeats_it, 0, COUNT(deals));
    tcase_add_loop_test(cases, refuses_texts, 0, COUNT(bad_texts));
    tcase_add_loop_test(cases, refuses_deals, 0, COUNT(bad_deals));
    tcase_add_loop_test(cases, balances, 0, COUNT(paces));
    tcase_add_loop_test(cases, balances_exactly, 0, COUNT(exact));
    tcase_add_test(cases, likes_round_numbers);
    tcase_add_test(cases, proves_what_it_took);
    tcase_add_test(cases, balances_many);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
