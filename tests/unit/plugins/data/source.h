/* Opens the data sources of this build as the core does. Used by test_idx*, test_cifar
 * and test_synthetic. */
#ifndef TEST_SOURCE_H
#define TEST_SOURCE_H

#include <dlcore/data.h>

typedef struct opened {
    dlc_settings *settings;
    const dlc_data_ops *ops;
    dlc_source *source;
    dlc_data_info info;
} opened;

/* Opens the source `name` with settings like "images=/a/b", NULL-terminated. On
 * failure nothing stays open and *into is unchanged. */
dlc_status source_open(const char *name, uint64_t seed, const char *const *sets,
                       opened *into);
void source_close(opened *from);

/* Checks that opening is refused with this status and a detail sentence that contains
 * `detail`. */
void source_refused(const char *name, const char *const *sets, dlc_status status,
                    const char *detail);

/* Opens the source with the first, second, ... allocation failing, until it succeeds;
 * checks that every failure is DLC_ERR_NOMEM. */
void source_starved(const char *name, const char *const *sets);

#endif
