/* Tests when iterations count as slow, and what is said about it; without a clock. */
#include <string.h>

#include "support/test.h"
#include "train/slowdown.h"

static dlc_text said;

static dlc_slowdown_news note(dlc_slowdown *slowdown, double seconds, double computed,
                              double data) {
    const dlc_iteration_time time = {seconds, computed, data};
    dlc_text_free(&said);
    return dlc_slowdown_note(slowdown, &time, "tcp", &said);
}

/* So many iterations without any news. */
static void quiet(dlc_slowdown *slowdown, int32_t count, double seconds,
                  double computed, double data) {
    for (int32_t i = 0; i < count; i++)
        ck_assert_int_eq(note(slowdown, seconds, computed, data), DLC_SLOWDOWN_NONE);
}

static dlc_slowdown usual(void) {
    dlc_slowdown slowdown = {.is_slow = 0};
    quiet(&slowdown, 3, 2, 1.9, 0); /* the first ones take longer */
    quiet(&slowdown, 30, 0.05, 0.04, 0);
    return slowdown;
}

static void says(const char *words) {
    ck_assert_msg(strstr(dlc_text_string(&said), words) != NULL, "%s",
                  dlc_text_string(&said));
}

static void free_said(void) {
    dlc_text_free(&said);
}

TEST_SETTINGS(.teardown_once = free_said);

TEST(a_slow_link) {
    dlc_slowdown slowdown = usual();
    quiet(&slowdown, 1, 20, 0.04, 0); /* a pause */
    quiet(&slowdown, 5, 0.05, 0.04, 0);
    quiet(&slowdown, 1, 20, 0.04, 0);
    ck_assert_int_eq(note(&slowdown, 20, 0.04, 0), DLC_SLOWDOWN_BEGINS);
    says("iterations take 20 s, 400 times as long as before (0.05 s)");
    says("20 s of that the ranks wait for the exchange over transport tcp");
    quiet(&slowdown, 50, 20, 0.04, 0); /* once is enough */
    quiet(&slowdown, 2, 0.05, 0.04, 0);
    quiet(&slowdown, 1, 1, 0.04, 0);
    quiet(&slowdown, 2, 0.05, 0.04, 0);
    ck_assert_int_eq(note(&slowdown, 0.05, 0.04, 0), DLC_SLOWDOWN_ENDS);
    says("as fast as before again: 0.05 s");
    quiet(&slowdown, 1, 10, 0.04, 0);
    ck_assert_int_eq(note(&slowdown, 10, 0.04, 0), DLC_SLOWDOWN_BEGINS);
    says("200 times");
}

/* Twice as slow for long is not; five times is, once it has cost 5 s. */
TEST(what_is_slow) {
    dlc_slowdown slowdown = usual();
    quiet(&slowdown, 1000, 0.12, 0.04, 0);
    quiet(&slowdown, 24, 0.255, 0.04, 0);
    quiet(&slowdown, 5, 0.05, 0.04, 0);
    quiet(&slowdown, 24, 0.255, 0.04, 0);
    ck_assert_int_eq(note(&slowdown, 0.255, 0.04, 0), DLC_SLOWDOWN_BEGINS);
}

TEST(slower_step_by_step) {
    dlc_slowdown slowdown = usual();
    dlc_slowdown_news news = DLC_SLOWDOWN_NONE;
    for (double seconds = 0.05; news == DLC_SLOWDOWN_NONE && seconds < 5;
         seconds *= 1.02)
        news = note(&slowdown, seconds, 0.04, 0);
    ck_assert_int_eq(news, DLC_SLOWDOWN_BEGINS);
}

TEST(causes) {
    static const struct {
        dlc_iteration_time time;
        const char *words;
    } cases[] = {
        {{10, 9.9, 0}, "computing takes 9.9 s on the slowest rank (0.04 s before)"},
        {{10, 0.04, 9.9}, "9.9 s of that a rank waits for samples"},
        {{10, 0, 0}, "either the exchange over transport tcp or the device"},
        {{10, 1, 1}, "8 s of that the ranks wait for the exchange over transport tcp"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dlc_slowdown slowdown = usual();
        (void)note(&slowdown, cases[i].time.seconds, cases[i].time.computed,
                   cases[i].time.data);
        ck_assert_int_eq(note(&slowdown, cases[i].time.seconds, cases[i].time.computed,
                              cases[i].time.data),
                         DLC_SLOWDOWN_BEGINS);
        says(cases[i].words);
    }
}

/* One rank that computes slowly stands out among many. */
TEST(the_slowest_rank) {
    float even = 0, one = 0;
    for (int i = 0; i < 64; i++) {
        even += dlc_slowdown_power(0.2);
        one += dlc_slowdown_power(i ? 0.2 : 20);
    }
    ck_assert(dlc_slowdown_root(even) > 0.2 && dlc_slowdown_root(even) < 0.35);
    ck_assert(dlc_slowdown_root(one) > 19.9 && dlc_slowdown_root(one) < 20.1);
    ck_assert(dlc_slowdown_root(dlc_slowdown_power(1e9)) < 1.1e4);
    ck_assert(dlc_slowdown_root(dlc_slowdown_power(-1)) == 0);
}
