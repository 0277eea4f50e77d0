/* Tests the endless sequence of samples (core/data/order.c). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/order.h"

#define SAMPLES 37

static void epoch_of(dlc_order *order, int64_t epoch, int64_t *samples) {
    for (int64_t i = 0; i < SAMPLES; i++)
        samples[i] = dlc_order_at(order, epoch * SAMPLES + i);
}

START_TEST(every_epoch_has_every_sample) {
    dlc_order order;
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, &order), DLC_OK);
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
END_TEST

START_TEST(depends_on_seed_and_epoch_alone) {
    dlc_order a, b, c;
    int64_t one[SAMPLES], two[SAMPLES];
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, &a), DLC_OK);
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, &b), DLC_OK);
    ck_assert_int_eq(dlc_order_open(SAMPLES, 5, 1, &c), DLC_OK);
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
END_TEST

/* Each sample is at each position about equally often. */
START_TEST(evenly_shuffled) {
    dlc_order order;
    int count[5][5] = {{0}};
    ck_assert_int_eq(dlc_order_open(5, 1, 1, &order), DLC_OK);
    for (int64_t position = 0; position < 5 * 5000; position++)
        count[position % 5][dlc_order_at(&order, position)]++;
    for (int place = 0; place < 5; place++) {
        for (int sample = 0; sample < 5; sample++)
            ck_assert_int_lt(abs(count[place][sample] - 1000), 150);
    }
    dlc_order_close(&order);
}
END_TEST

START_TEST(not_shuffled) {
    dlc_order order;
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 0, &order), DLC_OK);
    for (int64_t position = 0; position < 3 * SAMPLES; position++)
        ck_assert_int_eq(dlc_order_at(&order, position), position % SAMPLES);
    dlc_order_close(&order);
}
END_TEST

START_TEST(one_sample) {
    dlc_order order;
    ck_assert_int_eq(dlc_order_open(1, 4, 1, &order), DLC_OK);
    ck_assert_int_eq(dlc_order_at(&order, 0), 0);
    ck_assert_int_eq(dlc_order_at(&order, 100), 0);
    dlc_order_close(&order);
}
END_TEST

START_TEST(no_memory) {
    dlc_order order = {0};
    dlc_memory_fail_at(1);
    ck_assert_int_eq(dlc_order_open(SAMPLES, 4, 1, &order), DLC_ERR_NOMEM);
    dlc_memory_fail_at(0);
    dlc_order_close(&order);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data.order");
    TCase *tcase = tcase_create("order");
    tcase_add_test(tcase, every_epoch_has_every_sample);
    tcase_add_test(tcase, depends_on_seed_and_epoch_alone);
    tcase_add_test(tcase, evenly_shuffled);
    tcase_add_test(tcase, not_shuffled);
    tcase_add_test(tcase, one_sample);
    tcase_add_test(tcase, no_memory);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
