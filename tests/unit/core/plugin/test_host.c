/* Tests the services of dlc_host, used as a plugin uses them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "plugin/object.h"
#include "support/test.h"

TEST(table_is_complete) {
    const dlc_host *host = dlc_host_services();
    ck_assert_uint_eq(host->size, sizeof(dlc_host));
    ck_assert_uint_eq(host->abi_minor, DLC_ABI_MINOR);
    /* Everything after the two numbers is a function. */
    for (size_t at = offsetof(dlc_host, log); at < sizeof *host; at += sizeof(void *)) {
        void *call;
        memcpy(&call, (const char *)host + at, sizeof call);
        ck_assert_msg(call != NULL, "the call at offset %zu is NULL", at);
    }
}

TEST(allocates_memory) {
    const dlc_host *host = dlc_host_services();
    for (size_t bytes = 0; bytes < 300; bytes += 37) {
        unsigned char *memory = host->alloc(bytes);
        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < bytes; i++)
            ck_assert_uint_eq(memory[i], 0);
        host->free(memory);
    }
    host->free(NULL);
    ck_assert_ptr_null(host->alloc(SIZE_MAX));
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "out of memory"));
    dlc_memory_fail_at(1);
    ck_assert_ptr_null(host->alloc(1));
    dlc_memory_fail_at(0);
}

TEST(errors_and_time) {
    const dlc_host *host = dlc_host_services();
    dlc_status rc = (host->fail)(DLC_ERR_DATA, "%s: line %d", "a.idx", 3);
    ck_assert_int_eq(rc, DLC_ERR_DATA);
    ck_assert_str_eq(dlc_detail(), "a.idx: line 3");
    uint64_t before = host->now_ns();
    ck_assert_uint_ge(host->now_ns(), before);
    host->log(DLC_LOG_DEBUG, "%s", "not shown");
}

static const dlc_option table[] = {
    DLC_INT("count", "3", 1, 9, "an int"),
    DLC_FLOAT("rate", "0.5", 0, 1, "a float"),
    DLC_BOOL("nice", "yes", "a bool"),
    DLC_STRING("title", "abc", "a string"),
    DLC_INTS("steps", "1, 2, 3", 0, 9, "ints"),
    DLC_FLOATS("mean", "0.25, 0.75", 0, 1, "floats"),
    DLC_OPTIONS_END,
};

TEST(settings) {
    const dlc_host *host = dlc_host_services();
    const dlc_option *tables[] = {table};
    dlc_problems problems = {0};
    dlc_settings *made = NULL;
    ck_assert_int_eq(dlc_settings_make(NULL, "any", tables, 1, &problems, &made),
                     DLC_OK);
    const int64_t *ints;
    const double *floats;
    ck_assert_int_eq(host->get_int(made, "count"), 3);
    ck_assert_double_eq(host->get_float(made, "rate"), 0.5);
    ck_assert_int_eq(host->get_bool(made, "nice"), 1);
    ck_assert_str_eq(host->get_string(made, "title"), "abc");
    ck_assert_uint_eq(host->get_ints(made, "steps", &ints), 3);
    ck_assert_int_eq(ints[2], 3);
    ck_assert_uint_eq(host->get_floats(made, "mean", &floats), 2);
    ck_assert_double_eq(floats[1], 0.75);
    ck_assert_int_eq(host->is_set(made, "count"), 0);
    ck_assert_ptr_nonnull(host->where(made, "count"));
    dlc_settings_free(made);
    dlc_problems_free(&problems);
}
