/* Reads IDX files, compressed by gzip or not. A size in the header is never trusted: it
 * is compared with the size of the file, and memory is populated as data arrives. No
 * file is mapped: another program may cut it short while it is read. A compressed file
 * is decompressed in one go by libdeflate, which is twice as fast as zlib; with zlib
 * this would be most of the time before the first iteration. A large one goes through
 * zlib in blocks, so that memory is needed for the unpacked data only. Called by idx.c.
 */
#include <libdeflate.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>

#include "../shared/file.h"
#include "idx.h"

#define GZIP_SHORTEST 18 /* header and trailer */
#define HEADER_FIXED 4
#define HEADER_MOST (HEADER_FIXED + 4 * IDX_MAX_DIMS)
/* No deflate stream expands by more than this factor (RFC 1951: 258 bytes from 2 bits).
 */
#define DEFLATE_MOST 1032
/* What gzip adds at most: to incompressible data, and a file name in the header. */
#define GZIP_OVERHEAD(plain) ((plain) / 64 + (1 << 20))
/* The largest compressed file that is decompressed in one go. */
#define IN_ONE_GO ((size_t)64 << 20)
/* Blocks of this size use huge pages: page faults are expensive otherwise. */
#define HUGE_FROM ((size_t)4 << 20)

static size_t size_of(const data_file *file) {
    return (size_t)file->bytes;
}

/* Memory that is populated when written to. Freed with munmap. */
static dlc_status reserve(const data_file *file, size_t bytes, unsigned char **memory) {
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (made == MAP_FAILED)
        return host->fail(DLC_ERR_NOMEM, "out of memory: %zu bytes for %s", bytes,
                          file->path);
    if (bytes >= HUGE_FROM)
        madvise(made, bytes, MADV_HUGEPAGE); /* optional: failure does no harm */
    *memory = made;
    return DLC_OK;
}

/* ---- gzip -------------------------------------------------------------------- */

static int is_gzip(const unsigned char *bytes, size_t size) {
    return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

static dlc_status damaged(const data_file *file, const char *how) {
    return host->fail(DLC_ERR_DATA,
                      "%s: damaged gzip file: %s; fetch it again, or see what "
                      "`gzip -t` says",
                      file->path, how);
}

static dlc_status no_memory(const data_file *file) {
    return host->fail(DLC_ERR_NOMEM, "out of memory to decompress %s", file->path);
}

/* Decompresses the file from its start, chunk by chunk, until the output is full or the
 * stream ends. *result: zlib's last return value; *used: the bytes that it has read. */
static dlc_status inflate_some(const data_file *file, z_stream *z, int *result,
                               size_t *used) {
    unsigned char chunk[1 << 16];
    *result = Z_OK;
    while (z->avail_out && *result == Z_OK && *used < size_of(file)) {
        size_t bytes = size_of(file) - *used;
        bytes = bytes < sizeof chunk ? bytes : sizeof chunk;
        dlc_status status = file_read(file, *used, chunk, bytes);
        if (status != DLC_OK)
            return status;
        z->next_in = chunk;
        z->avail_in = (unsigned)bytes;
        *result = inflate(z, Z_SYNC_FLUSH);
        *used += bytes - z->avail_in;
        z->next_in = NULL; /* nothing points to the chunk when it is gone */
        z->avail_in = 0;
    }
    return DLC_OK;
}

/* Decompresses the first bytes; fewer if there are fewer. Damage after the header is
 * detected by the decompression of the whole file. */
static dlc_status unpack_header(const data_file *file, unsigned char *into,
                                size_t *size) {
    size_t used = 0;
    z_stream z = {0};
    int result = inflateInit2(&z, 15 + 16); /* expects a gzip header */
    dlc_status status = DLC_OK;
    z.next_out = into;
    z.avail_out = HEADER_MOST;
    if (result == Z_OK)
        status = inflate_some(file, &z, &result, &used);
    (void)inflateEnd(&z);
    if (status != DLC_OK)
        return status;
    if (result == Z_MEM_ERROR)
        return no_memory(file);
    *size = HEADER_MOST - z.avail_out;
    int whole = *size >= HEADER_FIXED && *size >= HEADER_FIXED + 4 * (size_t)into[3];
    if (result != Z_OK && result != Z_STREAM_END && !whole)
        return damaged(file, "its beginning cannot be decompressed");
    return DLC_OK;
}

/* Can this file hold `plain` bytes? The gzip trailer ends with their number modulo
 * 2^32. */
static dlc_status check_packed(const data_file *file, size_t plain) {
    unsigned char end[4];
    if (size_of(file) < GZIP_SHORTEST)
        return damaged(file, "it was cut short");
    if (plain / DEFLATE_MOST > size_of(file))
        return host->fail(DLC_ERR_DATA,
                          "%s: the dimensions in its header ask for %zu bytes, "
                          "more than its %zu compressed bytes can hold: it was "
                          "cut short or damaged",
                          file->path, plain, size_of(file));
    if (size_of(file) > plain && size_of(file) - plain > GZIP_OVERHEAD(plain))
        return host->fail(DLC_ERR_DATA,
                          "%s: the dimensions in its header ask for %zu bytes, "
                          "but it has %zu even compressed: there is something after "
                          "them that does not belong there",
                          file->path, plain, size_of(file));
    dlc_status status = file_read(file, size_of(file) - sizeof end, end, sizeof end);
    if (status != DLC_OK)
        return status;
    uint32_t trailer = (uint32_t)end[0] | (uint32_t)end[1] << 8 |
                       (uint32_t)end[2] << 16 | (uint32_t)end[3] << 24;
    if (trailer != (uint32_t)plain)
        return host->fail(DLC_ERR_DATA,
                          "%s: the dimensions in its header ask for %zu bytes, "
                          "but by its gzip trailer it has %u: it was cut short or "
                          "damaged",
                          file->path, plain, trailer);
    return DLC_OK;
}

/* What a decompressor has made of a file. */
typedef struct unpacked {
    enum { UNPACKED, HOLDS_MORE, IS_DAMAGED } end;
    size_t used, made; /* bytes, before and after */
} unpacked;

static dlc_status check_unpacked(const data_file *file, const unpacked *got,
                                 size_t size) {
    if (got->end == HOLDS_MORE)
        return damaged(file, "it holds more than its header asks for");
    if (got->end == IS_DAMAGED || got->made != size)
        return damaged(file, "contents, length and checksum don't match, or it "
                             "was cut short");
    if (got->used != size_of(file))
        return host->fail(
            DLC_ERR_DATA,
            "%s: the gzip stream ends at byte %zu, but the file has %zu "
            "bytes: there is something after it that does not belong there",
            file->path, got->used, size_of(file));
    return DLC_OK;
}

static dlc_status inflate_all(const data_file *file, const unsigned char *packed,
                              unsigned char *into, size_t size) {
    unpacked got = {.end = IS_DAMAGED};
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    if (!decompressor)
        return no_memory(file);
    enum libdeflate_result result = libdeflate_gzip_decompress_ex(
        decompressor, packed, size_of(file), into, size, &got.used, &got.made);
    libdeflate_free_decompressor(decompressor);
    if (result == LIBDEFLATE_SUCCESS)
        got.end = UNPACKED;
    else if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
        got.end = HOLDS_MORE;
    return check_unpacked(file, &got, size);
}

static dlc_status unpack_in_one_go(const data_file *file, unsigned char *into,
                                   size_t size) {
    unsigned char *packed = NULL;
    dlc_status status = reserve(file, size_of(file), &packed);
    if (!packed)
        return status;
    status = file_read(file, 0, packed, size_of(file));
    if (status == DLC_OK)
        status = inflate_all(file, packed, into, size);
    munmap(packed, size_of(file));
    return status;
}

/* Decompresses into pieces of the output, whose sizes zlib can count. After the last
 * one there is room for one byte, `spare`, which shows whether the stream holds more.
 */
static dlc_status inflate_pieces(const data_file *file, z_stream *z,
                                 unsigned char *into, size_t size, unsigned char *spare,
                                 unpacked *got) {
    const size_t most = (size_t)1 << 30;
    int result = Z_OK;
    size_t made = 1;
    while (result == Z_OK && made && got->made <= size) {
        size_t left = size - got->made;
        size_t room = left ? left < most ? left : most : 1;
        z->next_out = left ? into + got->made : spare;
        z->avail_out = (unsigned)room;
        dlc_status status = inflate_some(file, z, &result, &got->used);
        if (status != DLC_OK)
            return status;
        made = room - z->avail_out;
        got->made += made;
    }
    if (result == Z_MEM_ERROR)
        return no_memory(file);
    if (got->made > size)
        got->end = HOLDS_MORE;
    else
        got->end = result == Z_STREAM_END ? UNPACKED : IS_DAMAGED;
    return check_unpacked(file, got, size);
}

static dlc_status unpack_in_blocks(const data_file *file, unsigned char *into,
                                   size_t size) {
    unsigned char spare;
    z_stream z = {0};
    unpacked got = {.end = IS_DAMAGED};
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return no_memory(file);
    dlc_status status = inflate_pieces(file, &z, into, size, &spare, &got);
    (void)inflateEnd(&z);
    return status;
}

static dlc_status unpack(const data_file *file, unsigned char *into, size_t size) {
    return size_of(file) > IN_ONE_GO ? unpack_in_blocks(file, into, size)
                                     : unpack_in_one_go(file, into, size);
}

/* ---- The header --------------------------------------------------------------- */

static int64_t big_endian(const unsigned char *bytes) {
    return (int64_t)bytes[0] << 24 | (int64_t)bytes[1] << 16 | (int64_t)bytes[2] << 8 |
           bytes[3];
}

static dlc_status check_magic(const unsigned char *bytes, size_t size, idx_file *file) {
    if (size < HEADER_FIXED)
        return host->fail(DLC_ERR_DATA, "%s has %zu bytes: too short for an IDX file",
                          file->path, size);
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
    if (size < file->begin)
        return host->fail(DLC_ERR_DATA, "%s ends at byte %zu, within its header of %zu",
                          file->path, size, file->begin);
    return DLC_OK;
}

/* Computes the file's size from its dimensions. */
static dlc_status read_dims(const unsigned char *bytes, idx_file *file) {
    size_t size = file->element_bytes;
    int overflow = 0;
    for (int i = 0; i < file->rank; i++) {
        size_t at = HEADER_FIXED + (size_t)i * 4;
        file->dims[i] = big_endian(bytes + at);
        if (file->dims[i] == 0)
            return host->fail(DLC_ERR_DATA, "%s: dimension %d at byte %zu is 0",
                              file->path, i, at);
        overflow |= __builtin_mul_overflow(size, (size_t)file->dims[i], &size);
    }
    overflow |= __builtin_add_overflow(size, file->begin, &size);
    if (overflow)
        return host->fail(DLC_ERR_DATA,
                          "%s: the dimensions in bytes 4 to %zu are impossibly large",
                          file->path, file->begin - 1);
    file->size = size;
    return DLC_OK;
}

static dlc_status check_plain(const data_file *file, size_t size) {
    return size_of(file) == size
               ? DLC_OK
               : host->fail(DLC_ERR_DATA,
                            "%s has %zu bytes, but by the dimensions in its "
                            "header it should have %zu: it was cut short or damaged",
                            file->path, size_of(file), size);
}

/* ---- Loading ------------------------------------------------------------------- */

static dlc_status load(const data_file *file, idx_file *made) {
    unsigned char header[HEADER_MOST];
    size_t size = size_of(file) < sizeof header ? size_of(file) : sizeof header;
    dlc_status status = file_read(file, 0, header, size);
    if (status != DLC_OK)
        return status;
    int packed = is_gzip(header, size);
    if (packed)
        status = unpack_header(file, header, &size);
    if (status == DLC_OK)
        status = check_magic(header, size, made);
    if (status == DLC_OK)
        status = read_dims(header, made);
    if (status == DLC_OK)
        status = packed ? check_packed(file, made->size)
                        : check_plain(file, made->size);
    if (status == DLC_OK)
        status = reserve(file, made->size, &made->bytes);
    if (status != DLC_OK)
        return status;
    return packed ? unpack(file, made->bytes, made->size)
                  : file_read(file, 0, made->bytes, made->size);
}

dlc_status idx_load(const char *path, idx_file *file) {
    idx_file made = {.path = path};
    data_file on_disk = {.fd = -1};
    dlc_status status = file_open(path, &on_disk);
    if (status != DLC_OK)
        return status;
    status = load(&on_disk, &made);
    file_close(&on_disk);
    if (status != DLC_OK) {
        idx_unload(&made);
        return status;
    }
    *file = made;
    return DLC_OK;
}

void idx_unload(idx_file *file) {
    if (file->bytes)
        munmap(file->bytes, file->size);
    *file = (idx_file){0};
}
