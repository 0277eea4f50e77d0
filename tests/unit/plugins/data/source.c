/* Opens data sources through the registry; checks refusals and failing allocations. */
#include "source.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "config/config.h"
#include "support/plugins.h"
#include "support/sanitized.h"
#include "support/scratch.h"

dlc_status source_open(const char *name, uint64_t seed, const char *const *sets,
                       opened *into) {
    const dlc_feature *feature = plugin_find(DLC_KIND_DATA, name);
    opened made = {.ops = feature->ops, .info.size = sizeof made.info};
    made.settings = plugin_settings(feature, sets);
    dlc_data_args args = {.size = sizeof args,
                          .settings = made.settings,
                          .seed = seed,
                          .image_endings = "jpg,jpeg,png,webp"};
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
    dlc_data_args args = {.size = sizeof args,
                          .settings = settings,
                          .image_endings = "jpg,jpeg,png,webp"};
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

/* ---- Fields -------------------------------------------------------------------- */

static unsigned char *memory;

static void *give(dlc_sample *sample, int32_t field, uint64_t bytes) {
    ck_assert_uint_lt(bytes, (uint64_t)1 << 30);
    free(memory);
    memory = malloc((size_t)bytes + 1);
    sample->value[field].data = memory;
    sample->value[field].bytes = bytes;
    return memory;
}

static const dlc_field *field_at(const opened *from, int32_t f) {
    return &from->info.fields[f];
}

static dlc_status read_field(const opened *from, int64_t index, int32_t f,
                             dlc_value *value) {
    dlc_value values[DLC_FIELDS_MAX] = {{0}};
    dlc_sample sample = {.size = sizeof sample,
                         .wanted = 1u << f,
                         .index = index,
                         .value = values,
                         .memory = give};
    dlc_status status = from->ops->read_sample(from->source, &sample);
    *value = values[f];
    return status;
}

int32_t source_field(const opened *from, const char *field) {
    for (int32_t f = 0; f < from->info.field_count; f++)
        if (strcmp(field_at(from, f)->name, field) == 0)
            return f;
    return -1;
}

dlc_status source_read(const opened *from, int64_t index, const char *field,
                       dlc_value *value) {
    int32_t f = source_field(from, field);
    ck_assert_msg(f >= 0, "there is no field %s", field);
    return read_field(from, index, f, value);
}

void source_holds(const opened *from, int64_t index, const char *field,
                  const void *bytes, size_t count) {
    dlc_value value;
    dlc_status status = source_read(from, index, field, &value);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    ck_assert_uint_eq(value.bytes, count);
    ck_assert_mem_eq(value.data, bytes, count);
}

/* ---- Mutations ----------------------------------------------------------------- */

enum { MEMORY_MB = 512 };

/* Memory of the process, so that a size that is believed too early is noticed. */
static void limit_memory(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || SANITIZED) {
        if (file)
            fclose(file);
        return;
    }
    ck_assert_int_eq(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    struct rlimit limit = {pages * 4096 + ((rlim_t)MEMORY_MB << 20), RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

static void damaged(dlc_status status) {
    ck_assert_msg(status == DLC_ERR_DATA, "status %d: %s", status, dlc_detail());
    ck_assert_str_ne(dlc_detail(), "");
}

/* Opens and reads everything; returns whether something was refused. */
static int use_all(const char *name, const char *const *sets) {
    opened o;
    dlc_value value;
    int refused = 0;
    dlc_fail(DLC_OK, "%s", "");
    dlc_status status = source_open(name, 0, sets, &o);
    if (status != DLC_OK) {
        damaged(status);
        return 1;
    }
    ck_assert_int_ge(o.info.samples, 1);
    for (int64_t i = 0; i < o.info.samples && i < 100; i++)
        for (int32_t f = 0; f < o.info.field_count; f++) {
            status = read_field(&o, i, f, &value);
            if (status != DLC_OK)
                damaged(status);
            refused |= status != DLC_OK;
        }
    source_close(&o);
    return refused;
}

void source_mutate(const char *name, const char *const *sets, const char *file,
                   int times, int least) {
    size_t size;
    unsigned char *sound = scratch_read(file, &size), *bytes = malloc(size);
    int refused = 0;
    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(use_all(name, sets), 0);
    limit_memory();
    for (int i = 0; i < times; i++) {
        dlc_random random = dlc_random_make((uint64_t)i, 3);
        int is_cut = i % 10 == 9;
        size_t left = is_cut ? dlc_random_below(&random, size) : size;
        memcpy(bytes, sound, size);
        for (int change = 0; !is_cut && change <= i % 4; change++)
            bytes[dlc_random_below(&random, size)] ^=
                (unsigned char)(i % 3 ? 1u << dlc_random_below(&random, 8) : 255u);
        scratch_write(file, bytes, left);
        refused += use_all(name, sets);
    }
    ck_assert_int_ge(refused, least);
    free(bytes);
    free(sound);
}
