/* Measures the samples of 3 x 227 x 227 per second that the data feed delivers, from
 * synthetic noise: as bytes, for devices that convert them to float32, and as float32.
 *
 *     feed_speed [THREADS]        (1)
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "data/feed.h"
#include "plugin/registry.h"

enum { BATCH = 64 };
static const double duration = 1.5; /* seconds */

static const struct {
    const char *name;
    const char *shape;
    int keep_bytes;
    const char *transforms;
} rows[] = {
    {"bytes, unchanged", "feature.shape=3,227,227", 1, "normalize(std=256)"},
    {"bytes, swapped", "feature.shape=3,227,227", 1, "mirror, normalize(std=256)"},
    {"bytes, cut and swapped", "feature.shape=3,256,256", 1,
     "random_crop(227), mirror, normalize(std=256)"},
    {"float32, unchanged", "feature.shape=3,227,227", 0, "normalize(std=256)"},
    {"float32, cut and swapped", "feature.shape=3,256,256", 0,
     "random_crop(227), mirror, normalize(std=256)"},
};

static dlc_status make_settings(const dlc_feature *feature, const char *shape,
                                dlc_settings **settings) {
    const char *const reserved[] = {"feature", NULL};
    const char *const sets[] = {"feature.kind=noise", shape};
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_status status = dlc_config_load(NULL, reserved, sets, 2, &problems, &config);
    if (status == DLC_OK)
        status = dlc_settings_make(config, "feature", &feature->options, 1, &problems,
                                   settings);
    dlc_problems_free(&problems);
    dlc_config_free(config);
    return status;
}

/* The first batches are prefetched, so they aren't measured. */
static dlc_status time_feed(const dlc_feed_args *args, double *rate) {
    dlc_feed *feed = NULL;
    dlc_batch batch;
    DLC_TRY(dlc_feed_open(args, &feed));
    dlc_status status = DLC_OK;
    for (int i = 0; status == DLC_OK && i < 8; i++)
        status = dlc_feed_next(feed, &batch);
    uint64_t start = dlc_now_ns();
    int64_t batches = 0;
    for (; status == DLC_OK && dlc_since(start) < duration; batches++)
        status = dlc_feed_next(feed, &batch);
    *rate = (double)(batches * BATCH) / dlc_since(start);
    dlc_feed_close(feed);
    return status;
}

static dlc_status measure(const dlc_feature *feature, size_t row, int32_t threads) {
    const dlc_data_ops *ops = feature->ops;
    dlc_settings *settings = NULL;
    dlc_source *source = NULL;
    dlc_transforms *transforms = NULL;
    dlc_problems problems = {0};
    double rate = 0;
    DLC_TRY(make_settings(feature, rows[row].shape, &settings));
    dlc_data_args how = {.size = sizeof how, .settings = settings, .seed = 1};
    dlc_status status = dlc_transforms_parse(rows[row].transforms, NULL, "data",
                                             &problems, &transforms);
    if (status == DLC_OK)
        status = dlc_problems_report(&problems);
    if (status == DLC_OK)
        status = ops->open(&how, &source);
    dlc_feed_args args = {.ops = ops,
                          .source = source,
                          .transforms = transforms,
                          .shuffle = 1,
                          .threads = threads,
                          .keep_bytes = rows[row].keep_bytes,
                          .count = BATCH,
                          .batch = BATCH};
    if (status == DLC_OK)
        status = time_feed(&args, &rate);
    if (status == DLC_OK)
        printf("%-28s %9.0f samples/s, %d threads\n", rows[row].name, rate,
               (int)threads);
    ops->close(source);
    dlc_problems_free(&problems);
    dlc_transforms_free(transforms);
    dlc_settings_free(settings);
    return status;
}

int main(int argc, char **argv) {
    const dlc_feature *feature = NULL;
    dlc_registry *registry = NULL;
    int32_t threads = argc > 1 ? atoi(argv[1]) : 1;

    dlc_status status = dlc_registry_open(&registry);
    if (status == DLC_OK)
        status = dlc_registry_find(registry, DLC_KIND_DATA, "synthetic", NULL,
                                   &feature);
    for (size_t i = 0; status == DLC_OK && i < sizeof rows / sizeof *rows; i++)
        status = measure(feature, i, threads);
    if (status != DLC_OK)
        fprintf(stderr, "feed_speed: %s\n", dlc_detail());
    dlc_registry_close(registry);
    return status == DLC_OK ? 0 : 1;
}
