/* See idx.h. A packed file is unpacked in one go, with libdeflate: twice as fast as
 * zlib, which is most of the time between start and first iteration. */
#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "idx.h"

#define GZIP_SHORTEST 18 /* header and trailer */
#define HEADER_FIXED 4
/* No deflate stream grows by more than this (RFC 1951: 258 bytes from 2 bits). */
#define DEFLATE_MOST 1032

static dlc_status read_all(const dlc_host *host, const char *path, int fd,
                           unsigned char *into, size_t bytes) {
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = read(fd, into + got, bytes - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return host->fail(DLC_ERR_IO, "cannot read %s at byte %zu: %s", path, got,
                              strerror(errno));
        if (n == 0)
            return host->fail(DLC_ERR_DATA,
                              "%s ends at byte %zu while it is being read", path, got);
        got += (size_t)n;
    }
    return DLC_OK;
}

/* The file as it is on the disk. */
static dlc_status slurp(const dlc_host *host, const char *path, unsigned char **bytes,
                        size_t *size) {
    struct stat info;
    dlc_status status = DLC_OK;
    unsigned char *read_bytes = NULL;
    /* Not blocking: a pipe must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return host->fail(DLC_ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &info) || !S_ISREG(info.st_mode)) {
        status = host->fail(DLC_ERR_DATA, "%s is not a file", path);
        goto out;
    }
    read_bytes = host->alloc((size_t)info.st_size);
    status = read_bytes ? read_all(host, path, fd, read_bytes, (size_t)info.st_size)
                        : DLC_ERR_NOMEM;
    if (status != DLC_OK)
        goto out;
    *bytes = read_bytes;
    *size = (size_t)info.st_size;
    read_bytes = NULL;
out:
    host->free(read_bytes);
    close(fd);
    return status;
}

/* ---- gzip -------------------------------------------------------------------- */

static int is_gzip(const unsigned char *bytes, size_t size) {
    return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

/* How large it says that it is unpacked: the last 4 bytes, little endian. */
static size_t unpacked_size(const unsigned char *end) {
    return (size_t)end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 |
           (size_t)end[-1] << 24;
}

static dlc_status damaged(const dlc_host *host, const char *path, const char *how) {
    return host->fail(DLC_ERR_DATA,
                      "%s: damaged gzip file: %s; fetch it again, or see what "
                      "`gzip -t` says",
                      path, how);
}

static dlc_status inflate(const dlc_host *host, const char *path,
                          const unsigned char *packed, size_t packed_size,
                          unsigned char *into, size_t size) {
    size_t used = 0;
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    if (!decompressor)
        return host->fail(DLC_ERR_NOMEM, "out of memory to unpack %s", path);
    enum libdeflate_result result = libdeflate_gzip_decompress_ex(
        decompressor, packed, packed_size, into, size, &used, NULL);
    libdeflate_free_decompressor(decompressor);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
        return damaged(host, path, "more comes out than its end says");
    if (result != LIBDEFLATE_SUCCESS)
        return damaged(host, path,
                       "contents, length and checksum don't match, or it "
                       "was cut short");
    if (used != packed_size)
        return host->fail(DLC_ERR_DATA,
                          "%s: the gzip stream ends at byte %zu, but the file has %zu "
                          "bytes: what follows it doesn't belong there",
                          path, used, packed_size);
    return DLC_OK;
}

/* Replaces packed bytes by what is in them. */
static dlc_status unpack(const dlc_host *host, const char *path, unsigned char **bytes,
                         size_t *size) {
    if (*size < GZIP_SHORTEST)
        return damaged(host, path, "it was cut short");
    size_t plain_size = unpacked_size(*bytes + *size);
    if (plain_size / DEFLATE_MOST > *size)
        return damaged(host, path, "its end speaks of an impossible size");
    unsigned char *plain = host->alloc(plain_size);
    if (!plain)
        return DLC_ERR_NOMEM;
    dlc_status status = inflate(host, path, *bytes, *size, plain, plain_size);
    if (status != DLC_OK) {
        host->free(plain);
        return status;
    }
    host->free(*bytes);
    *bytes = plain;
    *size = plain_size;
    return DLC_OK;
}

/* ---- The header --------------------------------------------------------------- */

static int64_t big_endian(const unsigned char *bytes) {
    return (int64_t)bytes[0] << 24 | (int64_t)bytes[1] << 16 | (int64_t)bytes[2] << 8 |
           bytes[3];
}

static dlc_status check_magic(const dlc_host *host, idx_file *file) {
    const unsigned char *bytes = file->bytes;
    if (file->size < HEADER_FIXED)
        return host->fail(DLC_ERR_DATA, "%s has %zu bytes: too short for an IDX file",
                          file->path, file->size);
    if (bytes[0] || bytes[1])
        return host->fail(
            DLC_ERR_DATA,
            "%s: bytes 0 and 1 are %02x %02x, but an IDX file begins with "
            "00 00",
            file->path, bytes[0], bytes[1]);
    if (bytes[2] != IDX_U8 && bytes[2] != IDX_F32)
        return host->fail(DLC_ERR_DATA,
                          "%s: byte 2 gives element type 0x%02x; 0x08 (bytes) and 0x0d "
                          "(float32) can be read",
                          file->path, bytes[2]);
    if (bytes[3] < 1 || bytes[3] > IDX_MAX_DIMS)
        return host->fail(DLC_ERR_DATA,
                          "%s: byte 3 gives %d dimensions; 1 to %d can be read",
                          file->path, bytes[3], IDX_MAX_DIMS);
    file->type = bytes[2];
    file->rank = bytes[3];
    file->element_bytes = file->type == IDX_F32 ? 4 : 1;
    file->begin = HEADER_FIXED + (size_t)file->rank * 4;
    if (file->size < file->begin)
        return host->fail(DLC_ERR_DATA, "%s ends at byte %zu, within its header of %zu",
                          file->path, file->size, file->begin);
    return DLC_OK;
}

static dlc_status check_size(const dlc_host *host, idx_file *file) {
    size_t expected = file->element_bytes;
    int overflow = 0;
    for (int i = 0; i < file->rank; i++) {
        size_t at = HEADER_FIXED + (size_t)i * 4;
        file->dims[i] = big_endian(file->bytes + at);
        if (file->dims[i] == 0)
            return host->fail(DLC_ERR_DATA, "%s: dimension %d at byte %zu is 0",
                              file->path, i, at);
        overflow |= __builtin_mul_overflow(expected, (size_t)file->dims[i], &expected);
    }
    overflow |= __builtin_add_overflow(expected, file->begin, &expected);
    if (overflow)
        return host->fail(DLC_ERR_DATA,
                          "%s: the dimensions in bytes 4 to %zu are impossibly large",
                          file->path, file->begin - 1);
    if (expected != file->size)
        return host->fail(DLC_ERR_DATA,
                          "%s has %zu bytes (unpacked), but by the dimensions in its "
                          "header it should have %zu: it was cut short or damaged",
                          file->path, file->size, expected);
    return DLC_OK;
}

dlc_status idx_load(const dlc_host *host, const char *path, idx_file *file) {
    idx_file made = {.path = path};
    dlc_status status = slurp(host, path, &made.bytes, &made.size);
    if (status == DLC_OK && is_gzip(made.bytes, made.size))
        status = unpack(host, path, &made.bytes, &made.size);
    if (status == DLC_OK)
        status = check_magic(host, &made);
    if (status == DLC_OK)
        status = check_size(host, &made);
    if (status != DLC_OK) {
        idx_unload(host, &made);
        return status;
    }
    *file = made;
    return DLC_OK;
}

void idx_unload(const dlc_host *host, idx_file *file) {
    host->free(file->bytes);
    *file = (idx_file){0};
}
