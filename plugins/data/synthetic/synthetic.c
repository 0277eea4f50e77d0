/* The data source "synthetic": samples generated from a seed and their number, for
 * timing and for tests that need no files. The same (seed, number) gives the same
 * sample on every machine and rank.
 *
 * "noise" is random bytes and labels. "blobs" shows, on noise, a few soft spots whose
 * positions and colours depend on the class, slightly shifted in each sample: a small
 * net learns it in seconds.
 */
#include <dlcore/data.h>

#include <endian.h>
#include <string.h>

#define SPOTS 3
#define SAMPLE_MOST ((int64_t)1 << 30) /* values */
#define SIDE_MOST 65536

static const dlc_host *host;

struct dlc_source {
    uint64_t seed;
    int64_t samples, first;
    int32_t classes;
    dlc_shape shape;
    dlc_dtype dtype;
    int blobs;
};

/* The memory in which one sample is drawn. */
typedef struct canvas {
    float *values; /* 0 .. 255 */
    float *across; /* of a row */
} canvas;

/* ---- Random numbers by counter -------------------------------------------------- */

/* Word `counter` of (seed, stream): the mixing function of SplitMix64 (Steele et al.,
 * "Fast splittable pseudorandom number generators", OOPSLA 2014), applied three times.
 */
static uint64_t mix(uint64_t word) {
    word += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

/* The start of a stream: its words are mix(start + counter). */
static uint64_t stream_start(uint64_t seed, uint64_t stream) {
    return mix(mix(seed) ^ stream);
}

static uint64_t random_word(uint64_t seed, uint64_t stream, uint64_t counter) {
    return mix(stream_start(seed, stream) + counter);
}

/* [0, 1) */
static float unit(uint64_t word) {
    return (float)(word >> 40) * 0x1p-24f;
}

/* Streams: each sample has one for its label, shift and noise, each class one for its
 * spots. */
static uint64_t sample_stream(int64_t sample) {
    return (uint64_t)sample << 1;
}

static uint64_t class_stream(int32_t label) {
    return (uint64_t)label << 1 | 1;
}

/* ---- Samples ------------------------------------------------------------- */

/* Counters of a sample's stream; noise comes after them. */
enum { AT_LABEL, AT_DOWN, AT_RIGHT, AT_NOISE };

/* Compiled for each instruction set: integer arithmetic gives the same result on each.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define CLONES
#endif

CLONES static void make_words(uint64_t start, size_t count, unsigned char *bytes) {
    for (size_t i = 0; i < count; i++) {
        uint64_t word = htole64(mix(start + i));
        memcpy(bytes + 8 * i, &word, 8);
    }
}

/* Random bytes, eight per word, the lowest first. Training is timed with this, so it
 * must not take longer than the training. */
static void make_noise(const dlc_source *source, int64_t sample, unsigned char *bytes) {
    uint64_t start = stream_start(source->seed, sample_stream(sample)) + AT_NOISE;
    size_t count = (size_t)dlc_shape_count(&source->shape), whole = count / 8;
    uint64_t last = htole64(mix(start + whole));
    make_words(start, whole, bytes);
    memcpy(bytes + 8 * whole, &last, count % 8);
}

/* The noise of make_noise as floats, low + step * byte. The bytes are generated at the
 * end of the buffer of floats, and each is read before a float overwrites it. */
static void make_noise_floats(const dlc_source *source, int64_t sample, float low,
                              float step, float *floats) {
    size_t count = (size_t)dlc_shape_count(&source->shape);
    unsigned char *bytes = (unsigned char *)floats + count * (sizeof *floats - 1);
    make_noise(source, sample, bytes);
    for (size_t i = 0; i < count; i++)
        floats[i] = low + step * (float)bytes[i];
}

static void store_noise(const dlc_source *source, int64_t sample, void *data) {
    if (source->dtype == DLC_U8)
        make_noise(source, sample, data);
    else
        make_noise_floats(source, sample, 0, 1.0f / 255, data);
}

/* Intensity of a spot at i: 1 in its centre, falling on both sides. Uses no function of
 * libm, so that it is the same on every machine. */
static float bell(int64_t i, float centre, float width) {
    float distance = ((float)i - centre) / width;
    float inverse = 1 + distance * distance;
    return 1 / (inverse * inverse);
}

/* Draws one spot of the class, in all channels. */
static void add_spot(const dlc_source *source, int32_t label, int spot, float down,
                     float right, const canvas *on) {
    float *values = on->values;
    uint64_t stream = class_stream(label);
    int64_t channels = source->shape.dims[0];
    int64_t height = source->shape.dims[1], width = source->shape.dims[2];
    uint64_t at = (uint64_t)spot * (uint64_t)(3 + channels);
    float y = 0.2f + 0.6f * unit(random_word(source->seed, stream, at)) + down;
    float x = 0.2f + 0.6f * unit(random_word(source->seed, stream, at + 1)) + right;
    float wide = 0.08f + 0.12f * unit(random_word(source->seed, stream, at + 2));
    float side = (float)(height < width ? height : width);
    for (int64_t i = 0; i < width; i++)
        on->across[i] = bell(i, x * (float)width, wide * side + 0.5f);
    for (int64_t c = 0; c < channels; c++) {
        uint64_t word = random_word(source->seed, stream, at + 3 + (uint64_t)c);
        float colour = 160 * unit(word) - 80;
        for (int64_t i = 0; i < height; i++) {
            float weight = colour * bell(i, y * (float)height, wide * side + 0.5f);
            for (int64_t j = 0; j < width; j++)
                values[j] += weight * on->across[j];
            values += width;
        }
    }
}

static void make_values(const dlc_source *source, int64_t sample, int32_t label,
                        const canvas *on) {
    uint64_t stream = sample_stream(sample);
    float down = 0.2f * unit(random_word(source->seed, stream, AT_DOWN)) - 0.1f;
    float right = 0.2f * unit(random_word(source->seed, stream, AT_RIGHT)) - 0.1f;
    make_noise_floats(source, sample, 96, 64.0f / 255, on->values);
    for (int spot = 0; spot < SPOTS; spot++)
        add_spot(source, label, spot, down, right, on);
}

static float clamp(float value) {
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

static void store(const dlc_source *source, const float *values, void *data) {
    int64_t count = dlc_shape_count(&source->shape);
    if (source->dtype == DLC_U8) {
        unsigned char *bytes = data;
        for (int64_t i = 0; i < count; i++)
            bytes[i] = (unsigned char)(clamp(values[i]) + 0.5f);
    } else {
        float *floats = data;
        for (int64_t i = 0; i < count; i++)
            floats[i] = clamp(values[i]) * (1.0f / 255);
    }
}

/* ---- Operations -------------------------------------------------------------- */

static dlc_status read_shape(const dlc_settings *settings, dlc_shape *shape) {
    const int64_t *dims = NULL;
    size_t count = host->get_ints(settings, "shape", &dims);
    if (count != 3)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: shape has %zu numbers, but takes three: channels, "
                          "height, width",
                          host->where(settings, "shape"), count);
    *shape = (dlc_shape){3, {dims[0], dims[1], dims[2]}};
    /* each is at most 2^16: no overflow */
    if (dlc_shape_count(shape) > SAMPLE_MOST)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: shape: a sample of %lld values is too "
                          "large; %lld are allowed",
                          host->where(settings, "shape"),
                          (long long)dlc_shape_count(shape), (long long)SAMPLE_MOST);
    return DLC_OK;
}

static void synthetic_close(dlc_source *source) {
    host->free(source);
}

static dlc_status synthetic_open(const dlc_data_args *args, dlc_source **source) {
    const dlc_settings *settings = args->settings;
    dlc_shape shape = {0};
    dlc_status status = read_shape(settings, &shape);
    if (status != DLC_OK)
        return status;
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->seed = args->seed;
    made->shape = shape;
    made->samples = host->get_int(settings, "samples");
    made->first = host->get_int(settings, "first");
    made->classes = (int32_t)host->get_int(settings, "classes");
    made->blobs = strcmp(host->get_string(settings, "kind"), "blobs") == 0;
    made->dtype = strcmp(host->get_string(settings, "element"), "u8") == 0 ? DLC_U8
                                                                           : DLC_F32;
    *source = made;
    return DLC_OK;
}

static dlc_status synthetic_describe(dlc_source *source, dlc_data_info *info) {
    dlc_data_info ours = {
        .size = info->size,
        .samples = source->samples,
        .shape = source->shape,
        .dtype = source->dtype,
        .classes = source->classes,
    };
    memcpy(info, &ours, ours.size < sizeof ours ? ours.size : sizeof ours);
    return DLC_OK;
}

static dlc_status synthetic_read(dlc_source *source, int32_t n, const int64_t *index,
                                 void *data, int32_t *labels) {
    size_t count = (size_t)dlc_shape_count(&source->shape);
    size_t bytes = count * dlc_dtype_bytes(source->dtype);
    canvas paper = {0};
    if (source->blobs) {
        paper.values = host->alloc((count + (size_t)source->shape.dims[2]) *
                                   sizeof *paper.values);
        if (!paper.values)
            return DLC_ERR_NOMEM;
        paper.across = paper.values + count;
    }
    for (int32_t i = 0; i < n; i++) {
        int64_t sample = source->first + index[i];
        uint64_t word = random_word(source->seed, sample_stream(sample), AT_LABEL);
        labels[i] = (int32_t)(word % (uint64_t)source->classes);
        if (source->blobs) {
            make_values(source, sample, labels[i], &paper);
            store(source, paper.values, (char *)data + (size_t)i * bytes);
        } else {
            store_noise(source, sample, (char *)data + (size_t)i * bytes);
        }
    }
    host->free(paper.values);
    return DLC_OK;
}

static dlc_status synthetic_start(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_INTS("shape", "3,32,32", 1, SIDE_MOST, "channels, height, width of a sample"),
    DLC_INT("classes", "10", 1, 1000000, "number of classes"),
    DLC_INT("samples", "50000", 1, 1e12, "number of samples"),
    DLC_INT(
        "first", "0", 0, 1e12,
        "number of the first sample; gives a test set other samples of the same kind"),
    DLC_CHOICE("kind", "blobs", "noise|blobs",
               "random bytes, or patterns that a net can learn"),
    DLC_CHOICE("element", "u8", "u8|float32", "bytes 0 to 255, or float32 0 to 1"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = synthetic_open,
    .close = synthetic_close,
    .describe = synthetic_describe,
    .read = synthetic_read,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "synthetic",
     .help = "samples generated from a seed, for timing and tests",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v0 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "synthetic",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = synthetic_start,
};
