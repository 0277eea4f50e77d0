/* Opens the data sections and reads their first samples as training would; called by
 * dlc_setup_open before anything is started. */
#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "data/feed.h"
#include "plugin/host.h"
#include "setup/classes.h"
#include "setup/data_source.h"
#include "setup/setup_checks.h"

/* The data section that is being checked. */
typedef struct checked_section {
    dlc_setup *setup;
    dlc_problems *problems;
    const char *name; /* of the section */
    dlc_data_setup *data;
    int test;
} checked_section;

/* Reports dlc_detail() as a mistake at `key`; the section is not checked further. */
static dlc_status report(const checked_section *at, const char *key,
                         dlc_status status) {
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    at->data->broken = 1;
    dlc_problems_add_failure(at->problems, at->setup->config,
                             dlc_settings_line(at->data->settings, key), at->name,
                             status);
    return DLC_OK;
}

static dlc_feed_args first_batch(const checked_section *at) {
    const dlc_data_setup *data = at->data;
    dlc_feed_args args = {.ops = data->feature->ops,
                          .source = data->source,
                          .count = (int32_t)data->batch,
                          .batch = data->batch,
                          .test = at->test,
                          .ranks = 1};
    dlc_feed_configure(dlc_host_services(), data->settings, &args);
    return args;
}

/* ---- Samples ----------------------------------------------------------------- */

/* Samples are read at most this many, and about this many bytes, at a time. */
enum { READ_SAMPLES = 64 };
#define READ_BYTES (64 << 20)
#define CHECK_SECONDS 0.25

typedef struct reading {
    const checked_section *at;
    int64_t count; /* samples per read */
    void *data;
    int64_t index[READ_SAMPLES];
    int32_t labels[READ_SAMPLES];
} reading;

static dlc_status read_from(reading *r, int64_t first) {
    dlc_data_setup *data = r->at->data;
    const dlc_data_ops *ops = data->feature->ops;
    int64_t left = data->info.samples - first;
    int32_t count = (int32_t)(left < r->count ? left : r->count);
    for (int32_t i = 0; i < count; i++)
        r->index[i] = first + i;
    DLC_TRY(ops->read(data->source, count, r->index, r->data, r->labels));
    for (int32_t i = 0; i < count; i++)
        if (r->labels[i] > data->largest_label)
            data->largest_label = r->labels[i];
    return dlc_feed_check_labels(&data->info, r->index, r->labels, count);
}

static dlc_status read_samples(reading *r) {
    int64_t samples = r->at->data->info.samples, next = r->count;
    uint64_t begin = dlc_now_ns();
    DLC_TRY(read_from(r, 0));
    if (next < samples)
        DLC_TRY(read_from(r, samples - r->count));
    while (r->at->test && next < samples - r->count &&
           dlc_since(begin) < CHECK_SECONDS) {
        DLC_TRY(read_from(r, next));
        next += r->count;
    }
    return DLC_OK;
}

static dlc_status check_samples(const checked_section *at) {
    const dlc_data_info *info = &at->data->info;
    size_t bytes = (size_t)dlc_shape_count(&info->shape) * dlc_dtype_bytes(info->dtype);
    reading r = {.at = at, .count = READ_SAMPLES};
    if (bytes > READ_BYTES / READ_SAMPLES)
        r.count = bytes < READ_BYTES ? (int64_t)(READ_BYTES / bytes) : 1;
    if (r.count > info->samples)
        r.count = info->samples;
    r.data = dlc_alloc((size_t)r.count, bytes);
    if (!r.data)
        return DLC_ERR_NOMEM;
    dlc_status status = read_samples(&r);
    dlc_free(r.data);
    return report(at, "source", status);
}

/* ---- Sections ---------------------------------------------------------------- */

/* Checks that a feed can process these samples with these settings. */
static dlc_status check_feed(const checked_section *at) {
    dlc_feed_args args = first_batch(at);
    uint64_t bytes, batch;
    dlc_status status = dlc_feed_bytes(&args, &bytes, &batch);
    const char *key = at->data->info.shape.rank == 3
                          ? dlc_augment_misfit(&args.augment, &at->data->info.shape)
                          : NULL;
    return report(at, key ? key : "source", status);
}

static dlc_status check_section(const checked_section *at) {
    dlc_data_setup *data = at->data;
    if (!data->present || data->broken)
        return DLC_OK;
    dlc_status status = at->test ? dlc_classes_open_test(at->setup)
                                 : dlc_data_source_open(at->setup, data, NULL);
    if (status != DLC_OK) {
        status = report(at, "source", status);
        dlc_data_source_close(data);
        return status;
    }
    DLC_TRY(check_feed(at));
    return data->broken ? DLC_OK : check_samples(at);
}

/* "crop" or "pad", whichever differs between the two sections; NULL if neither does. */
static const char *differing_key(const dlc_setup *setup) {
    static const char *const keys[] = {"crop", "pad"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (dlc_settings_get_int(setup->train.settings, keys[i]) !=
            dlc_settings_get_int(setup->test.settings, keys[i]))
            return keys[i];
    return NULL;
}

static void report_difference(dlc_setup *setup, const dlc_shape *train,
                              const dlc_shape *test, dlc_problems *problems) {
    const char *key = differing_key(setup);
    const char *at = key ? key : "source";
    char advice[160] = "";
    if (key)
        (void)snprintf(advice, sizeof advice,
                       "; %s is %lld in [data] (%s) and %lld here: make them equal",
                       key, (long long)dlc_settings_get_int(setup->train.settings, key),
                       dlc_settings_where(setup->train.settings, key),
                       (long long)dlc_settings_get_int(setup->test.settings, key));
    (void)dlc_fail(
        DLC_ERR_DATA,
        "samples of [data.test] reach the net as %lldx%lldx%lld, but the net "
        "is built for those of [data], which are %lldx%lldx%lld%s",
        (long long)test->dims[0], (long long)test->dims[1], (long long)test->dims[2],
        (long long)train->dims[0], (long long)train->dims[1], (long long)train->dims[2],
        advice);
    dlc_problems_add_failure(problems, setup->config,
                             dlc_settings_line(setup->test.settings, at), "data.test",
                             key ? DLC_ERR_CONFIG : DLC_ERR_DATA);
    setup->test.broken = 1;
}

dlc_status dlc_setup_check_data(dlc_setup *setup, unsigned phases,
                                dlc_problems *problems) {
    checked_section train = {setup, problems, "data", &setup->train, 0};
    checked_section test = {setup, problems, "data.test", &setup->test, 1};
    dlc_shape of_train, of_test;
    if (phases & DLC_PHASE_TRAIN)
        DLC_TRY(check_section(&train));
    if (phases & DLC_PHASE_TEST)
        DLC_TRY(check_section(&test));
    if (!setup->train.source || setup->train.broken || !setup->test.source ||
        setup->test.broken)
        return DLC_OK;
    DLC_TRY(dlc_setup_sample_shape(&setup->train, &of_train));
    DLC_TRY(dlc_setup_sample_shape(&setup->test, &of_test));
    if (!dlc_shape_equal(&of_train, &of_test))
        report_difference(setup, &of_train, &of_test, problems);
    return DLC_OK;
}
