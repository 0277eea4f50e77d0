/* Opens the data sections and reads their first samples as training would; called by
 * dlc_setup_open before anything is started. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/feed.h"
#include "data/loader.h"
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
static dlc_status report_data_mistake(const checked_section *at, const char *key,
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
    dlc_feed_args args;
    dlc_data_source_feed(data, &args);
    args.seed = at->setup->seed;
    args.count = (int32_t)data->batch;
    args.batch = data->batch;
    args.test = at->test;
    args.ranks = 1;
    return args;
}

/* ---- Samples ----------------------------------------------------------------- */

/* So many of the first samples, and of the last, are read; in a test as many of the
 * others as there is time for. */
enum { READ_SAMPLES = 64 };
#define CHECK_SECONDS 0.25

typedef struct reading {
    dlc_data_setup *data;
    dlc_read_sample read;
} reading;

static dlc_status read_samples(reading *r, int64_t first, int64_t end) {
    dlc_data_setup *data = r->data;
    for (int64_t i = first; i < end; i++) {
        dlc_status status = dlc_samples_read(&data->samples, i, 0, NULL, &r->read);
        DLC_TRY(dlc_samples_name_failure(&data->samples, i, status));
        if (r->read.label > data->largest_label)
            data->largest_label = r->read.label;
    }
    return DLC_OK;
}

static dlc_status read_ends_and_middle(reading *r, int test) {
    int64_t samples = r->data->info.samples;
    int64_t next = samples < READ_SAMPLES ? samples : READ_SAMPLES;
    int64_t last = samples - next > next ? samples - next : next;
    uint64_t begin = dlc_now_ns();
    DLC_TRY(read_samples(r, 0, next));
    DLC_TRY(read_samples(r, last, samples));
    for (; test && next < last && dlc_since(begin) < CHECK_SECONDS;
         next += READ_SAMPLES)
        DLC_TRY(read_samples(r, next,
                             next + READ_SAMPLES < last ? next + READ_SAMPLES : last));
    return DLC_OK;
}

/* Loads the first image file and the last, as training would. */
static dlc_status load_ends(const checked_section *at, dlc_loader *loader) {
    dlc_load_scratch scratch = {0};
    dlc_batch_layout layout;
    void *to[DLC_NET_FIELDS];
    DLC_TRY(dlc_batch_layout_make(loader, 1, &layout));
    void *sample = dlc_alloc(layout.bytes, 1);
    dlc_status status = sample ? DLC_OK : DLC_ERR_NOMEM;
    if (sample)
        dlc_batch_find(&layout, sample, 0, to);
    if (status == DLC_OK)
        status = dlc_loader_load(loader, &scratch, 0, 0, to);
    if (status == DLC_OK)
        status = dlc_loader_load(loader, &scratch, at->data->info.samples - 1, 0, to);
    dlc_load_scratch_free(&scratch);
    dlc_free(sample);
    return status;
}

static dlc_status check_files(const checked_section *at) {
    dlc_loader loader = {0};
    if (!dlc_samples_are_encoded(&at->data->samples))
        return DLC_OK;
    dlc_feed_args feed = first_batch(at);
    dlc_loader_args args = dlc_feed_loader_args(&feed);
    DLC_TRY(dlc_loader_open(&args, &loader));
    dlc_status status = load_ends(at, &loader);
    dlc_loader_close(&loader);
    return status;
}

/* Samples that may be skipped are left to the feed. */
static dlc_status check_samples(const checked_section *at) {
    reading r = {.data = at->data};
    int skips = dlc_settings_is(at->data->settings, "on_error", "skip");
    dlc_status status = read_ends_and_middle(&r, at->test);
    if (status == DLC_OK)
        status = check_files(at);
    dlc_read_sample_free(&r.read);
    if (status == DLC_ERR_DATA)
        status = skips ? DLC_OK : dlc_skips_advise();
    return report_data_mistake(at, "source", status);
}

/* ---- Sections ---------------------------------------------------------------- */

/* Checks that a feed can process these samples with these settings. */
static dlc_status check_feed(const checked_section *at) {
    dlc_feed_args args = first_batch(at);
    uint64_t bytes, batch;
    dlc_shape shape;
    DLC_TRY(report_data_mistake(at, "transforms",
                                dlc_setup_sample_shape(at->data, &shape)));
    if (at->data->broken)
        return DLC_OK;
    return report_data_mistake(at, "source", dlc_feed_bytes(&args, &bytes, &batch));
}

/* Means and deviations of images from 0 to 1, as torchvision has them, make huge values
 * of bytes. */
static void warn_of_scale(const checked_section *at) {
    const dlc_data_setup *data = at->data;
    const dlc_field *image = dlc_samples_field(&data->samples, data->samples.image);
    int64_t channels = image->role == DLC_ROLE_IMAGE ? image->shape.dims[0] : 0;
    dlc_text mean = {0}, std = {0};
    int is_unit = channels > 0 && image->dtype == DLC_U8;
    for (int64_t c = 0; c < channels; c++) {
        double center = (double)dlc_transforms_mean(data->transforms, c);
        double deviation = 1 / (double)dlc_transforms_scale(data->transforms, c);
        is_unit &= center > 0 && center <= 1 && deviation > 0 && deviation < 1;
        dlc_text_add(&mean, "%s%.4g", c ? ", " : "", 255 * center);
        dlc_text_add(&std, "%s%.4g", c ? ", " : "", 255 * deviation);
    }
    if (is_unit)
        dlc_warn("%s: [%s] normalize has mean and std of values from 0 to 1, but these "
                 "images are bytes, from 0 to 255: normalize(mean=(%s), std=(%s)) has "
                 "them for bytes",
                 dlc_settings_where(data->settings, "transforms"), at->name,
                 dlc_text_string(&mean), dlc_text_string(&std));
    dlc_text_free(&mean);
    dlc_text_free(&std);
}

static dlc_status check_section(const checked_section *at) {
    dlc_data_setup *data = at->data;
    if (!data->present || data->broken)
        return DLC_OK;
    dlc_status status = at->test ? dlc_classes_open_test(at->setup)
                                 : dlc_data_source_open(at->setup, data, NULL);
    if (status != DLC_OK) {
        status = report_data_mistake(at, "source", status);
        dlc_data_source_close(data);
        return status;
    }
    DLC_TRY(check_feed(at));
    if (data->broken)
        return DLC_OK;
    warn_of_scale(at);
    return check_samples(at);
}

static const char *transforms_of(const dlc_data_setup *data) {
    const char *text = dlc_settings_get_string(data->settings, "transforms");
    return text ? text : "none";
}

static void report_difference(dlc_setup *setup, const dlc_shape *train,
                              const dlc_shape *test, dlc_problems *problems) {
    /* Samples of one shape can only become different by transforms. */
    int by_source = !dlc_shape_equal(&setup->train.info.shape, &setup->test.info.shape);
    const char *key = by_source ? "source" : "transforms";
    char advice[512] = "";
    if (!by_source)
        (void)snprintf(advice, sizeof advice,
                       "; transforms are %s in [data] (%s) and %s here: make the sizes "
                       "equal",
                       transforms_of(&setup->train),
                       dlc_settings_where(setup->train.settings, "transforms"),
                       transforms_of(&setup->test));
    (void)dlc_fail(
        DLC_ERR_DATA,
        "samples of [data.test] reach the net as %lldx%lldx%lld, but the net "
        "is built for those of [data], which are %lldx%lldx%lld%s",
        (long long)test->dims[0], (long long)test->dims[1], (long long)test->dims[2],
        (long long)train->dims[0], (long long)train->dims[1], (long long)train->dims[2],
        advice);
    dlc_problems_add_failure(problems, setup->config,
                             dlc_settings_line(setup->test.settings, key), "data.test",
                             by_source ? DLC_ERR_DATA : DLC_ERR_CONFIG);
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
