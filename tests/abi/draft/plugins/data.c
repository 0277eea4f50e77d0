/* The data source "draft-data": bars. A sample is a noisy grey image with one bright
 * vertical bar. The image has as many places for the bar as there are classes, and the
 * label is the place of the bar.
 *
 * Samples are generated from the job's seed and the number of the sample, so that a
 * number stands for the same sample on every rank and in every run. A source that reads
 * files checks them in open and reports damage there: DLC_ERR_DATA and a sentence. */
#include <dlcore/data.h>

#include <string.h>

static const dlc_host *host;

struct dlc_source {
    uint64_t seed;
    int64_t samples;
    int64_t first; /* number of the first sample in the endless sequence */
    int64_t side;  /* height and width of an image */
    int32_t classes;
};

/* The mixing function of SplitMix64 (Steele et al., "Fast Splittable Pseudorandom
 * Number Generators", OOPSLA 2014). */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* A random number that depends on the seed, the sample and i alone. */
static uint64_t random_number(const dlc_source *source, int64_t sample, int64_t i) {
    return mix(mix(mix(source->seed) ^ (uint64_t)sample) + (uint64_t)i);
}

static dlc_status bars_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static void bars_close(dlc_source *source) {
    host->free(source);
}

static dlc_status bars_open(const dlc_data_args *args, dlc_source **source) {
    const dlc_settings *settings = args->settings;
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->seed = args->seed;
    made->samples = host->get_int(settings, "samples");
    made->first = host->get_int(settings, "first");
    made->side = host->get_int(settings, "side");
    made->classes = (int32_t)host->get_int(settings, "classes");
    if (made->side < made->classes) {
        dlc_status rc = host->fail(
            DLC_ERR_CONFIG, "%s: side = %lld is too small for %d classes",
            host->where(settings, "side"), (long long)made->side, made->classes);
        bars_close(made);
        return rc;
    }
    *source = made;
    return DLC_OK;
}

static dlc_status bars_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = source->samples;
    info->shape = (dlc_shape){3, {1, source->side, source->side}};
    info->dtype = DLC_U8;
    info->classes = source->classes;
    return DLC_OK;
}

/* Generates the pixels of a sample and returns its label. */
static int32_t make_sample(const dlc_source *source, int64_t sample,
                           unsigned char *pixels) {
    int64_t side = source->side, width = side / source->classes;
    int32_t label = (int32_t)(random_number(source, sample, -1) %
                              (uint64_t)source->classes);
    for (int64_t i = 0; i < side * side; i++) {
        unsigned noise = (unsigned)(random_number(source, sample, i) & 127);
        int bright = i % side / width == label;
        pixels[i] = (unsigned char)(noise + (bright ? 128 : 0));
    }
    return label;
}

static dlc_status bars_read(dlc_source *source, int32_t n, const int64_t *index,
                            void *data, int32_t *labels) {
    unsigned char *pixels = data;
    for (int32_t i = 0; i < n; i++, pixels += source->side * source->side)
        labels[i] = make_sample(source, source->first + index[i], pixels);
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_INT("samples", "10000", 1, 1e12, "number of samples"),
    DLC_INT("first", "0", 0, 1e12,
            "number of the first sample, to take other samples for the test"),
    DLC_INT("side", "16", 1, 4096, "height and width of an image"),
    DLC_INT("classes", "4", 2, 4096, "number of classes"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof ops,
    .open = bars_open,
    .close = bars_close,
    .describe = bars_describe,
    .read = bars_read,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "draft-data",
     .help = "images with a bright bar, generated from the seed",
     .caps = DLC_DATA_CONCURRENT, /* read changes nothing in the source */
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("draft-data", PLUGIN_VERSION, "BSD-2-Clause", features, bars_load);
