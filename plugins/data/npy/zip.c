/* Reads the directory at the end of an archive. Every place and size in it is compared
 * with the size of the archive before it is believed; what is unpacked is compared with
 * its size and its checksum. */
#include "zip.h"

#include <string.h>
#include <zlib.h>

enum {
    END_BYTES = 22,       /* the end record, without its comment */
    LOCATOR_BYTES = 20,   /* of zip64, before the end record */
    END_64_BYTES = 56,    /* what the locator points to */
    ENTRY_BYTES = 46,     /* in the directory, without name, extra data and comment */
    LOCAL_BYTES = 30,     /* before the data, without name and extra data */
    COMMENT_MOST = 65535, /* of the end record */
    DIRECTORY_MOST = 64 << 20,
    EXTRA_64 = 1, /* the extra data with sizes of 64 bits */
    STORED = 0,
    DEFLATED = 8,
};
#define SIGNATURE_END 0x06054b50u
#define SIGNATURE_LOCATOR 0x07064b50u
#define SIGNATURE_END_64 0x06064b50u
#define SIGNATURE_ENTRY 0x02014b50u
#define SIGNATURE_LOCAL 0x04034b50u
/* No deflate stream expands by more than this factor (RFC 1951). */
#define DEFLATE_MOST 1032

static uint64_t number_at(const unsigned char *at, int bytes) {
    uint64_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | at[bytes];
    return number;
}

static dlc_status damaged(const data_file *in, const char *what) {
    return host->fail(DLC_ERR_DATA, "%s: damaged zip archive: %s", in->path, what);
}

/* ---- The directory ----------------------------------------------------------- */

/* Where the directory is. */
typedef struct place {
    uint64_t begin, bytes, entries;
} place;

/* The end record of zip64, which the locator before the other one points to. */
static dlc_status find_end_64(const data_file *in, int64_t end, place *found) {
    unsigned char locator[LOCATOR_BYTES], record[END_64_BYTES];
    if (end < LOCATOR_BYTES)
        return damaged(in, "it lacks the place of its directory");
    dlc_status status = file_read(in, end - LOCATOR_BYTES, locator, sizeof locator);
    if (status != DLC_OK)
        return status;
    uint64_t at = number_at(locator + 8, 8);
    if (number_at(locator, 4) != SIGNATURE_LOCATOR || at > (uint64_t)end ||
        (uint64_t)end - at < END_64_BYTES)
        return damaged(in, "it lacks the place of its directory");
    status = file_read(in, (int64_t)at, record, sizeof record);
    if (status != DLC_OK)
        return status;
    if (number_at(record, 4) != SIGNATURE_END_64)
        return damaged(in, "it lacks the place of its directory");
    *found = (place){.entries = number_at(record + 32, 8),
                     .bytes = number_at(record + 40, 8),
                     .begin = number_at(record + 48, 8)};
    return DLC_OK;
}

/* Looks for the end record from the end on, before a comment of any length. */
static dlc_status find_end(const data_file *in, place *found) {
    static const unsigned char signature[] = {'P', 'K', 5, 6};
    int64_t most = END_BYTES + COMMENT_MOST;
    size_t count = (size_t)(in->bytes < most ? in->bytes : most);
    if (count < END_BYTES)
        return damaged(in, "it is too short");
    unsigned char *last = host->alloc(count);
    if (!last)
        return DLC_ERR_NOMEM;
    dlc_status status = file_read(in, in->bytes - (int64_t)count, last, count);
    size_t at = count - END_BYTES + 1;
    int is_end = 0;
    while (status == DLC_OK && !is_end && at-- > 0)
        is_end = memcmp(last + at, signature, sizeof signature) == 0 &&
                 number_at(last + at + 20, 2) == count - at - END_BYTES;
    if (status == DLC_OK && !is_end)
        status = damaged(in,
                         "it lacks its end; it was cut short, or is something else");
    if (status == DLC_OK)
        *found = (place){.entries = number_at(last + at + 10, 2),
                         .bytes = number_at(last + at + 12, 4),
                         .begin = number_at(last + at + 16, 4)};
    host->free(last);
    int is_64 = found->entries == UINT16_MAX || found->bytes == UINT32_MAX ||
                found->begin == UINT32_MAX;
    if (status == DLC_OK && is_64)
        status = find_end_64(in, in->bytes - (int64_t)(count - at), found);
    return status;
}

dlc_status zip_open(const data_file *in, zip *made) {
    place at = {0};
    dlc_status status = find_end(in, &at);
    if (status != DLC_OK)
        return status;
    if (at.begin > (uint64_t)in->bytes || at.bytes > (uint64_t)in->bytes - at.begin ||
        at.bytes > DIRECTORY_MOST || at.entries > at.bytes / ENTRY_BYTES)
        return damaged(in, "the place of its directory is beyond its end");
    zip opened = {.in = in, .entries = (int64_t)at.entries};
    status = growing_add(&opened.directory, NULL, (size_t)at.bytes);
    if (status == DLC_OK)
        status = file_read(in, (int64_t)at.begin, opened.directory.bytes,
                           (size_t)at.bytes);
    if (status != DLC_OK) {
        zip_close(&opened);
        return status;
    }
    *made = opened;
    return DLC_OK;
}

void zip_close(zip *of) {
    growing_free(&of->directory);
}

/* ---- An entry ---------------------------------------------------------------- */

/* Replaces sizes that do not fit 32 bits by those of the extra data. */
static int widen(const unsigned char *extra, size_t bytes, uint64_t *const number[3]) {
    while (bytes >= 4) {
        size_t own = (size_t)number_at(extra + 2, 2), used = 4;
        if (own > bytes - 4)
            return 0;
        for (int i = 0; i < 3 && number_at(extra, 2) == EXTRA_64; i++)
            if (*number[i] == UINT32_MAX) {
                if (used - 4 + 8 > own)
                    return 0;
                *number[i] = number_at(extra + used, 8);
                used += 8;
            }
        extra += 4 + own;
        bytes -= 4 + own;
    }
    return 1;
}

/* Finds the data of an entry, behind a header of its own. */
static dlc_status find_data(const data_file *in, uint64_t header, zip_member *made) {
    unsigned char local[LOCAL_BYTES];
    if (header > (uint64_t)in->bytes || (uint64_t)in->bytes - header < LOCAL_BYTES)
        return damaged(in, "a file begins beyond its end");
    dlc_status status = file_read(in, (int64_t)header, local, sizeof local);
    if (status != DLC_OK)
        return status;
    if (number_at(local, 4) != SIGNATURE_LOCAL)
        return damaged(in, "a file lacks its header");
    made->begin = (int64_t)header + LOCAL_BYTES + (int64_t)number_at(local + 26, 2) +
                  (int64_t)number_at(local + 28, 2);
    if (made->begin > in->bytes || made->packed > in->bytes - made->begin)
        return damaged(in, "a file ends beyond its end");
    return DLC_OK;
}

static dlc_status read_entry(const data_file *in, const unsigned char *entry,
                             size_t name, size_t extra, zip_member *made) {
    uint64_t packed = number_at(entry + 20, 4), bytes = number_at(entry + 24, 4);
    uint64_t header = number_at(entry + 42, 4);
    uint64_t *const wide[3] = {&bytes, &packed, &header};
    uint64_t method = number_at(entry + 10, 2);
    if (number_at(entry + 8, 2) & 1)
        return damaged(in, "its files are encrypted");
    if (method != STORED && method != DEFLATED)
        return host->fail(DLC_ERR_DATA,
                          "%s: its files are packed by method %d, and neither stored "
                          "nor deflated",
                          in->path, (int)method);
    if (!widen(entry + ENTRY_BYTES + name, extra, wide) ||
        packed > (uint64_t)in->bytes || (method == STORED && packed != bytes) ||
        bytes / DEFLATE_MOST > packed)
        return damaged(in, "a file has an impossible size");
    *made = (zip_member){.packed = (int64_t)packed,
                         .bytes = (int64_t)bytes,
                         .sum = (uint32_t)number_at(entry + 16, 4),
                         .is_deflated = method == DEFLATED};
    return find_data(in, header, made);
}

dlc_status zip_find(const zip *in, const char *name, zip_member *made, int *found) {
    const unsigned char *at = (const unsigned char *)in->directory.bytes;
    size_t left = in->directory.used, length = strlen(name);
    *found = 0;
    for (int64_t i = 0; i < in->entries; i++) {
        if (left < ENTRY_BYTES || number_at(at, 4) != SIGNATURE_ENTRY)
            return damaged(in->in, "an entry of its directory is damaged");
        size_t own = (size_t)number_at(at + 28, 2);
        size_t extra = (size_t)number_at(at + 30, 2);
        size_t all = ENTRY_BYTES + own + extra + (size_t)number_at(at + 32, 2);
        if (all > left)
            return damaged(in->in, "an entry of its directory is damaged");
        if (own == length && memcmp(at + ENTRY_BYTES, name, length) == 0) {
            *found = 1;
            return read_entry(in->in, at, own, extra, made);
        }
        at += all;
        left -= all;
    }
    return DLC_OK;
}

/* ---- Unpacking --------------------------------------------------------------- */

/* A file that is being unpacked. */
typedef struct unpacking {
    const data_file *in;
    data_file *to;
    z_stream z;
    int64_t at, left; /* of the packed data */
    int64_t most;     /* bytes that should come out */
    uLong sum;
    int result; /* zlib's last */
} unpacking;

/* Inflates one block of packed data. */
static dlc_status unpack_block(unpacking *u) {
    enum { BLOCK = 1 << 16 };
    unsigned char packed[BLOCK], plain[BLOCK];
    size_t count = (size_t)(u->left < BLOCK ? u->left : BLOCK);
    dlc_status status = file_read(u->in, u->at, packed, count);
    u->at += (int64_t)count;
    u->left -= (int64_t)count;
    u->z.next_in = packed;
    u->z.avail_in = (uInt)count;
    do {
        u->z.next_out = plain;
        u->z.avail_out = BLOCK;
        if (status == DLC_OK)
            u->result = inflate(&u->z, Z_NO_FLUSH);
        size_t got = BLOCK - u->z.avail_out;
        u->sum = crc32(u->sum, plain, (uInt)got);
        if (status == DLC_OK && u->to->bytes + (int64_t)got <= u->most)
            status = file_append(u->to, plain, got);
        else if (status == DLC_OK)
            u->result = Z_DATA_ERROR;
    } while (status == DLC_OK && u->result == Z_OK && u->z.avail_out == 0);
    u->z.next_in = u->z.next_out = NULL; /* nothing points to what is gone */
    return status;
}

static dlc_status unpack_all(unpacking *u) {
    dlc_status status = DLC_OK;
    while (status == DLC_OK && u->left > 0 &&
           (u->result == Z_OK || u->result == Z_BUF_ERROR))
        status = unpack_block(u);
    if (status == DLC_OK && u->result == Z_MEM_ERROR)
        return host->fail(DLC_ERR_NOMEM, "out of memory to unpack %s", u->in->path);
    return status;
}

dlc_status zip_unpack(const zip *in, const char *name, const zip_member *from,
                      data_file *made) {
    data_file to = {.fd = -1};
    unpacking u = {.in = in->in,
                   .to = &to,
                   .at = from->begin,
                   .left = from->packed,
                   .most = from->bytes};
    dlc_status status = file_make_unnamed(&to);
    if (status != DLC_OK)
        return status;
    if (inflateInit2(&u.z, -MAX_WBITS) != Z_OK) {
        file_close(&to);
        return host->fail(DLC_ERR_NOMEM, "out of memory to unpack %s", in->in->path);
    }
    status = unpack_all(&u);
    (void)inflateEnd(&u.z);
    if (status == DLC_OK &&
        (u.result != Z_STREAM_END || to.bytes != from->bytes || u.sum != from->sum))
        status = host->fail(DLC_ERR_DATA,
                            "%s: %s cannot be unpacked: contents, length and checksum "
                            "don't match",
                            in->in->path, name);
    if (status != DLC_OK) {
        file_close(&to);
        return status;
    }
    to.path = in->in->path;
    *made = to;
    return DLC_OK;
}
