/* Reads safetensors files. Nothing in a file is trusted before it was checked: every
 * size against the size of the file, every offset against its neighbors, the bytes of
 * every tensor against its type and shape, and the checksum of the whole
 * (safetensors_checksum.c). Opening a file allocates memory for its header only. */
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/process.h"
#include "base/read.h"
#include "checkpoint/safetensors_format.h"
#include "config/suggest.h"

/* ---- Element types ------------------------------------------------------------ */

/* `dtype` is 0 where the SDK has no such type. */
static const struct element_type {
    char name[8];
    size_t bytes;
    dlc_dtype dtype;
} types[] = {
    {"F32", 4, DLC_F32}, {"BF16", 2, DLC_BF16}, {"F16", 2, DLC_F16},
    {"F64", 8, DLC_F64}, {"I32", 4, DLC_I32},   {"I64", 8, DLC_I64},
    {"U8", 1, DLC_U8},   {"BOOL", 1, 0},        {"I8", 1, 0},
    {"I16", 2, 0},       {"U16", 2, 0},         {"U32", 4, 0},
    {"U64", 8, 0},       {"F8_E5M2", 1, 0},     {"F8_E4M3", 1, 0},
};

enum { TYPES = sizeof types / sizeof *types };

static const struct element_type *find_type(const char *name) {
    for (size_t i = 0; name && i < TYPES; i++)
        if (strcmp(name, types[i].name) == 0)
            return &types[i];
    return NULL;
}

const char *dlc_safetensors_type_name(dlc_dtype dtype) {
    for (size_t i = 0; dtype && i < TYPES; i++)
        if (types[i].dtype == dtype)
            return types[i].name;
    return NULL;
}

/* ---- The bytes --------------------------------------------------------------- */

static dlc_status open_tensors(const char *path, int *fd, uint64_t *bytes) {
    struct stat info;
    /* Not blocking: a pipe must be refused, not waited for. */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return dlc_fail(DLC_ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    if (fstat(opened, &info) || !S_ISREG(info.st_mode)) {
        close(opened);
        return dlc_fail(DLC_ERR_DATA, "%s is not a file", path);
    }
    *fd = opened;
    *bytes = (uint64_t)info.st_size;
    return DLC_OK;
}

dlc_status dlc_safetensors_read_at(const dlc_safetensors *file, uint64_t begin,
                                   void *into, uint64_t bytes) {
    uint64_t got = dlc_read_at(file->fd, into, bytes, (off_t)begin);
    if (got == bytes)
        return DLC_OK;
    if (errno)
        return dlc_fail(DLC_ERR_IO, "cannot read %s at byte %" PRIu64 ": %s",
                        file->path, begin + got, strerror(errno));
    return dlc_fail(DLC_ERR_DATA, "%s ends at byte %" PRIu64 " while it is being read",
                    file->path, begin + got);
}

static dlc_status read_header(dlc_safetensors *file, uint64_t bytes) {
    unsigned char length[LENGTH_BYTES];
    if (bytes < LENGTH_BYTES + 2)
        return dlc_fail(DLC_ERR_DATA,
                        "%s has %" PRIu64 " bytes: too short for a safetensors file",
                        file->path, bytes);
    DLC_TRY(dlc_safetensors_read_at(file, 0, length, sizeof length));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        file->header_length = file->header_length << 8 | length[i];
    if (file->header_length < 2 || file->header_length > HEADER_MAX)
        return dlc_fail(DLC_ERR_DATA,
                        "%s: the first 8 bytes give a header of %" PRIu64
                        " bytes; 2 to "
                        "%d are allowed: not a safetensors file, or a damaged one",
                        file->path, file->header_length, HEADER_MAX);
    if (file->header_length > bytes - LENGTH_BYTES)
        return dlc_fail(DLC_ERR_DATA,
                        "%s has %" PRIu64 " bytes, but its header alone takes %" PRIu64
                        ": the file was cut short",
                        file->path, bytes, file->header_length + LENGTH_BYTES);
    file->header = dlc_alloc((size_t)file->header_length + 1, 1);
    if (!file->header)
        return DLC_ERR_NOMEM;
    DLC_TRY(
        dlc_safetensors_read_at(file, LENGTH_BYTES, file->header, file->header_length));
    file->data_bytes = bytes - LENGTH_BYTES - file->header_length;
    return DLC_OK;
}

/* ---- The header -------------------------------------------------------------- */

static dlc_status bad_entry(const dlc_safetensors *file, const char *name,
                            const char *what) {
    return dlc_fail(DLC_ERR_DATA, "%s: tensor '%s' in the header %s", file->path, name,
                    what);
}

static dlc_status parse_header(dlc_safetensors *file) {
    json_error_t error = {0}; /* jansson leaves it alone when memory runs out early */
    file->root = json_loadb(file->header, (size_t)file->header_length,
                            JSON_REJECT_DUPLICATES, &error);
    if (!file->root &&
        (!error.text[0] || json_error_code(&error) == json_error_out_of_memory))
        return dlc_fail(DLC_ERR_NOMEM, "out of memory for the header of %s",
                        file->path);
    if (!file->root)
        return dlc_fail(DLC_ERR_DATA, "%s: the header is not JSON: %s (at byte %d)",
                        file->path, error.text, LENGTH_BYTES + error.position);
    if (file->header[0] != '{' || !json_is_object(file->root))
        return dlc_fail(DLC_ERR_DATA, "%s: the header is not a JSON object",
                        file->path);
    return DLC_OK;
}

static dlc_status check_metadata(dlc_safetensors *file) {
    const char *key;
    json_t *value;
    file->metadata = json_object_get(file->root, METADATA_KEY);
    if (!file->metadata)
        return DLC_OK;
    if (!json_is_object(file->metadata))
        return dlc_fail(DLC_ERR_DATA,
                        "%s: " METADATA_KEY " in the header is not an object",
                        file->path);
    json_object_foreach(file->metadata, key, value) {
        if (!json_is_string(value))
            return dlc_fail(DLC_ERR_DATA,
                            "%s: '%s' in " METADATA_KEY
                            " of the header is not a string",
                            file->path, key);
    }
    return DLC_OK;
}

/* Sets *bytes to `bytes_each` times the number of elements. */
static dlc_status parse_shape(const dlc_safetensors *file, const json_t *json,
                              size_t bytes_each, dlc_safetensors_entry *into,
                              uint64_t *bytes) {
    const json_t *dims = json_object_get(json, "shape");
    size_t rank = json_array_size(dims); /* 0 if it is none */
    if (!json_is_array(dims) || rank > DLC_MAX_DIMS)
        return bad_entry(file, into->tensor.name, "has no shape of up to 6 dimensions");
    uint64_t product = bytes_each;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(dims, i);
        json_int_t value = json_integer_value(dim);
        if (!json_is_integer(dim) || value < 0)
            return bad_entry(file, into->tensor.name,
                             "has a dimension that is not a whole number");
        if (__builtin_mul_overflow(product, (uint64_t)value, &product) ||
            product > INT64_MAX)
            return bad_entry(file, into->tensor.name, "has an impossibly large shape");
        into->tensor.shape.dims[i] = value;
    }
    into->tensor.shape.rank = (int32_t)rank;
    *bytes = product;
    return DLC_OK;
}

static dlc_status parse_offsets(const dlc_safetensors *file, const json_t *json,
                                dlc_safetensors_entry *into) {
    const json_t *offsets = json_object_get(json, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end) || json_integer_value(begin) < 0 ||
        json_integer_value(end) < json_integer_value(begin))
        return bad_entry(file, into->tensor.name, "has no pair of data_offsets");
    into->begin = (uint64_t)json_integer_value(begin);
    into->end = (uint64_t)json_integer_value(end);
    return DLC_OK;
}

static dlc_status parse_entry(const dlc_safetensors *file, const char *name,
                              const json_t *json, dlc_safetensors_entry *into) {
    uint64_t bytes = 0;
    into->tensor.name = name;
    if (json_object_size(json) != 3)
        return bad_entry(file, name, "doesn't have dtype, shape and data_offsets");
    const struct element_type *type = find_type(
        json_string_value(json_object_get(json, "dtype")));
    if (!type)
        return bad_entry(file, name, "has no known dtype");
    into->tensor.dtype = type->dtype;
    into->type = type->name;
    DLC_TRY(parse_shape(file, json, type->bytes, into, &bytes));
    DLC_TRY(parse_offsets(file, json, into));
    if (into->end - into->begin != bytes)
        return dlc_fail(DLC_ERR_DATA,
                        "%s: tensor '%s' should take %" PRIu64 " bytes by its type and "
                        "shape, but its data_offsets span %" PRIu64,
                        file->path, name, bytes, into->end - into->begin);
    return DLC_OK;
}

static int compare_entries(const void *left, const void *right) {
    const dlc_safetensors_entry *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

/* Checks that tensors follow each other without gap or overlap to the end of the file.
 */
static dlc_status check_layout(const dlc_safetensors *file) {
    uint64_t at = 0;
    for (size_t i = 0; i < file->count; i++) {
        const dlc_safetensors_entry *next = &file->entries[i];
        if (next->begin != at)
            return dlc_fail(DLC_ERR_DATA,
                            "%s: tensor '%s' should begin at byte %" PRIu64
                            " of the data, where the one before it ends, but begins "
                            "at %" PRIu64,
                            file->path, next->tensor.name, at, next->begin);
        at = next->end;
    }
    if (at != file->data_bytes)
        return dlc_fail(DLC_ERR_DATA,
                        "%s: the tensors take %" PRIu64
                        " bytes, but the file has %" PRIu64
                        " bytes of data: it was cut short or damaged",
                        file->path, at, file->data_bytes);
    return DLC_OK;
}

static dlc_status parse_entries(dlc_safetensors *file) {
    const char *name;
    json_t *json;
    size_t count = json_object_size(file->root) - (file->metadata != NULL);
    file->entries = dlc_alloc(count, sizeof *file->entries);
    file->names = dlc_alloc(count, sizeof *file->names);
    if (!file->entries || !file->names)
        return DLC_ERR_NOMEM;
    json_object_foreach(file->root, name, json) {
        if (json != file->metadata)
            DLC_TRY(parse_entry(file, name, json, &file->entries[file->count++]));
    }
    qsort(file->entries, file->count, sizeof *file->entries, compare_entries);
    for (size_t i = 0; i < file->count; i++) {
        file->names[i] = file->entries[i].tensor.name;
        DLC_TRY(dlc_names_add(&file->index, file->names[i], i));
    }
    return check_layout(file);
}

/* ---- Opening ------------------------------------------------------------------ */

static dlc_status check_header(dlc_safetensors *file, uint64_t bytes) {
    DLC_TRY(read_header(file, bytes));
    DLC_TRY(parse_header(file));
    DLC_TRY(check_metadata(file));
    return parse_entries(file);
}

dlc_status dlc_safetensors_open_header(const char *path, dlc_safetensors **file) {
    int fd = -1;
    uint64_t bytes = 0;
    dlc_process_return();
    DLC_TRY(open_tensors(path, &fd, &bytes));
    dlc_status status = DLC_ERR_NOMEM;
    dlc_safetensors *made = dlc_alloc(1, sizeof *made);
    if (made) {
        made->fd = fd;
        made->path = dlc_strdup(path);
        if (made->path)
            status = check_header(made, bytes);
    } else {
        close(fd);
    }
    if (status != DLC_OK) {
        dlc_safetensors_close(made);
        return status;
    }
    *file = made;
    return DLC_OK;
}

dlc_status dlc_safetensors_open(const char *path, dlc_safetensors **file) {
    dlc_safetensors *made = NULL;
    DLC_TRY(dlc_safetensors_open_header(path, &made));
    dlc_status status = dlc_safetensors_verify(made);
    if (status == DLC_OK)
        *file = made;
    else
        dlc_safetensors_close(made);
    return status;
}

void dlc_safetensors_close(dlc_safetensors *file) {
    if (!file)
        return;
    close(file->fd);
    dlc_names_free(&file->index);
    dlc_free(file->names);
    dlc_free(file->entries);
    json_decref(file->root);
    dlc_free(file->header);
    dlc_free(file->path);
    dlc_free(file);
}

/* ---- Looking things up -------------------------------------------------------- */

const char *dlc_safetensors_path(const dlc_safetensors *file) {
    return file->path;
}

size_t dlc_safetensors_count(const dlc_safetensors *file) {
    return file->count;
}

const dlc_safetensor *dlc_safetensors_at(const dlc_safetensors *file, size_t index) {
    return &file->entries[index].tensor;
}

static const dlc_safetensors_entry *get_entry(const dlc_safetensors *file,
                                              const char *name) {
    ptrdiff_t i = dlc_names_find(&file->index, name);
    return i < 0 ? NULL : &file->entries[i];
}

const dlc_safetensor *dlc_safetensors_get(const dlc_safetensors *file,
                                          const char *name) {
    const dlc_safetensors_entry *found = get_entry(file, name);
    return found ? &found->tensor : NULL;
}

const char *dlc_safetensors_metadata(const dlc_safetensors *file, const char *key) {
    return json_string_value(json_object_get(file->metadata, key));
}

const char *dlc_safetensor_type(const dlc_safetensor *tensor) {
    return ((const dlc_safetensors_entry *)tensor)->type;
}

void dlc_safetensor_print_shape(dlc_text *text, const dlc_shape *shape) {
    dlc_text_add(text, "[");
    for (int32_t i = 0; i < shape->rank; i++)
        dlc_text_add(text, "%s%lld", i ? ", " : "", (long long)shape->dims[i]);
    dlc_text_add(text, "]");
}

static dlc_status wrong_shape(const dlc_safetensors *file, const char *name,
                              const dlc_shape *found, const dlc_shape *wanted) {
    dlc_text text = {0};
    dlc_text_add(&text, "shape ");
    dlc_safetensor_print_shape(&text, found);
    dlc_text_add(&text, ", but ");
    dlc_safetensor_print_shape(&text, wanted);
    dlc_status status = dlc_text_status(&text);
    if (status == DLC_OK)
        status = dlc_fail(DLC_ERR_DATA, "%s: tensor '%s' has %s is needed", file->path,
                          name, text.bytes);
    dlc_text_free(&text);
    return status;
}

/* Finds the entry with this name and checks its type and shape. */
static dlc_status find_entry(const dlc_safetensors *file, const char *name,
                             dlc_dtype dtype, const dlc_shape *shape,
                             const dlc_safetensors_entry **wanted) {
    const dlc_safetensors_entry *found = get_entry(file, name);
    if (!found) {
        const char *nearest = dlc_nearest(name, file->names, file->count);
        return dlc_fail(DLC_ERR_DATA, "%s has no tensor '%s'%s%s%s", file->path, name,
                        nearest ? "; the nearest name in it is '" : "",
                        nearest ? nearest : "", nearest ? "'" : "");
    }
    if (found->tensor.dtype != dtype)
        return dlc_fail(DLC_ERR_DATA, "%s: tensor '%s' is of type %s, but %s is needed",
                        file->path, name, found->type,
                        dlc_safetensors_type_name(dtype));
    if (shape && !dlc_shape_equal(&found->tensor.shape, shape))
        return wrong_shape(file, name, &found->tensor.shape, shape);
    *wanted = found;
    return DLC_OK;
}

dlc_status dlc_safetensors_find(const dlc_safetensors *file, const char *name,
                                dlc_dtype dtype, const dlc_shape *shape) {
    const dlc_safetensors_entry *found = NULL;
    return find_entry(file, name, dtype, shape, &found);
}

dlc_status dlc_safetensors_read(const dlc_safetensors *file, const char *name,
                                dlc_dtype dtype, const dlc_shape *shape, void **data) {
    const dlc_safetensors_entry *found = NULL;
    dlc_status status = find_entry(file, name, dtype, shape, &found);
    if (!found)
        return status;
    uint64_t bytes = found->end - found->begin;
    void *read = dlc_alloc((size_t)bytes, 1);
    if (!read)
        return DLC_ERR_NOMEM;
    status = dlc_safetensors_read_at(
        file, LENGTH_BYTES + file->header_length + found->begin, read, bytes);
    if (status != DLC_OK) {
        dlc_free(read);
        return status;
    }
    *data = read;
    return DLC_OK;
}

/* ---- As float32 --------------------------------------------------------------- */

/* Every other floating-point type but float64 fits into float32 exactly. Values are
 * little endian, like this machine's. */
static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_bf16(uint16_t bits) {
    return from_bits((uint32_t)bits << 16);
}

/* Normal numbers differ in the exponent's bias, subnormal ones are multiples of 2^-24.
 */
static float from_f16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float value = (float)fraction * 0x1p-24f;
    return sign ? -value : value;
}

static void convert_values(dlc_dtype dtype, const void *from, size_t count, float *to) {
    // NOLINTBEGIN(clang-analyzer-core.NullDereference): dlc_safetensors_read sets `raw`
    for (size_t i = 0; i < count; i++) {
        if (dtype == DLC_BF16)
            to[i] = from_bf16(((const uint16_t *)from)[i]);
        else if (dtype == DLC_F16)
            to[i] = from_f16(((const uint16_t *)from)[i]);
        else
            to[i] = (float)((const double *)from)[i];
    }
    // NOLINTEND(clang-analyzer-core.NullDereference)
}

int dlc_safetensor_is_real(const dlc_safetensor *tensor) {
    return tensor->dtype == DLC_F32 || tensor->dtype == DLC_F16 ||
           tensor->dtype == DLC_BF16 || tensor->dtype == DLC_F64;
}

dlc_status dlc_safetensors_read_f32(const dlc_safetensors *file,
                                    const dlc_safetensor *tensor, float **values) {
    size_t count = (size_t)dlc_shape_count(&tensor->shape);
    void *raw = NULL;
    DLC_TRY(
        dlc_safetensors_read(file, tensor->name, tensor->dtype, &tensor->shape, &raw));
    if (tensor->dtype == DLC_F32) {
        *values = raw;
        return DLC_OK;
    }
    float *made = dlc_alloc(count, sizeof *made);
    if (made)
        convert_values(tensor->dtype, raw, count, made);
    dlc_free(raw);
    if (!made)
        return DLC_ERR_NOMEM;
    *values = made;
    return DLC_OK;
}
