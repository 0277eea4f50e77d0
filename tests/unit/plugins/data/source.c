/* Opens data sources through the registry; checks refusals and failing allocations. */
#include "source.h"

#include <check.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "support/plugins.h"
#include "support/scratch.h"

dlc_status source_open(const char *name, uint64_t seed, const char *const *sets,
                       opened *into) {
    const dlc_feature *feature = plugin_find(DLC_KIND_DATA, name);
    opened made = {.ops = feature->ops, .info.size = sizeof made.info};
    made.settings = plugin_settings(feature, sets);
    dlc_data_args args = {.size = sizeof args, .settings = made.settings, .seed = seed};
    dlc_status status = made.ops->open(&args, &made.source);
    if (status != DLC_OK) {
        ck_assert_ptr_null(made.source); /* outputs are set only on success */
        dlc_settings_free(made.settings);
        return status;
    }
    ck_assert_int_eq(made.ops->describe(made.source, &made.info), DLC_OK);
    ck_assert_uint_eq(made.info.size, sizeof made.info);
    *into = made;
    return DLC_OK;
}

void source_close(opened *from) {
    from->ops->close(from->source);
    from->ops->close(NULL);
    dlc_settings_free(from->settings);
}

void source_refused(const char *name, const char *const *sets, dlc_status status,
                    const char *detail) {
    opened o;
    dlc_status got = source_open(name, 0, sets, &o);
    ck_assert_msg(got == status, "status %d, not %d: %s", got, status, dlc_detail());
    ck_contains(dlc_detail(), detail);
}

void source_starved(const char *name, const char *const *sets) {
    const dlc_feature *feature = plugin_find(DLC_KIND_DATA, name);
    const dlc_data_ops *ops = feature->ops;
    dlc_settings *settings = plugin_settings(feature, sets);
    dlc_data_args args = {.size = sizeof args, .settings = settings};
    dlc_status status = DLC_ERR_NOMEM;
    size_t n = 1;
    for (; status != DLC_OK; n++) {
        dlc_source *source = NULL;
        ck_assert_uint_lt(n, 1000);
        dlc_memory_fail_at(n);
        status = ops->open(&args, &source);
        dlc_memory_fail_at(0);
        if (status != DLC_OK) {
            ck_assert_int_eq(status, DLC_ERR_NOMEM);
            ck_assert_ptr_null(source);
        }
        ops->close(source);
    }
    ck_assert_uint_gt(n, 2); /* it did allocate */
    dlc_settings_free(settings);
}
