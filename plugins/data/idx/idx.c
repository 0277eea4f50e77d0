/* The data source "idx": images and labels in the format of MNIST, held in memory. This
 * file has the operations and the descriptor; file.c reads the files. */
#include "idx.h"

#include <math.h>
#include <string.h>

#include "../shared/record.h"

const dlc_host *host;

struct dlc_source {
    idx_file images, labels;
    size_t sample_bytes;
    dlc_data_info info;
};

/* Converts from big endian to the machine's order; NaN and infinity are refused. */
static dlc_status decode_floats(idx_file *images) {
    size_t count = (images->size - images->begin) / sizeof(float);
    unsigned char *at = images->bytes + images->begin;
    for (size_t i = 0; i < count; i++, at += sizeof(float)) {
        uint32_t bits = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
                        (uint32_t)at[2] << 8 | at[3];
        float value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            return host->fail(DLC_ERR_DATA, "%s: the float32 at byte %zu is %g",
                              images->path, (size_t)(at - images->bytes),
                              (double)value);
        memcpy(at, &value, sizeof value);
    }
    return DLC_OK;
}

static dlc_status open_images(dlc_source *source, const char *path) {
    idx_file *images = &source->images;
    dlc_status status = idx_load(path, images);
    if (status != DLC_OK)
        return status;
    if (images->rank < 3)
        return host->fail(
            DLC_ERR_DATA,
            "%s: byte 3 gives %d dimension(s), but images have 3 (number, "
            "height, width) or 4 (number, channels, height, width)",
            path, images->rank);
    dlc_data_info *info = &source->info;
    info->samples = images->dims[0];
    info->shape = (dlc_shape){3, {1, images->dims[1], images->dims[2]}};
    if (images->rank == 4)
        memcpy(info->shape.dims, images->dims + 1, 3 * sizeof images->dims[0]);
    info->dtype = images->type == IDX_F32 ? DLC_F32 : DLC_U8;
    source->sample_bytes = (size_t)dlc_shape_count(&info->shape) *
                           images->element_bytes;
    return info->dtype == DLC_F32 ? decode_floats(images) : DLC_OK;
}

/* Checks that labels are below `classes`; 0: the largest label determines the number of
 * classes. */
static dlc_status check_labels(dlc_source *source, int32_t classes) {
    const idx_file *labels = &source->labels;
    int32_t largest = 0;
    for (size_t i = labels->begin; i < labels->size; i++) {
        int32_t label = labels->bytes[i];
        if (classes && label >= classes)
            return host->fail(
                DLC_ERR_DATA,
                "%s: label %d at byte %zu (sample %zu) is not one of the %d "
                "classes 0 to %d",
                labels->path, label, i, i - labels->begin, classes, classes - 1);
        if (label > largest)
            largest = label;
    }
    source->info.classes = classes ? classes : largest + 1;
    return DLC_OK;
}

static dlc_status open_labels(dlc_source *source, const char *path, int32_t classes) {
    idx_file *labels = &source->labels;
    dlc_status status = idx_load(path, labels);
    if (status != DLC_OK)
        return status;
    if (labels->rank != 1 || labels->type != IDX_U8)
        return host->fail(
            DLC_ERR_DATA,
            "%s: bytes 2 and 3 are %02x %02x, but labels are 08 01 (bytes, "
            "one dimension)",
            path, labels->type, labels->rank);
    if (labels->dims[0] != source->info.samples)
        return host->fail(DLC_ERR_DATA, "%s has %lld labels, but %s has %lld images",
                          path, (long long)labels->dims[0], source->images.path,
                          (long long)source->info.samples);
    return check_labels(source, classes);
}

static void idx_close(dlc_source *source) {
    if (!source)
        return;
    idx_unload(&source->labels);
    idx_unload(&source->images);
    host->free(source);
}

static dlc_status idx_open(const dlc_data_args *args, dlc_source **source) {
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    const dlc_settings *settings = args->settings;
    dlc_status status = open_images(made, host->get_string(settings, "images"));
    if (status == DLC_OK)
        status = open_labels(made, host->get_string(settings, "labels"),
                             (int32_t)host->get_int(settings, "classes"));
    if (status != DLC_OK) {
        idx_close(made);
        return status;
    }
    *source = made;
    return DLC_OK;
}

static dlc_status idx_describe(dlc_source *source, dlc_data_info *info) {
    uint32_t size = info->size;
    source->info.size = size;
    memcpy(info, &source->info, size < sizeof *info ? size : sizeof *info);
    return DLC_OK;
}

static dlc_status idx_read(dlc_source *source, int32_t n, const int64_t *index,
                           void *data, int32_t *labels) {
    const unsigned char *images = source->images.bytes + source->images.begin;
    const unsigned char *numbers = source->labels.bytes + source->labels.begin;
    size_t bytes = source->sample_bytes;
    for (int32_t i = 0; i < n; i++) {
        if (i + 1 < n)
            record_fetch(images + (size_t)index[i + 1] * bytes, bytes);
        memcpy((char *)data + (size_t)i * bytes, images + (size_t)index[i] * bytes,
               bytes);
        labels[i] = numbers[index[i]];
    }
    return DLC_OK;
}

static dlc_status idx_start(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_PATH_REQUIRED("images", "IDX file of the images, plain or compressed by gzip"),
    DLC_PATH_REQUIRED("labels",
                      "IDX file of their labels, plain or compressed by gzip"),
    DLC_INT("classes", "0", 0, 256, "number of classes; 0: largest label + 1"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = idx_open,
    .close = idx_close,
    .describe = idx_describe,
    .read = idx_read,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "idx",
     .help = "IDX files, the format of MNIST, plain or .gz",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("idx", DLC_VERSION, "BSD-2-Clause", features, idx_start);
