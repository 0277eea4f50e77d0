/* Reads and writes .npy files, by the format's description in NumPy's documentation:
 * the magic string, a version, the length of the header, the header (a Python
 * dictionary), then the elements. */
#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/read.h"
#include "base/status.h"

#define MAGIC "\x93NUMPY"
enum { MAGIC_BYTES = 6, HEADER_MOST = 4096, ALIGNMENT = 64 };

typedef struct npy_file {
    char *path; /* own */
    int fd;
    int64_t begin;          /* of the elements */
    int64_t first, samples; /* numbers of its samples in the source */
    dlc_shape shape;        /* of a sample */
    dlc_dtype dtype;
} npy_file;

struct dlc_source {
    npy_file *file; /* own */
    size_t files;
    int64_t samples;
    size_t bytes; /* of a sample */
};

/* ---- Headers --------------------------------------------------------------------- */

static void add_number(dlc_text *text, size_t number, int bytes) {
    for (int i = 0; i < bytes; i++)
        dlc_text_append(text, (const char[]){(char)(number >> 8 * i & 255)}, 1);
}

void dlc_npy_header(dlc_text *text, dlc_dtype dtype, const dlc_shape *shape) {
    const char *type = dtype == DLC_U8 ? "|u1" : dtype == DLC_I32 ? "<i4" : "<f4";
    dlc_text header = {0};
    dlc_text_add(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    for (int32_t i = 0; i < shape->rank; i++)
        dlc_text_add(&header, "%s%" PRId64 "%s", i ? ", " : "", shape->dims[i],
                     shape->rank == 1 ? "," : "");
    dlc_text_add(&header, "), }");
    while ((MAGIC_BYTES + 4 + header.length + 1) % ALIGNMENT && !header.failed)
        dlc_text_add(&header, " ");
    dlc_text_add(&header, "\n");
    dlc_text_append(text, MAGIC "\x01\x00", MAGIC_BYTES + 2);
    add_number(text, header.length, 2);
    dlc_text_append_text(text, &header);
    dlc_text_free(&header);
}

static dlc_status bad(const npy_file *file, const char *what) {
    return dlc_fail(DLC_ERR_DATA, "%s: %s", file->path, what);
}

static dlc_status read_at(const npy_file *file, void *into, size_t bytes, int64_t at) {
    if (dlc_read_at(file->fd, into, bytes, (off_t)at) == bytes)
        return DLC_OK;
    if (errno)
        return dlc_fail(DLC_ERR_IO, "cannot read %s: %s", file->path,
                        strerror(errno)); // NOLINT(concurrency-mt-unsafe): glibc's is
    return bad(file, "the file was cut short");
}

/* The text after 'key': in the dictionary; NULL if there is no such key. */
static const char *value_of(const char *header, const char *key) {
    const char *found = strstr(header, key);
    found = found ? strchr(found + strlen(key), ':') : NULL;
    return found ? found + 1 + strspn(found + 1, " ") : NULL;
}

static dlc_status parse_type(npy_file *file, const char *header) {
    const char *type = value_of(header, "'descr'");
    const char *order = value_of(header, "'fortran_order'");
    if (!type || !order)
        return bad(file, "the header has no 'descr' or no 'fortran_order'");
    if (strncmp(order, "False", strlen("False")) != 0)
        return bad(file, "the array is in Fortran's order; write it with "
                         "numpy.ascontiguousarray");
    if (strncmp(type, "'<f4'", strlen("'<f4'")) == 0)
        file->dtype = DLC_F32;
    else if (strncmp(type, "'|u1'", strlen("'|u1'")) == 0)
        file->dtype = DLC_U8;
    else
        return bad(file, "its elements are neither bytes ('|u1') nor float32 ('<f4'); "
                         "convert them with .astype");
    return DLC_OK;
}

/* N x C x H x W, or C x H x W of one sample. */
static dlc_status parse_shape(npy_file *file, const char *header) {
    const char *at = value_of(header, "'shape'");
    int64_t dims[4] = {0}, bytes = (int64_t)dlc_dtype_bytes(file->dtype);
    int rank = 0;
    at = at && *at == '(' ? at + 1 : NULL;
    while (at && *at != ')' && rank < 4) {
        char *end = NULL;
        errno = 0;
        dims[rank] = strtoll(at, &end, 10);
        if (end == at || errno || dims[rank] < 1 ||
            __builtin_mul_overflow(bytes, dims[rank], &bytes))
            break;
        rank++;
        at = end + strspn(end, ", ");
    }
    if (!at || *at != ')' || rank < 3)
        return bad(file,
                   "the array is not of samples: its shape must be N, C, H, W, or "
                   "C, H, W of one sample, none of them 0");
    file->samples = rank == 4 ? dims[0] : 1;
    file->shape = (dlc_shape){.rank = 3};
    memcpy(file->shape.dims, dims + rank - 3, 3 * sizeof *dims);
    return DLC_OK;
}

static dlc_status check_size(const npy_file *file) {
    struct stat info;
    int64_t bytes = file->samples * dlc_shape_count(&file->shape) *
                    (int64_t)dlc_dtype_bytes(file->dtype);
    if (fstat(file->fd, &info) || info.st_size - file->begin < bytes)
        return bad(file, "the file is shorter than its array");
    return DLC_OK;
}

static dlc_status read_header(npy_file *file) {
    unsigned char start[MAGIC_BYTES + 6];
    char header[HEADER_MOST + 1];
    DLC_TRY(read_at(file, start, sizeof start, 0));
    if (memcmp(start, MAGIC, MAGIC_BYTES) != 0 || start[MAGIC_BYTES] < 1 ||
        start[MAGIC_BYTES] > 3)
        return bad(file, "not a .npy file");
    int wide = start[MAGIC_BYTES] > 1;
    size_t length = 0;
    for (int i = wide ? 3 : 1; i >= 0; i--)
        length = length << 8 | start[MAGIC_BYTES + 2 + i];
    if (length > HEADER_MOST)
        return bad(file, "the header is too long for an array of samples");
    file->begin = MAGIC_BYTES + 2 + (wide ? 4 : 2);
    DLC_TRY(read_at(file, header, length, file->begin));
    header[length] = '\0';
    file->begin += (int64_t)length;
    DLC_TRY(parse_type(file, header));
    DLC_TRY(parse_shape(file, header));
    return check_size(file);
}

/* ---- The source ------------------------------------------------------------------ */

static void close_source(dlc_source *source) {
    for (size_t i = 0; source && source->file && i < source->files; i++) {
        if (source->file[i].fd >= 0)
            close(source->file[i].fd);
        dlc_free(source->file[i].path);
    }
    if (source)
        dlc_free(source->file);
    dlc_free(source);
}

static dlc_status open_file(dlc_source *source, const char *path) {
    npy_file *file = &source->file[source->files];
    struct stat info;
    file->path = dlc_strdup(path);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    source->files++;
    if (!file->path)
        return DLC_ERR_NOMEM;
    if (file->fd < 0)
        return dlc_fail(DLC_ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    if (fstat(file->fd, &info) || !S_ISREG(info.st_mode))
        return bad(file, "not a file");
    DLC_TRY(read_header(file));
    if (file->dtype != source->file[0].dtype ||
        !dlc_shape_equal(&file->shape, &source->file[0].shape))
        return dlc_fail(DLC_ERR_DATA,
                        "%s: its samples have another shape or type than those "
                        "of %s",
                        path, source->file[0].path);
    file->first = source->samples;
    if (__builtin_add_overflow(source->samples, file->samples, &source->samples))
        return bad(file, "too many samples");
    return DLC_OK;
}

dlc_status dlc_npy_open(const char *const *path, size_t count, dlc_source **source) {
    dlc_source *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->file = dlc_alloc(count, sizeof *made->file);
    dlc_status status = made->file ? DLC_OK : DLC_ERR_NOMEM;
    for (size_t i = 0; status == DLC_OK && i < count; i++)
        status = open_file(made, path[i]);
    if (status != DLC_OK) {
        close_source(made);
        return status;
    }
    made->bytes = (size_t)dlc_shape_count(&made->file[0].shape) *
                  dlc_dtype_bytes(made->file[0].dtype);
    *source = made;
    return DLC_OK;
}

static dlc_status describe(dlc_source *source, dlc_data_info *info) {
    info->samples = source->samples;
    info->shape = source->file[0].shape;
    info->dtype = source->file[0].dtype;
    return DLC_OK;
}

static const npy_file *file_of(const dlc_source *source, int64_t sample) {
    size_t low = 0, high = source->files; /* the file is in [low, high) */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (source->file[middle].first <= sample)
            low = middle;
        else
            high = middle;
    }
    return &source->file[low];
}

static dlc_status read_samples(dlc_source *source, int32_t n, const int64_t *index,
                               void *data, int32_t *labels) {
    for (int32_t i = 0; i < n; i++) {
        const npy_file *file = file_of(source, index[i]);
        int64_t at = file->begin + (index[i] - file->first) * (int64_t)source->bytes;
        DLC_TRY(
            read_at(file, (char *)data + (size_t)i * source->bytes, source->bytes, at));
        labels[i] = DLC_LABEL_NONE;
    }
    return DLC_OK;
}

static void name_sample(dlc_source *source, int64_t index, char *text, size_t room) {
    const npy_file *file = file_of(source, index);
    if (file->samples == 1)
        (void)snprintf(text, room, "%s", file->path);
    else
        (void)snprintf(text, room, "%s:%" PRId64, file->path, index - file->first);
}

const dlc_data_ops dlc_npy_ops = {.size = sizeof dlc_npy_ops,
                                  .close = close_source,
                                  .describe = describe,
                                  .read = read_samples,
                                  .name = name_sample};
