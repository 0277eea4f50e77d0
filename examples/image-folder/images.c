/* The data source "image-folder": JPEG and PNG files, with one folder for each class,
 * as in many data sets. The classes of the training data are its folders, sorted by
 * name, or those of the setting `classes`. Test data has the same classes, even if it
 * lacks the folder of one. Every image is resized to `shape`.
 *
 * open checks the headers of all files, so that a damaged file is reported before
 * training begins; pixels are read when they are needed. */
#include "images.h"

const dlc_host *host;

struct dlc_source {
    listing list;
    dlc_shape shape;
    buffer file, work;
    picture picture;
};

static dlc_status images_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static void images_close(dlc_source *source) {
    if (!source)
        return;
    listing_free(&source->list);
    buffer_free(&source->file);
    buffer_free(&source->work);
    buffer_free(&source->picture.pixels);
    host->free(source);
}

static dlc_status read_shape(const dlc_settings *settings, dlc_shape *shape) {
    const int64_t *dims = NULL;
    size_t count = host->get_ints(settings, "shape", &dims);
    if (count != 3 || (dims[0] != 1 && dims[0] != 3))
        return host->fail(DLC_ERR_CONFIG,
                          "%s: shape needs three numbers: 1 or 3 channels, height, "
                          "width",
                          host->where(settings, "shape"));
    *shape = (dlc_shape){3, {dims[0], dims[1], dims[2]}};
    return DLC_OK;
}

/* Checks the headers of all files. */
static dlc_status check_files(dlc_source *source) {
    dlc_status rc = DLC_OK;
    for (int64_t i = 0; rc == DLC_OK && i < source->list.count; i++)
        rc = picture_read(source->list.entries[i].path, (int32_t)source->shape.dims[0],
                          1, &source->file, &source->picture);
    return rc;
}

static dlc_status images_open(const dlc_data_args *args, dlc_source **source) {
    const dlc_settings *settings = args->settings;
    class_source from = {.written = host->get_string(settings, "classes")};
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    if (DLC_HAS(args, classes) && args->class_names) {
        from.name = args->class_names;
        from.count = args->classes;
    }
    dlc_status rc = read_shape(settings, &made->shape);
    if (rc == DLC_OK)
        rc = listing_read(host->get_string(settings, "path"), &from, &made->list);
    if (rc == DLC_OK && host->get_bool(settings, "check"))
        rc = check_files(made);
    if (rc == DLC_OK)
        *source = made;
    else
        images_close(made);
    return rc;
}

static dlc_status images_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = source->list.count;
    info->shape = source->shape;
    info->dtype = DLC_U8;
    info->classes = source->list.classes;
    if (DLC_HAS(info, class_names))
        info->class_names = (const char *const *)source->list.class_name;
    return DLC_OK;
}

static dlc_status read_one(dlc_source *source, const entry *image, unsigned char *out) {
    const int64_t *dims = source->shape.dims;
    dlc_status rc = picture_read(image->path, (int32_t)dims[0], 0, &source->file,
                                 &source->picture);
    if (rc != DLC_OK)
        return rc;
    return picture_resize(&source->picture, (int32_t)dims[1], (int32_t)dims[2],
                          &source->work, out);
}

static dlc_status images_read(dlc_source *source, int32_t n, const int64_t *index,
                              void *data, int32_t *labels) {
    unsigned char *out = data;
    for (int32_t i = 0; i < n; i++) {
        const entry *image = &source->list.entries[index[i]];
        dlc_status rc = read_one(source, image, out);
        if (rc != DLC_OK)
            return rc;
        labels[i] = image->label;
        out += dlc_shape_count(&source->shape);
    }
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_PATH_REQUIRED("path", "folder with a folder of images for each class"),
    DLC_INTS("shape", "3,32,32", 1, 4096, "channels (1 or 3), height, width"),
    DLC_STRING(
        "classes", "",
        "names of the classes in the order of their labels, joined by commas; by "
        "default the sorted folders of the training data"),
    DLC_BOOL("check", "yes", "check the header of every file before training begins"),
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof ops,
    .open = images_open,
    .close = images_close,
    .describe = images_describe,
    .read = images_read,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "image-folder",
     .help = "JPEG and PNG files, one folder for each class",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v0 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "image-folder",
    .version = PLUGIN_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = images_load,
};
