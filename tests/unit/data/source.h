/* A data source of this build, opened as the core does it. */
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
 * failure nothing stays open, and `into->source` is as it was. */
dlc_status source_open(const char *name, uint64_t seed, const char *const *sets,
                       opened *into);
void source_close(opened *from);

/* Opens what must be refused: with this status, and this in the detail sentence. */
void source_refused(const char *name, const char *const *sets, dlc_status status,
                    const char *detail);

/* Opens again and again, with the first, second, ... allocation failing, until it
 * works: each time DLC_ERR_NOMEM and no leak. */
void source_starved(const char *name, const char *const *sets);

#endif
