/* CUDA_VISIBLE_DEVICES, parsed as CUDA does: an invalid entry ends the list. */
#include <string.h>

#include "support/test.h"
#include "visible.h"

static const char *const uuids[] = {
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-8932aa11-0000-4106-c12f-20bd9faed9f7",
    "GPU-11111111-d72c-4106-c12f-20bd9faed9f8",
    "GPU-22222222-d72c-4106-c12f-20bd9faed9f9",
};

static const struct {
    const char *text;
    const char *chosen;  /* "02": 0 and 2 */
    const char *problem; /* a part of it; NULL: none */
    const char *at;
} rows[] = {
    {NULL, "0123", NULL, NULL},
    {"", "", NULL, NULL},
    {"2", "2", NULL, NULL},
    {"2,0", "20", NULL, NULL},
    {" 2 , 0", "20", NULL, NULL},
    {"3,2,1,0", "3210", NULL, NULL},
    {"0,", "0", NULL, NULL},
    {"GPU-1", "2", NULL, NULL},
    {"gpu-22222222-D72C-4106-c12f-20bd9faed9f9,GPU-8932a", "31", NULL, NULL},
    {"GPU-8932f,1", "01", NULL, NULL},
    {"0,4,1", "0", "no such GPU", "4,1"},
    {"0,2,-1,1", "02", "neither", "-1,1"},
    {"-1", "", "neither", "-1"},
    {"NoDevFiles", "", "neither", "NoDevFiles"},
    {"1,0x2", "1", "neither", "0x2"},
    {"99999999999999999999", "", "no such GPU", "9999"},
    {"0,,1", "0", "neither", ",1"},
    {"1,1", "", "twice", "1"},
    {"0,GPU-8932f", "", "twice", "GPU-8932f"},
    {"GPU-8932", "", "more than one", "GPU-8932"},
    {"2,GPU-", "2", "more than one", "GPU-"},
    {"GPU-7", "", "no such GPU", "GPU-7"},
    {"3,MIG-1234", "3", "parts of a GPU", "MIG-1234"},
    {"MIG-GPU-8932f937/1/0", "", "parts of a GPU", "MIG-GPU"},
};

TEST_EACH(reads_what_cuda_reads, COUNT(rows)) {
    int chosen[4] = {-1, -1, -1, -1};
    const char *problem = "?", *at = NULL;
    int visible = visible_choose(rows[_i].text, uuids, 4, chosen, &problem, &at);
    ck_assert_int_eq(visible, (int)strlen(rows[_i].chosen));
    for (int i = 0; i < visible; i++)
        ck_assert_int_eq(chosen[i], rows[_i].chosen[i] - '0');
    if (!rows[_i].problem) {
        ck_assert_ptr_null(problem);
        return;
    }
    ck_assert_ptr_nonnull(problem);
    ck_assert_msg(strstr(problem, rows[_i].problem) != NULL, "%s", problem);
    ck_assert_msg(strncmp(at, rows[_i].at, strlen(rows[_i].at)) == 0, "at %s", at);
}

TEST(of_a_machine_without_any) {
    int chosen[1];
    const char *problem = NULL, *at = NULL;
    ck_assert_int_eq(visible_choose(NULL, uuids, 0, chosen, &problem, &at), 0);
    ck_assert_ptr_null(problem);
    ck_assert_int_eq(visible_choose("0", uuids, 0, chosen, &problem, &at), 0);
    ck_assert_ptr_nonnull(problem);
}
