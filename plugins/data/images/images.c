/* The data source "images": image files, with a folder for each class, or a list of
 * files and classes. Files are returned as they are; the core decodes them.
 *
 * open only lists the files, of which there may be millions; each is read when it is
 * needed. The classes of the training data are its folders, sorted by name, or those of
 * the setting `classes`. Test data has the same classes, even if it lacks the folder of
 * one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../shared/read.h"
#include "sources.h"

const dlc_host *host;

enum { IMAGE, LABEL, FIELDS };

struct dlc_source {
    char *root; /* owned; of the paths */
    int fd;     /* of the root */
    table images;
    classes known; /* in the order of labels; may be none for a list */
    int32_t labels;
    int several; /* an image may be of several classes */
    dlc_field field[FIELDS];
};

static dlc_status images_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static void images_close(dlc_source *source) {
    if (!source)
        return;
    table_free(&source->images);
    classes_free(&source->known);
    if (source->fd >= 0)
        close(source->fd);
    host->free(source->root);
    host->free(source);
}

/* ---- Opening ----------------------------------------------------------------- */

static dlc_status copy_text(const char *text, size_t length, char **copy) {
    char *made = host->alloc(length + 1);
    if (!made)
        return DLC_ERR_NOMEM;
    memcpy(made, text, length);
    *copy = made;
    return DLC_OK;
}

/* The folder that paths are relative to: `folder`, or that of the list. */
static dlc_status open_root(const dlc_settings *settings, dlc_source *source) {
    const char *folder = host->get_string(settings, "folder");
    const char *list = host->get_string(settings, "list");
    if (!folder && !list)
        return host->fail(DLC_ERR_CONFIG,
                          "images needs `folder`, with a folder for each class, or "
                          "`list`, with lines of a path and a class");
    const char *slash = folder ? NULL : strrchr(list, '/');
    const char *root = folder ? folder : slash ? list : ".";
    size_t length = slash ? (size_t)(slash - list) + (slash == list) : strlen(root);
    dlc_status status = copy_text(root, length, &source->root);
    if (status != DLC_OK)
        return status;
    source->fd = open(source->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (source->fd < 0)
        return host->fail(DLC_ERR_DATA, "cannot open the folder %s: %s", source->root,
                          strerror(errno));
    return DLC_OK;
}

static dlc_status list_images(const dlc_data_args *args, dlc_source *source) {
    const char *list = host->get_string(args->settings, "list");
    dlc_status status;
    if (list) {
        status = list_read(list, source->several, &source->images, &source->labels);
        if (status == DLC_OK)
            status = classes_check(&source->known, source->labels,
                                   table_count(&source->images), list);
    } else {
        status = folder_read(source->fd, source->root, endings_of(args), &source->known,
                             &source->images);
    }
    if (status == DLC_OK && table_count(&source->images) == 0)
        return host->fail(DLC_ERR_DATA, "%s: no images; %s%s",
                          list ? list : source->root,
                          list ? "its lines are a path and the number of a class"
                               : "each class needs a folder with files in it, whose "
                                 "names end in ",
                          list ? "" : endings_of(args));
    return status;
}

/* Makes a field of several classes of that of one. */
static dlc_status allow_several(dlc_source *source, const char *list) {
    dlc_field *labels = &source->field[LABEL];
    if (labels->classes < 1)
        return host->fail(DLC_ERR_DATA, "%s: no image is of a class", list);
    labels->role = DLC_ROLE_CLASSES;
    labels->dtype = DLC_U8;
    labels->name = "labels";
    labels->shape = (dlc_shape){1, {labels->classes}};
    return DLC_OK;
}

static dlc_status images_open(const dlc_data_args *args, dlc_source **source) {
    dlc_source *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->fd = -1;
    made->several = host->get_bool(args->settings, "multi_label");
    const char *list = host->get_string(args->settings, "list");
    dlc_status status = open_root(args->settings, made);
    if (status == DLC_OK && made->several && !list)
        status = host->fail(DLC_ERR_CONFIG,
                            "%s: multi_label: only a `list` has several classes for an "
                            "image",
                            host->where(args->settings, "multi_label"));
    if (status == DLC_OK)
        status = classes_know(args, &made->known);
    if (status == DLC_OK)
        status = list_images(args, made);
    fields_make(host->get_bool(args->settings, "grey"), &made->known, made->labels,
                made->field);
    if (status == DLC_OK && made->several)
        status = allow_several(made, list);
    if (status != DLC_OK) {
        images_close(made);
        return status;
    }
    *source = made;
    return DLC_OK;
}

static dlc_status images_describe(dlc_source *source, dlc_data_info *info) {
    info->samples = table_count(&source->images);
    info->fields = source->field;
    info->field_count = FIELDS;
    return DLC_OK;
}

/* ---- Reading ----------------------------------------------------------------- */

static void images_name(dlc_source *source, int64_t index, char *text, size_t room) {
    const char *path = table_path(&source->images, index);
    int absolute = path[0] == '/';
    (void)snprintf(text, room, "%s%s%s", absolute ? "" : source->root,
                   absolute ? "" : "/", path);
}

static dlc_status fail_file(dlc_source *source, int64_t index, const char *what) {
    char name[1024];
    images_name(source, index, name, sizeof name);
    return host->fail(DLC_ERR_DATA, "%s: %s", name, what);
}

static dlc_status read_file(dlc_source *source, int fd, dlc_sample *sample) {
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return fail_file(source, sample->index, "not a file");
    size_t bytes = (size_t)info.st_size;
    void *to = sample->memory(sample, IMAGE, bytes);
    if (!to)
        return DLC_ERR_NOMEM;
    if (read_at(fd, to, bytes, 0) == bytes)
        return DLC_OK;
    return fail_file(source, sample->index,
                     errno ? strerror(errno) : "it becomes shorter as it is read");
}

/* One class is in the table; of several, each has a 1 or 0. */
static dlc_status read_label(dlc_source *source, const entry *image,
                             dlc_sample *sample) {
    if (!source->several) {
        label_give(sample, LABEL, &image->label);
        return DLC_OK;
    }
    size_t count = (size_t)source->field[LABEL].classes;
    uint8_t *to = sample->memory(sample, LABEL, count);
    if (!to)
        return DLC_ERR_NOMEM;
    memset(to, 0, count);
    for (int32_t i = 0; i < image->count; i++)
        to[table_labels(&source->images, image)[i]] = 1;
    return DLC_OK;
}

static dlc_status images_read_sample(dlc_source *source, dlc_sample *sample) {
    const entry *image = table_at(&source->images, sample->index);
    dlc_status status = sample->wanted & 1u << LABEL ? read_label(source, image, sample)
                                                     : DLC_OK;
    if (status != DLC_OK)
        return status;
    if (!(sample->wanted & 1u << IMAGE))
        return DLC_OK;
    int fd = openat(source->fd, table_path(&source->images, sample->index),
                    O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_file(source, sample->index, strerror(errno));
    status = read_file(source, fd, sample);
    close(fd);
    return status;
}

/* ---- Descriptor -------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_PATH("folder", NULL,
             "has a folder of images for each class, or is where the paths of `list` "
             "begin; default: the folder of the list"),
    DLC_PATH("list", NULL,
             "a file with lines \"path class\", where classes are numbers from 0; "
             "instead of a folder for each class"),
    DLC_BOOL("multi_label", "false",
             "lines of the list have any number of classes: \"path [class...]\""),
    DLC_STRING("classes", NULL,
               "names of the classes in the order of their labels, joined by commas; "
               "default: the folders of the training data, sorted"),
    OPTION_ENDINGS(", in folders, where other files are passed over"),
    OPTION_GREY,
    DLC_OPTIONS_END,
};

static const dlc_data_ops ops = {
    .size = sizeof(dlc_data_ops),
    .open = images_open,
    .close = images_close,
    .describe = images_describe,
    .read_sample = images_read_sample,
    .name = images_name,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DATA,
     .name = "images",
     .help = "image files, in a folder for each class or as a list says",
     .caps = DLC_DATA_CONCURRENT,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("images", DLC_VERSION, "BSD-2-Clause", features, images_load);
