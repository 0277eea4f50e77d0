/* Writes safetensors files. Everything is hashed while it is written; the digest then
 * replaces the zeros that stand for it in the header. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/sync.h"
#include "base/write.h"
#include "checkpoint/safetensors_format.h"

/* Bytes that are hashed and written at a time: few enough to stay in the cache. */
#define CHUNK_BYTES ((size_t)256 << 10)

typedef struct writer {
    char *part; /* the temporary file */
    int fd;
    XXH64_state_t hash;
} writer;

/* ---- The header ------------------------------------------------------------- */

static dlc_status check_names(const dlc_safetensor *tensors, size_t count,
                              dlc_names *names) {
    for (size_t i = 0; i < count; i++) {
        const char *name = tensors[i].name;
        if (!dlc_safetensors_type_name(tensors[i].dtype) ||
            strcmp(name, METADATA_KEY) == 0)
            return dlc_fail(DLC_ERR_INTERNAL,
                            "tensor '%s' of type %d cannot be stored in a file", name,
                            (int)tensors[i].dtype);
        if (dlc_names_find(names, name) >= 0)
            return dlc_fail(DLC_ERR_INTERNAL,
                            "two tensors with the name '%s' cannot be stored in one "
                            "file",
                            name);
        DLC_TRY(dlc_names_add(names, name, i));
    }
    return DLC_OK;
}

static dlc_status check_tensors(const dlc_safetensor *tensors, size_t count) {
    dlc_names names = {0};
    dlc_status status = check_names(tensors, count, &names);
    dlc_names_free(&names);
    return status;
}

static size_t stored_bytes(const dlc_safetensor *tensor) {
    return (size_t)dlc_shape_count(&tensor->shape) * dlc_dtype_bytes(tensor->dtype);
}

/* Sorts tensors into the order of the file: larger element types first, so that each is
 * aligned, and otherwise in the given order. */
static dlc_safetensor *sort_tensors(const dlc_safetensor *tensors, size_t count) {
    dlc_safetensor *sorted = dlc_alloc(count, sizeof *sorted);
    size_t n = 0;
    for (size_t bytes = 8; sorted && bytes; bytes /= 2) {
        for (size_t i = 0; i < count; i++) {
            if (dlc_dtype_bytes(tensors[i].dtype) == bytes)
                sorted[n++] = tensors[i];
        }
    }
    return sorted;
}

static void add_tensor(dlc_json *json, const dlc_safetensor *tensor, size_t begin) {
    dlc_json_object(json, tensor->name);
    dlc_json_string(json, "dtype", dlc_safetensors_type_name(tensor->dtype));
    dlc_json_array(json, "shape");
    for (int32_t i = 0; i < tensor->shape.rank; i++)
        dlc_json_int(json, NULL, tensor->shape.dims[i]);
    dlc_json_end_array(json);
    dlc_json_array(json, "data_offsets");
    dlc_json_int(json, NULL, (int64_t)begin);
    dlc_json_int(json, NULL, (int64_t)(begin + stored_bytes(tensor)));
    dlc_json_end_array(json);
    dlc_json_end_object(json);
}

/* Makes the header's text, padded with spaces so that the data is aligned. */
static dlc_status make_header(const dlc_safetensor *tensors, size_t count,
                              const dlc_safetensors_pair *metadata,
                              size_t metadata_count, dlc_text *header) {
    dlc_json json = {0};
    size_t begin = 0;
    dlc_json_object(&json, NULL);
    dlc_json_object(&json, METADATA_KEY);
    dlc_json_string(&json, CHECKSUM_KEY, NO_DIGITS);
    dlc_json_string(&json, SEALED_KEY, SEALED_VALUE);
    for (size_t i = 0; i < metadata_count; i++)
        dlc_json_string(&json, metadata[i].key, metadata[i].value);
    dlc_json_end_object(&json);
    for (size_t i = 0; i < count; i++) {
        add_tensor(&json, &tensors[i], begin);
        begin += stored_bytes(&tensors[i]);
    }
    dlc_json_end_object(&json);
    while (json.text.length % LENGTH_BYTES && !json.text.failed)
        dlc_text_append(&json.text, " ", 1);
    dlc_status status = dlc_text_status(&json.text);
    if (status == DLC_OK && json.text.length > HEADER_MAX)
        status = dlc_fail(DLC_ERR_INTERNAL, "a header of %zu bytes is too long",
                          json.text.length);
    if (status != DLC_OK) {
        dlc_text_free(&json.text);
        return status;
    }
    *header = json.text;
    return DLC_OK;
}

/* ---- The file ---------------------------------------------------------------- */

static dlc_status cannot_write_part(const char *path) {
    return dlc_fail(DLC_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

static dlc_status is_busy(const char *part) {
    return dlc_fail(
        DLC_ERR_IO,
        "cannot write %s: another process is writing it at this moment; give "
        "each job its own folder",
        part);
}

/* Locks the temporary file, unless the file system has no locks. */
static dlc_status lock_part(int fd, const char *part) {
    int error;
    do
        error = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
    while (error == EINTR);
    if (error == EWOULDBLOCK)
        return is_busy(part);
    errno = error;
    return !error || error == ENOLCK || dlc_is_unsupported(error)
               ? DLC_OK
               : cannot_write_part(part);
}

/* Removes what an earlier writer left behind when it was killed. A file that another
 * process is writing is not touched, nor is anything but a regular file of this user
 * with one link: a pipe would block, a link would lead elsewhere, and another user's
 * file would keep its owner. */
static dlc_status remove_stale(const char *part) {
    struct stat info;
    int fd = open(part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? DLC_OK : cannot_write_part(part);
    int known = fstat(fd, &info) == 0;
    int ours = known && S_ISREG(info.st_mode) && info.st_nlink <= 1 &&
               info.st_uid == geteuid();
    dlc_status status = DLC_OK;
    if (!ours)
        status = dlc_fail(
            DLC_ERR_IO,
            "cannot write %s: there is something else than a regular file of yours "
            "with one link; remove it",
            part);
    else
        status = lock_part(fd, part);
    int in_place = status == DLC_OK ? dlc_is_file_at(fd, part) : 0;
    if (in_place < 0 || (in_place > 0 && unlink(part) && errno != ENOENT))
        status = cannot_write_part(part);
    close(fd);
    return status;
}

/* Creates and locks the temporary file. */
static dlc_status open_part(writer *to) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    to->fd = open(to->part, flags, 0666);
    if (to->fd < 0 && errno == EEXIST) {
        DLC_TRY(remove_stale(to->part));
        to->fd = open(to->part, flags, 0666);
    }
    if (to->fd < 0)
        return errno == EEXIST ? is_busy(to->part) : cannot_write_part(to->part);
    dlc_status status = lock_part(to->fd, to->part);
    int in_place = status == DLC_OK ? dlc_is_file_at(to->fd, to->part) : 1;
    if (in_place < 1)
        status = in_place < 0 ? cannot_write_part(to->part) : is_busy(to->part);
    if (status != DLC_OK) {
        close(to->fd);
        to->fd = -1;
    }
    return status;
}

static dlc_status store_bytes(writer *to, const void *data, size_t bytes) {
    const char *from = data;
    while (bytes) {
        size_t chunk = bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES;
        if (dlc_write_all(to->fd, from, chunk) < chunk)
            return cannot_write_part(to->part);
        XXH64_update(&to->hash, from, chunk);
        from += chunk;
        bytes -= chunk;
    }
    return DLC_OK;
}

static dlc_status put_length(writer *to, uint64_t length) {
    unsigned char bytes[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        bytes[i] = (unsigned char)(length >> 8 * i);
    return store_bytes(to, bytes, sizeof bytes);
}

/* Writes the digest of everything else to its place in the header. */
static dlc_status seal(writer *to, const dlc_text *header) {
    char digits[DIGITS + 1];
    snprintf(digits, sizeof digits, "%016llx",
             (unsigned long long)XXH64_digest(&to->hash));
    const char *place = strstr(header->bytes, CHECKSUM_TEXT) + strlen(CHECKSUM_TEXT);
    ssize_t written;
    do
        written = pwrite(to->fd, digits, DIGITS,
                         LENGTH_BYTES + (off_t)(place - header->bytes));
    while (written < 0 && errno == EINTR);
    if (written >= 0 && written != DIGITS)
        errno = ENOSPC;
    return written == DIGITS ? DLC_OK : cannot_write_part(to->part);
}

static dlc_status put_tensor(writer *to, const dlc_safetensor *tensor) {
    const void *data = tensor->data;
    size_t bytes = stored_bytes(tensor);
    if (!tensor->get)
        return store_bytes(to, data, bytes);
    for (size_t at = 0, n = 0; at < bytes; at += n) {
        DLC_TRY(tensor->get(tensor->context, at, &data, &n));
        DLC_TRY(store_bytes(to, data, n));
    }
    return DLC_OK;
}

static dlc_status put_all(writer *to, const dlc_text *header,
                          const dlc_safetensor *tensors, size_t count) {
    XXH64_reset(&to->hash, 0);
    DLC_TRY(put_length(to, header->length));
    DLC_TRY(store_bytes(to, header->bytes, header->length));
    for (size_t i = 0; i < count; i++)
        DLC_TRY(put_tensor(to, &tensors[i]));
    DLC_TRY(seal(to, header));
    errno = dlc_sync(to->fd, to->part);
    return errno ? cannot_write_part(to->part) : DLC_OK;
}

/* Opens the file's folder first, so that a problem with it is found before anything is
 * written. */
static dlc_status open_folder(const char *path, int *fd) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? dlc_strndup(path, slash == path ? 1 : (size_t)(slash - path))
                         : dlc_strdup(".");
    if (!folder)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_OK;
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        status = dlc_fail(DLC_ERR_IO, "cannot write %s: its folder: %s", path,
                          strerror(errno));
    dlc_free(folder);
    return status;
}

/* Flushes the folder, which makes the rename durable. */
static dlc_status flush_folder(const char *path, int fd) {
    int error = dlc_sync(fd, path);
    return error ? dlc_fail(DLC_ERR_IO,
                            "%s was written, but may be lost if the power fails: its "
                            "folder cannot be flushed: %s",
                            path, strerror(error))
                 : DLC_OK;
}

/* Creates the temporary file, fills it and renames it. */
static dlc_status write_part(writer *to, const char *path, const dlc_text *header,
                             const dlc_safetensor *tensors, size_t count) {
    dlc_status status = open_part(to);
    if (to->fd < 0)
        return status;
    if (status == DLC_OK)
        status = put_all(to, header, tensors, count);
    if (status == DLC_OK && rename(to->part, path))
        status = cannot_write_part(path);
    if (status != DLC_OK)
        unlink(to->part);
    close(to->fd); /* releases the lock */
    return status;
}

static dlc_status write_in_folder(const char *path, const dlc_text *header,
                                  const dlc_safetensor *tensors, size_t count) {
    int folder = -1;
    writer to = {.fd = -1};
    dlc_process_return();
    DLC_TRY(open_folder(path, &folder));
    dlc_status status = DLC_ERR_NOMEM;
    to.part = dlc_format("%s.part", path);
    if (to.part)
        status = write_part(&to, path, header, tensors, count);
    if (status == DLC_OK)
        status = flush_folder(path, folder);
    dlc_free(to.part);
    close(folder);
    return status;
}

dlc_status dlc_safetensors_write(const char *path, const dlc_safetensor *tensors,
                                 size_t count, const dlc_safetensors_pair *metadata,
                                 size_t metadata_count) {
    dlc_text header = {0};
    DLC_TRY(check_tensors(tensors, count));
    dlc_safetensor *sorted = sort_tensors(tensors, count);
    if (!sorted)
        return DLC_ERR_NOMEM;
    dlc_status status = make_header(sorted, count, metadata, metadata_count, &header);
    if (status == DLC_OK)
        status = write_in_folder(path, &header, sorted, count);
    dlc_text_free(&header);
    dlc_free(sorted);
    return status;
}
