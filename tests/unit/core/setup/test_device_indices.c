/* Tests which accelerator is found, and the parser of device indices
 * (core/setup/device_indices.c): what "0,1" and "all" name, and which lists it refuses.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "setup/device_indices.h"
#include "support/plugins.h"
#include "support/test.h"

static int32_t present;

static dlc_status count_devices(int32_t *count) {
    if (present < 0)
        return dlc_fail(DLC_ERR_DEVICE, "they cannot be counted");
    *count = present;
    return DLC_OK;
}

static const dlc_device_ops ops = {.size = sizeof ops, .count = count_devices};
static const dlc_feature device = {
    .size = sizeof device, .kind = DLC_KIND_DEVICE, .name = "fake", .ops = &ops};

typedef struct good_case {
    const char *text;
    int32_t present, count, list[4];
} good_case;

static const good_case good[] = {
    {"0", 1, 1, {0}},           {"all", 3, 3, {0, 1, 2}}, {"2,0", 3, 2, {2, 0}},
    {"0,1,2", 3, 3, {0, 1, 2}}, {"00,01", 2, 2, {0, 1}},
};

TEST_EACH(parses_lists, COUNT(good)) {
    const good_case *c = &good[_i];
    int32_t *list = NULL, count = 0;
    present = c->present;
    ck_assert_int_eq(dlc_device_indices_parse(c->text, &device, &list, &count), DLC_OK);
    ck_assert_int_eq(count, c->count);
    ck_assert_mem_eq(list, c->list, (size_t)count * sizeof *list);
    dlc_free(list);
}

typedef struct bad_case {
    const char *text;
    int32_t present;
    const char *says;
} bad_case;

static const bad_case bad[] = {
    {"2", 2, "no 'fake' device 2 here, only 0 to 1"},
    {"0,0", 2, "device 0 is listed twice"},
    {"", 2, "numbers separated by commas"},
    {"0,", 2, "numbers separated by commas"},
    {",0", 2, "numbers separated by commas"},
    {"0 1", 2, "numbers separated by commas"},
    {"-1", 2, "numbers separated by commas"},
    {"+1", 2, "numbers separated by commas"},
    {"1x", 2, "numbers separated by commas"},
    {"All", 2, "numbers separated by commas"},
    {"99999999999999999999", 2, "numbers separated by commas"},
    {"4294967296", 2, "no 'fake' device 4294967296"},
    {"all", 0, "no 'fake' device here"},
    {"all", -1, "no 'fake' device here"},
};

TEST_EACH(refuses_lists, COUNT(bad)) {
    const bad_case *c = &bad[_i];
    int32_t *list = NULL, count = -7;
    present = c->present;
    ck_assert_int_eq(dlc_device_indices_parse(c->text, &device, &list, &count),
                     DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), c->says) != NULL, "'%s': %s", c->text,
                  dlc_detail());
    ck_assert_ptr_null(list);
    ck_assert_int_eq(count, -7);
}

/* The simulated accelerator of the examples, which has two, comes first. */
TEST(has_the_most_layers) {
    const dlc_feature *found = NULL;
    ck_assert_str_eq(plugin_find(DLC_KIND_DEVICE, "accelerator")->name, "accelerator");
    ck_assert_int_eq(dlc_find_accelerator(plugins_registry(), &found), DLC_OK);
    ck_assert_ptr_nonnull(found);
    ck_assert_str_eq(found->name, "async");
}
