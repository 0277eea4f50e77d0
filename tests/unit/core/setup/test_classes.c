/* Tests that a label means the same class in [data] and [data.test]
 * (core/setup/classes.c), or that opening the data fails. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "setup/classes.h"
#include "setup/data_source.h"
#include "support/test.h"

/* ---- Fake sources -------------------------------------------------------------- */

enum { NAMELESS = 2 };

typedef struct classes {
    const char *name[4];
    int32_t count; /* 0: its classes have no names */
    int obeys;     /* numbers labels by the given classes */
    int broken;    /* it cannot be opened; NAMELESS: unless classes are given */
} classes;

struct dlc_source {
    const classes *from;
    const char *const *name;
    int32_t count;
};

static const classes *of_train, *of_test;
static int open_count;

static dlc_status any_open(const classes *from, const dlc_data_args *args,
                           dlc_source **source) {
    if (from->broken && (from->broken != NAMELESS || !args->class_names))
        return dlc_fail(DLC_ERR_DATA, "it is broken");
    ck_assert_ptr_eq(strstr(args->image_endings, "jpg,jpeg,png,webp"),
                     args->image_endings);
    dlc_source *made = calloc(1, sizeof *made);
    ck_assert_ptr_nonnull(made);
    *made = (dlc_source){.from = from, .name = from->name, .count = from->count};
    if (from->obeys && args->class_names) {
        made->name = args->class_names;
        made->count = args->classes;
    }
    open_count++;
    *source = made;
    return DLC_OK;
}

static dlc_status train_open(const dlc_data_args *args, dlc_source **source) {
    ck_assert_ptr_null(args->class_names);
    return any_open(of_train, args, source);
}

static dlc_status test_open(const dlc_data_args *args, dlc_source **source) {
    return any_open(of_test, args, source);
}

static void any_close(dlc_source *source) {
    open_count -= source != NULL;
    free(source);
}

static dlc_status any_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = 1;
    info->dtype = DLC_U8;
    info->shape = (dlc_shape){3, {1, 1, 1}};
    info->classes = source->count ? source->count : 7;
    info->class_names = source->count ? source->name : NULL;
    return DLC_OK;
}

static dlc_status never_read(dlc_source *source, int32_t n, const int64_t *index,
                             void *data, int32_t *labels) {
    ck_abort_msg("%p %d %p %p %p", (void *)source, n, (const void *)index, data,
                 (void *)labels);
    return DLC_OK;
}

static const dlc_data_ops train_ops = {.size = sizeof train_ops,
                                       .open = train_open,
                                       .close = any_close,
                                       .describe = any_describe,
                                       .read = never_read};
static const dlc_data_ops test_ops = {.size = sizeof test_ops,
                                      .open = test_open,
                                      .close = any_close,
                                      .describe = any_describe,
                                      .read = never_read};
static const dlc_feature train_feature = {
    .size = sizeof train_feature, .name = "train", .ops = &train_ops};
static const dlc_feature test_feature = {
    .size = sizeof test_feature, .name = "test", .ops = &test_ops};
static const dlc_option no_options[] = {DLC_STRING("source", "x", "what reads it"),
                                        DLC_OPTIONS_END};

static dlc_settings *no_settings(const char *section) {
    const dlc_option *tables[] = {no_options};
    dlc_problems problems = {0};
    dlc_settings *made = NULL;
    ck_assert_int_eq(dlc_settings_make(NULL, section, tables, 1, &problems, &made),
                     DLC_OK);
    dlc_problems_free(&problems);
    return made;
}

/* ---- Tests ----------------------------------------------------------------------- */

static const struct {
    const char *what;
    classes train, test;
    int train_first; /* [data] is open already, as for training */
    dlc_status status;
    int32_t classes; /* of the test at the end */
} cases[] = {
    {"the same", {{"ant", "bee"}, 2, 0, 0}, {{"ant", "bee"}, 2, 0, 0}, 1, DLC_OK, 2},
    {"the same, a test alone",
     {{"ant", "bee"}, 2, 0, 0},
     {{"ant", "bee"}, 2, 0, 0},
     0,
     DLC_OK,
     2},
    {"told", {{"ant", "bee", "cat"}, 3, 0, 0}, {{"cat"}, 1, 1, 0}, 1, DLC_OK, 3},
    {"told, alone", {{"ant", "bee", "cat"}, 3, 0, 0}, {{"cat"}, 1, 1, 0}, 0, DLC_OK, 3},
    {"deaf", {{"ant", "bee"}, 2, 0, 0}, {{"bee"}, 1, 0, 0}, 1, DLC_ERR_DATA, 1},
    {"deaf, alone", {{"ant", "bee"}, 2, 0, 0}, {{"bee"}, 1, 0, 0}, 0, DLC_ERR_DATA, 1},
    {"as many, others",
     {{"ant", "bee"}, 2, 0, 0},
     {{"ant", "cat"}, 2, 0, 0},
     1,
     DLC_ERR_DATA,
     2},
    {"another order",
     {{"ant", "bee"}, 2, 0, 0},
     {{"bee", "ant"}, 2, 0, 0},
     1,
     DLC_ERR_DATA,
     2},
    {"no names in training", {{NULL}, 0, 0, 0}, {{"ant"}, 1, 1, 0}, 1, DLC_OK, 1},
    {"no names in the test", {{"ant"}, 1, 0, 0}, {{NULL}, 0, 0, 0}, 1, DLC_OK, 7},
    {"no names in the test, alone",
     {{"ant"}, 1, 0, 1},
     {{NULL}, 0, 0, 0},
     0,
     DLC_OK,
     7},
    {"training data left behind", {{NULL}, 0, 0, 1}, {{"ant"}, 1, 1, 0}, 0, DLC_OK, 1},
    {"a broken test", {{"ant"}, 1, 0, 0}, {{NULL}, 0, 0, 1}, 0, DLC_ERR_DATA, 0},
    {"names of training",
     {{"ant", "bee"}, 2, 0, 0},
     {{NULL}, 0, 1, NAMELESS},
     1,
     DLC_OK,
     2},
    {"names of training, alone",
     {{"ant", "bee"}, 2, 0, 0},
     {{NULL}, 0, 1, NAMELESS},
     0,
     DLC_OK,
     2},
    {"names that training has not",
     {{NULL}, 0, 0, 0},
     {{NULL}, 0, 1, NAMELESS},
     0,
     DLC_ERR_DATA,
     0},
    {"names of training left behind",
     {{NULL}, 0, 0, 1},
     {{NULL}, 0, 1, NAMELESS},
     0,
     DLC_ERR_DATA,
     0},
};

static dlc_registry *registry; /* sources are told what its decoders read */

static void open_registry(void) {
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
}

static void close_registry(void) {
    dlc_registry_close(registry);
}

TEST_SETTINGS(.setup_once = open_registry, .teardown_once = close_registry);

TEST_EACH(labels_mean_the_same, COUNT(cases)) {
    dlc_setup setup = {.registry = registry,
                       .train = {.present = 1, .feature = &train_feature},
                       .test = {.present = 1, .feature = &test_feature}};
    dlc_log_level_set(DLC_LOG_ERROR);
    of_train = &cases[_i].train;
    of_test = &cases[_i].test;
    open_count = 0;
    setup.train.settings = no_settings("data");
    setup.test.settings = no_settings("data.test");
    if (cases[_i].train_first)
        ck_assert_int_eq(dlc_data_source_open(&setup, &setup.train, NULL), DLC_OK);
    dlc_status status = dlc_classes_open_test(&setup);
    ck_assert_msg(status == cases[_i].status, "%s: %d, %s", cases[_i].what, (int)status,
                  dlc_detail());
    ck_assert_int_eq(setup.test.info.classes, cases[_i].classes);
    ck_assert_int_eq(setup.train.source != NULL, cases[_i].train_first);
    if (status == DLC_OK)
        ck_assert_int_eq(open_count, 1 + cases[_i].train_first);
    else if (!cases[_i].test.broken)
        ck_assert_ptr_nonnull(strstr(dlc_detail(), "[data] has ant, bee"));
    dlc_data_source_close(&setup.test);
    dlc_data_source_close(&setup.train);
    ck_assert_int_eq(open_count, 0);
    dlc_settings_free(setup.train.settings);
    dlc_settings_free(setup.test.settings);
}

TEST_EACH(labels_are_those_of_the_weights, 2) {
    static const char *const names[] = {"bee", "cat"};
    static const classes broken = {.broken = 1};
    static const dlc_data_info trained = {
        .size = sizeof trained, .classes = 2, .class_names = names};
    classes test = {.name = {"cat"}, .count = 1, .obeys = _i};
    dlc_setup setup = {.registry = registry,
                       .train = {.present = 1, .feature = &train_feature},
                       .test = {.present = 1, .feature = &test_feature},
                       .trained = &trained};
    of_train = &broken;
    of_test = &test;
    open_count = 0;
    setup.test.settings = no_settings("data.test");
    ck_assert_int_eq(dlc_classes_open_test(&setup), _i ? DLC_OK : DLC_ERR_DATA);
    ck_assert_int_eq(setup.test.info.classes, _i ? 2 : 1);
    if (!_i)
        ck_assert_ptr_nonnull(strstr(dlc_detail(), "the weights know bee, cat"));
    dlc_data_source_close(&setup.test);
    ck_assert_int_eq(open_count, 0);
    dlc_settings_free(setup.test.settings);
}
