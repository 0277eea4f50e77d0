/* Reads image files, one a sample. */
#include "image_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/process.h"
#include "base/read.h"
#include "base/status.h"

struct dlc_source {
    const char *const *path;
    size_t count;
    dlc_field field; /* the only one */
};

dlc_status dlc_image_files_open(const char *const *path, size_t count, int32_t channels,
                                dlc_source **source) {
    dlc_source *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->path = path;
    made->count = count;
    made->field = (dlc_field){.size = sizeof made->field,
                              .role = DLC_ROLE_IMAGE,
                              .flags = DLC_FIELD_ENCODED,
                              .dtype = DLC_U8,
                              .name = "image",
                              .shape = {.rank = 3, .dims = {channels}}};
    *source = made;
    return DLC_OK;
}

static void close_source(dlc_source *source) {
    dlc_free(source);
}

static dlc_status describe(dlc_source *source, dlc_data_info *info) {
    info->samples = (int64_t)source->count;
    info->fields = &source->field;
    info->field_count = 1;
    return DLC_OK;
}

static dlc_status failed(const char *path, const char *why) {
    return dlc_fail(DLC_ERR_DATA, "cannot read %s: %s", path, why);
}

static dlc_status read_all(int fd, const char *path, unsigned char *into,
                           size_t bytes) {
    if (dlc_read_at(fd, into, bytes, 0) == bytes)
        return DLC_OK;
    return failed(path, errno ? strerror(errno) : "it became shorter");
}

static dlc_status read_file(int fd, const char *path, dlc_sample *sample) {
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return failed(path, "it is not a file");
    if (info.st_size == 0)
        return failed(path, "it is empty");
    void *bytes = sample->memory(sample, 0, (uint64_t)info.st_size);
    return bytes ? read_all(fd, path, bytes, (size_t)info.st_size) : DLC_ERR_NOMEM;
}

static dlc_status read_sample(dlc_source *source, dlc_sample *sample) {
    const char *path = source->path[sample->index];
    if (!(sample->wanted & 1))
        return DLC_OK;
    dlc_process_return();
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused */
    if (fd < 0)
        return failed(path, strerror(errno));
    dlc_status status = read_file(fd, path, sample);
    close(fd);
    return status;
}

static void name_sample(dlc_source *source, int64_t index, char *text, size_t room) {
    (void)snprintf(text, room, "%s", source->path[index]);
}

const dlc_data_ops dlc_image_files_ops = {.size = sizeof dlc_image_files_ops,
                                          .close = close_source,
                                          .describe = describe,
                                          .read_sample = read_sample,
                                          .name = name_sample};
