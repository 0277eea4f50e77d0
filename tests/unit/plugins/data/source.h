/* Opens the data sources of this build as the core does. Used by the tests of all
 * sources. */
#ifndef TEST_SOURCE_H
#define TEST_SOURCE_H

#include <stdint.h>

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

/* Reads one field of a sample, into memory that is valid until the next call. */
dlc_status source_read(const opened *from, int64_t index, const char *field,
                       dlc_value *value);
/* Reads it and checks that it has these bytes. */
void source_holds(const opened *from, int64_t index, const char *field,
                  const void *bytes, size_t count);
/* The number of a field; -1: there is none with this name. */
int32_t source_field(const opened *from, const char *field);

/* Changes a few bytes of a sound file, or cuts it short, so many times; opens what is
 * left with `sets` and reads all fields of all samples. Whatever is wrong must be a
 * DLC_ERR_DATA with a sentence, found without much memory. Fails if fewer than `least`
 * of them are refused. */
void source_mutate(const char *name, const char *const *sets, const char *file,
                   int times, int least);

#endif
