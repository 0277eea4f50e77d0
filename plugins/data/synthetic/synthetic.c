/* The data source "synthetic": samples generated from a seed and their number, for
 * timing and for tests that need no files. The same (seed, number) gives the same
 * sample on every machine and rank.
 *
 * "noise" is random bytes and labels. "blobs" shows, on noise, a few soft spots whose
 * positions and colours depend on the class, slightly shifted in each sample: a small
 * net learns it in seconds. Of these it can also tell where they are: `mask` is the
 * class of each pixel, plus one, or 0 where no spot is; `center` is the place of the
 * first spot, down and right; with `labels` a sample shows several classes, and has 1
 * for each.
 */
#include <dlcore/data.h>

#include <endian.h>
#include <string.h>

#define SPOTS 3
#define FIELDS 5
#define SAMPLE_MOST ((int64_t)1 << 30) /* values */
#define SIDE_MOST 65536

static const dlc_host *host;

struct dlc_source {
    uint64_t seed;
    int64_t samples, first;
    int32_t classes;
    dlc_shape shape;
    dlc_dtype dtype;
    int blobs, has_labels;
    int32_t fields;
    dlc_field field[FIELDS];
};

/* The fields of a sample that a caller wants; NULL: not this one. */
typedef struct wanted_fields {
    void *image;
    unsigned char *mask, *labels;
    float *center;
} wanted_fields;

/* The memory in which one sample is drawn. */
typedef struct canvas {
    float *values;       /* 0 .. 255 */
    float *across;       /* of a row */
    unsigned char *mask; /* NULL: not wanted */
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

/* Whether a sample shows a class that is not its label. */
static int shows_too(const dlc_source *source, int64_t sample, int32_t other) {
    uint64_t stream = sample_stream(sample) | UINT64_C(1) << 63;
    return unit(random_word(source->seed, stream, (uint64_t)other)) < 0.25f;
}

static int shows(const dlc_source *source, int64_t sample, int32_t label,
                 int32_t other) {
    return other == label || (source->has_labels && shows_too(source, sample, other));
}

/* ---- Samples ------------------------------------------------------------- */

/* Counters of a sample's stream; noise comes after them. */
enum { AT_LABEL, AT_DOWN, AT_RIGHT, AT_NOISE };

/* Compiled for each instruction set: integer arithmetic gives the same result on each.
 * Not with the thread sanitizer, which is not ready when the loader chooses one. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
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

/* Marks where a spot has at least half of its strength. */
static void mark_spot(const dlc_source *source, int32_t label, float y, float wide,
                      const canvas *on) {
    int64_t height = source->shape.dims[1], width = source->shape.dims[2];
    for (int64_t i = 0; i < height; i++) {
        float weight = bell(i, y, wide);
        for (int64_t j = 0; j < width; j++)
            if (weight * on->across[j] > 0.5f)
                on->mask[i * width + j] = (unsigned char)(label + 1);
    }
}

/* Where the spots of a class are, before the sample's own shift. */
static float spot_place(const dlc_source *source, int32_t label, int spot, int axis) {
    uint64_t at = (uint64_t)spot * (uint64_t)(3 + source->shape.dims[0]);
    uint64_t word = random_word(source->seed, class_stream(label), at + (uint64_t)axis);
    return 0.2f + 0.6f * unit(word);
}

/* Draws one spot of the class, in all channels. */
static void add_spot(const dlc_source *source, int32_t label, int spot, float down,
                     float right, const canvas *on) {
    float *values = on->values;
    uint64_t stream = class_stream(label);
    int64_t channels = source->shape.dims[0];
    int64_t height = source->shape.dims[1], width = source->shape.dims[2];
    uint64_t at = (uint64_t)spot * (uint64_t)(3 + channels);
    float y = spot_place(source, label, spot, 0) + down;
    float x = spot_place(source, label, spot, 1) + right;
    float wide = 0.08f + 0.12f * unit(random_word(source->seed, stream, at + 2));
    float side = (float)(height < width ? height : width);
    for (int64_t i = 0; i < width; i++)
        on->across[i] = bell(i, x * (float)width, wide * side + 0.5f);
    if (on->mask)
        mark_spot(source, label, y * (float)height, wide * side + 0.5f, on);
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

/* How far the spots of a sample are shifted. */
static float shift(const dlc_source *source, int64_t sample, uint64_t counter) {
    return 0.2f * unit(random_word(source->seed, sample_stream(sample), counter)) -
           0.1f;
}

static void make_values(const dlc_source *source, int64_t sample, int32_t label,
                        const canvas *on) {
    float down = shift(source, sample, AT_DOWN),
          right = shift(source, sample, AT_RIGHT);
    make_noise_floats(source, sample, 96, 64.0f / 255, on->values);
    int32_t first = source->has_labels ? 0 : label;
    int32_t end = source->has_labels ? source->classes : label + 1;
    for (int32_t other = first; other < end; other++)
        for (int spot = 0; spot < SPOTS && shows(source, sample, label, other); spot++)
            add_spot(source, other, spot, down, right, on);
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

static dlc_field field_of(const dlc_source *source, const char *name, dlc_role role,
                          dlc_dtype dtype, dlc_shape shape) {
    return (dlc_field){.size = sizeof(dlc_field),
                       .role = role,
                       .dtype = dtype,
                       .name = name,
                       .shape = shape,
                       .classes = role == DLC_ROLE_MASK ? source->classes + 1
                                                        : source->classes};
}

/* The fields beside image and class that the settings ask for. */
static dlc_status choose_fields(const dlc_settings *settings, dlc_source *source) {
    const int64_t *dims = source->shape.dims;
    const dlc_field more[] = {
        field_of(source, "mask", DLC_ROLE_MASK, DLC_U8,
                 (dlc_shape){2, {dims[1], dims[2]}}),
        field_of(source, "center", DLC_ROLE_VECTOR, DLC_F32, (dlc_shape){1, {2}}),
        field_of(source, "labels", DLC_ROLE_CLASSES, DLC_U8,
                 (dlc_shape){1, {source->classes}})};
    source->fields = 2;
    source->field[0] = field_of(source, "image", DLC_ROLE_IMAGE, source->dtype,
                                source->shape);
    source->field[1] = field_of(source, "label", DLC_ROLE_CLASS, DLC_I32,
                                (dlc_shape){1, {1}});
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (host->get_bool(settings, more[i].name))
            source->field[source->fields++] = more[i];
    source->has_labels = host->get_bool(settings, "labels");
    if (source->fields > 2 && (!source->blobs || source->classes >= UINT8_MAX))
        return host->fail(DLC_ERR_CONFIG,
                          "%s: mask, center and labels tell where blobs are: they need "
                          "kind = blobs, and fewer than %d classes",
                          host->where(settings, source->field[2].name), UINT8_MAX);
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
    status = choose_fields(settings, made);
    if (status != DLC_OK) {
        synthetic_close(made);
        return status;
    }
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
        .fields = source->field,
        .field_count = source->fields,
    };
    memcpy(info, &ours, ours.size < sizeof ours ? ours.size : sizeof ours);
    return DLC_OK;
}

static int32_t label_of(const dlc_source *source, int64_t sample) {
    uint64_t word = random_word(source->seed, sample_stream(sample), AT_LABEL);
    return (int32_t)(word % (uint64_t)source->classes);
}

/* Memory for drawing; paper->values is to be freed. */
static dlc_status take_paper(const dlc_source *source, canvas *paper) {
    size_t count = (size_t)dlc_shape_count(&source->shape);
    paper->values = host->alloc((count + (size_t)source->shape.dims[2]) *
                                sizeof *paper->values);
    if (!paper->values)
        return DLC_ERR_NOMEM;
    paper->across = paper->values + count;
    return DLC_OK;
}

static void make_fields(const dlc_source *source, int64_t sample, int32_t label,
                        const wanted_fields *wanted, canvas *paper) {
    const int64_t *dims = source->shape.dims;
    paper->mask = wanted->mask;
    if (wanted->mask)
        memset(wanted->mask, 0, (size_t)(dims[1] * dims[2]));
    if (wanted->image || wanted->mask)
        make_values(source, sample, label, paper);
    if (wanted->image)
        store(source, paper->values, wanted->image);
    if (wanted->center) {
        wanted->center[0] = spot_place(source, label, 0, 0) +
                            shift(source, sample, AT_DOWN);
        wanted->center[1] = spot_place(source, label, 0, 1) +
                            shift(source, sample, AT_RIGHT);
    }
    for (int32_t other = 0; wanted->labels && other < source->classes; other++)
        wanted->labels[other] = (unsigned char)shows(source, sample, label, other);
}

/* Takes memory for the fields that are asked for. */
static dlc_status take_fields(const dlc_source *source, dlc_sample *sample,
                              wanted_fields *wanted, int32_t **label) {
    void *memory[FIELDS] = {NULL};
    for (int32_t f = 0; f < source->fields; f++) {
        const dlc_field *field = &source->field[f];
        if (!(sample->wanted >> f & 1))
            continue;
        memory[f] = sample->memory(sample, f,
                                   (uint64_t)dlc_shape_count(&field->shape) *
                                       dlc_dtype_bytes((dlc_dtype)field->dtype));
        if (!memory[f])
            return DLC_ERR_NOMEM;
        if (field->role == DLC_ROLE_MASK)
            wanted->mask = memory[f];
        else if (field->role == DLC_ROLE_VECTOR)
            wanted->center = memory[f];
        else if (field->role == DLC_ROLE_CLASSES)
            wanted->labels = memory[f];
    }
    wanted->image = memory[0]; /* image and class come first */
    *label = memory[1];
    return DLC_OK;
}

static dlc_status synthetic_read_sample(dlc_source *source, dlc_sample *sample) {
    int64_t number = source->first + sample->index;
    int32_t *label = NULL;
    wanted_fields wanted = {NULL};
    canvas paper = {0};
    dlc_status status = take_fields(source, sample, &wanted, &label);
    if (status == DLC_OK && source->blobs)
        status = take_paper(source, &paper);
    if (status != DLC_OK)
        return status;
    if (label)
        *label = label_of(source, number);
    if (source->blobs)
        make_fields(source, number, label_of(source, number), &wanted, &paper);
    else if (wanted.image)
        store_noise(source, number, wanted.image);
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
    DLC_BOOL(
        "mask", "no",
        "also a field `mask`: for each pixel 0, or 1 + the class of the blob there"),
    DLC_BOOL("center", "no",
             "also a field `center`: where the first blob is, down and right, 0 to 1"),
    DLC_BOOL(
        "labels", "no",
        "show blobs of several classes, with a field `labels`: 1 for each of them"),
    DLC_CHOICE("element", "u8", "u8|float32", "bytes 0 to 255, or float32 0 to 1"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = synthetic_open,
    .close = synthetic_close,
    .describe = synthetic_describe,
    .read_sample = synthetic_read_sample,
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

DLC_PLUGIN("synthetic", DLC_VERSION, "BSD-2-Clause", features, synthetic_start);
