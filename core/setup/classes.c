/* Opens [data.test] with the classes of [data], and compares the two. */
#include "setup/classes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "setup/data_source.h"

static int are_known(const dlc_data_info *info) {
    return info->class_names && info->classes > 0;
}

static int are_same(const dlc_data_info *a, const dlc_data_info *b) {
    if (a->classes != b->classes)
        return 0;
    for (int32_t i = 0; i < a->classes; i++)
        if (strcmp(a->class_names[i], b->class_names[i]) != 0)
            return 0;
    return 1;
}

/* Appends the first few names, as in "ant, bee, cat". */
static void list(const dlc_data_info *info, dlc_text *text) {
    enum { MOST = 8 };
    for (int32_t i = 0; i < info->classes && i < MOST; i++)
        dlc_text_add(text, "%s%s", i ? ", " : "", info->class_names[i]);
    if (info->classes > MOST)
        dlc_text_add(text, " and %" PRId32 " more", info->classes - MOST);
}

static dlc_status refuse_classes(const dlc_setup *setup, const char *whose,
                                 const dlc_data_info *known) {
    dlc_text train = {0}, test = {0};
    list(known, &train);
    list(&setup->test.info, &test);
    dlc_status status = dlc_fail(
        DLC_ERR_DATA,
        "%s: [data.test] has the classes %s, but %s %s: a label would mean a "
        "different class in a test; give both the same classes, in the same order",
        dlc_settings_where(setup->test.settings, "source"), dlc_text_string(&test),
        whose, dlc_text_string(&train));
    dlc_text_free(&train);
    dlc_text_free(&test);
    return status;
}

static dlc_status compare_classes(const dlc_setup *setup, const char *whose,
                                  const dlc_data_info *known) {
    const dlc_data_info *test = &setup->test.info;
    return are_known(known) && are_known(test) && !are_same(known, test)
               ? refuse_classes(setup, whose, known)
               : DLC_OK;
}

/* For a test alone: reads the class names from [data]. If [data] cannot be read there
 * is nothing to compare with; it may only exist on the machine that trained. */
static dlc_status compare_with_train(dlc_setup *setup) {
    dlc_data_setup *train = &setup->train, *test = &setup->test;
    if (!train->present || !train->feature || train->broken)
        return DLC_OK;
    dlc_status status = dlc_data_source_open(setup, train, NULL);
    if (status == DLC_ERR_NOMEM)
        return status;
    if (status != DLC_OK) {
        dlc_warn(
            "labels are numbered by the classes of [data.test] alone, since [data] "
            "cannot be read: %s",
            dlc_detail());
        dlc_data_source_close(train);
        return DLC_OK;
    }
    if (are_known(&train->info) && !are_same(&train->info, &test->info)) {
        dlc_data_source_close(test);
        status = dlc_data_source_open(setup, test, &train->info);
        if (status == DLC_OK && !are_same(&train->info, &test->info))
            status = refuse_classes(setup, "[data] has", &train->info);
    }
    dlc_data_source_close(train);
    return status;
}

/* For a test alone that cannot be opened: its labels may be names that only [data] has,
 * such as the setting `classes` of a table. */
static dlc_status open_with_train(dlc_setup *setup, dlc_status status) {
    dlc_data_setup *train = &setup->train, *test = &setup->test;
    char why[1024];
    (void)snprintf(why, sizeof why, "%s", dlc_detail());
    dlc_data_source_close(test);
    if (!train->present || !train->feature || train->broken ||
        dlc_data_source_open(setup, train, NULL) != DLC_OK || !are_known(&train->info))
        status = dlc_fail(status, "%s", why);
    else
        status = dlc_data_source_open(setup, test, &train->info);
    dlc_data_source_close(train);
    return status;
}

dlc_status dlc_classes_open_test(dlc_setup *setup) {
    const dlc_data_setup *train = &setup->train, *test = &setup->test;
    const dlc_data_info *known = !train->source            ? setup->trained
                                 : are_known(&train->info) ? &train->info
                                                           : NULL;
    dlc_status status = dlc_data_source_open(setup, &setup->test, known);
    if (status == DLC_ERR_DATA && !train->source && !known)
        return open_with_train(setup, status);
    DLC_TRY(status);
    if (train->source)
        return compare_classes(setup, "[data] has", &train->info);
    if (known)
        return compare_classes(setup, "the weights know", known);
    return are_known(&test->info) ? compare_with_train(setup) : DLC_OK;
}
