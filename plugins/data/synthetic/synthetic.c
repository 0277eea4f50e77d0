/* The data source "synthetic": samples generated from a seed and their number, for
 * timing and for tests that need no files. The same (seed, number) gives the same
 * sample on every machine and rank.
 *
 * "noise" is random bytes and labels. "blobs" shows, on noise, a few soft spots whose
 * positions and colours depend on the class, slightly shifted in each sample: a small
 * net learns it in seconds. Of these it can also tell where they are: `mask` is the
 * class of each pixel, plus one, or 0 where no spot is; `center` is the place of the
 * first spot, down and right; `boxes` are around the spots; with `labels` a sample
 * shows several classes, and has 1 for each.
 */
#include <string.h>

#include "blobs.h"
#include "noise.h"

#define SAMPLE_MOST ((int64_t)1 << 30) /* values */
#define SIDE_MOST 65536

const dlc_host *host;

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
    source->has_labels = host->get_bool(settings, "labels");
    const dlc_field more[] = {
        field_of(source, "mask", DLC_ROLE_MASK, DLC_U8,
                 (dlc_shape){2, {dims[1], dims[2]}}),
        field_of(source, "center", DLC_ROLE_VECTOR, DLC_F32, (dlc_shape){1, {2}}),
        field_of(source, "labels", DLC_ROLE_CLASSES, DLC_U8,
                 (dlc_shape){1, {source->classes}}),
        field_of(source, "boxes", DLC_ROLE_BOXES, DLC_F32,
                 (dlc_shape){2, {blobs_most(source), DLC_BOX_VALUES}})};
    source->fields = 2;
    source->field[0] = field_of(source, "image", DLC_ROLE_IMAGE, source->dtype,
                                source->shape);
    source->field[1] = field_of(source, "label", DLC_ROLE_CLASS, DLC_I32,
                                (dlc_shape){1, {1}});
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (host->get_bool(settings, more[i].name))
            source->field[source->fields++] = more[i];
    if (source->fields > 2 && (!source->blobs || source->classes >= UINT8_MAX))
        return host->fail(
            DLC_ERR_CONFIG,
            "%s: mask, center, labels and boxes tell where blobs are: they "
            "need kind = blobs, and fewer than %d classes",
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
        else if (field->role == DLC_ROLE_BOXES)
            wanted->boxes = memory[f];
    }
    wanted->image = memory[0]; /* image and class come first */
    *label = memory[1];
    return DLC_OK;
}

static dlc_status synthetic_read_sample(dlc_source *source, dlc_sample *sample) {
    int64_t number = source->first + sample->index;
    int32_t *label = NULL;
    wanted_fields wanted = {NULL};
    dlc_status status = take_fields(source, sample, &wanted, &label);
    if (status != DLC_OK)
        return status;
    if (label)
        *label = label_of(source, number);
    if (source->blobs)
        return blobs_make(source, number, label_of(source, number), &wanted);
    if (wanted.image)
        store_noise(source, number, wanted.image);
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
    DLC_BOOL("boxes", "no",
             "also a field `boxes`: the class of each blob, and the box around it"),
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
