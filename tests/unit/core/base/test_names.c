/* Tests the index of names (core/base/names.c): many, equal, parts of others, and no
 * memory. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/names.h"
#include "support/test.h"

enum { MANY = 20000, LENGTH = 16 };
static char many[MANY][LENGTH];

TEST(many_are_found) {
    dlc_names names = {0};
    ck_assert_int_eq(dlc_names_find(&names, "layer0"), -1);
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(many[i], LENGTH, "layer%zu", i);
        ck_assert_int_eq(dlc_names_add(&names, many[i], i), DLC_OK);
    }
    for (size_t i = 0; i < MANY; i++) {
        char other[LENGTH];
        ck_assert_int_eq(dlc_names_find(&names, many[i]), (ptrdiff_t)i);
        (void)snprintf(other, sizeof other, "layer%zu.", i);
        ck_assert_int_eq(dlc_names_find(&names, other), -1);
        ck_assert_int_eq(dlc_names_find_part(&names, other, strlen(many[i])),
                         (ptrdiff_t)i);
    }
    ck_assert_int_eq(dlc_names_find(&names, ""), -1);
    dlc_names_free(&names);
    ck_assert_int_eq(dlc_names_find(&names, many[0]), -1);
}

TEST(the_first_of_equal_names_counts) {
    dlc_names names = {0};
    const char one[] = "conv", same[] = "conv";
    ck_assert_int_eq(dlc_names_add(&names, one, 3), DLC_OK);
    ck_assert_int_eq(dlc_names_add(&names, same, 5), DLC_OK);
    ck_assert_int_eq(dlc_names_add(&names, "", 7), DLC_OK);
    ck_assert_int_eq(dlc_names_find(&names, "conv"), 3);
    ck_assert_int_eq(dlc_names_find(&names, ""), 7);
    ck_assert_int_eq(dlc_names_find_part(&names, "conv1", 4), 3);
    dlc_names_free(&names);
}

/* What was added before memory ran out is still found. */
TEST(without_memory_nothing_is_lost) {
    dlc_names names = {0};
    size_t added = 0;
    dlc_memory_fail_at(3);
    for (; added < MANY; added++) {
        (void)snprintf(many[added], LENGTH, "%zu", added);
        dlc_status status = dlc_names_add(&names, many[added], added);
        if (status != DLC_OK) {
            ck_assert_int_eq(status, DLC_ERR_NOMEM);
            break;
        }
    }
    dlc_memory_fail_at(0);
    ck_assert_uint_gt(added, 0);
    ck_assert_uint_lt(added, MANY);
    ck_assert_int_eq(dlc_names_find(&names, many[added]), -1);
    for (size_t i = 0; i < added; i++)
        ck_assert_int_eq(dlc_names_find(&names, many[i]), (ptrdiff_t)i);
    dlc_names_free(&names);
}
