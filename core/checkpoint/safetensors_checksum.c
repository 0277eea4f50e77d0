/* The checksum of a safetensors file that dlcore wrote: XXH64 of the whole file. Called
 * through dlc_safetensors_verify before any tensor is read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memory.h"
#include "checkpoint/safetensors_format.h"

enum { CHUNK_BYTES = 1 << 20 };

/* ---- The digits -------------------------------------------------------------- */

static int is_our_own(const dlc_safetensors *file) {
    const char *key;
    json_t *value;
    json_object_foreach(file->metadata, key, value) {
        if (strncmp(key, OWN_PREFIX, strlen(OWN_PREFIX)) == 0)
            return 1;
    }
    return 0;
}

/* The digits of the checksum in the header's text; NULL if they are not where
 * safetensors_write.c puts them. */
static char *find_digits(const dlc_safetensors *file) {
    const char *value = dlc_safetensors_metadata(file, CHECKSUM_KEY);
    size_t prefix = strlen(CHECKSUM_TEXT);
    char *place = memmem(file->header, (size_t)file->header_length, CHECKSUM_TEXT,
                         prefix);
    /* The closing quote is there: the header is sound JSON. */
    if (!value || strlen(value) != DIGITS || !place ||
        strncmp(place + prefix, value, DIGITS) != 0)
        return NULL;
    return place + prefix;
}

/* ---- Holes ------------------------------------------------------------------- */

/* A stretch in which nothing is stored: it reads as zeros. */
typedef struct hole {
    uint64_t begin, end;
} hole;

/* The first hole from `at` on; an empty one at the end of the file if there is none, or
 * if the file system cannot tell. */
static hole next_hole(const dlc_safetensors *file, uint64_t at) {
    uint64_t end = LENGTH_BYTES + file->header_length + file->data_bytes;
    off_t begin = lseek(file->fd, (off_t)at, SEEK_HOLE);
    if (begin < 0 || (uint64_t)begin >= end)
        return (hole){end, end};
    off_t data = lseek(file->fd, begin, SEEK_DATA); /* fails if there is none behind */
    return (hole){(uint64_t)begin,
                  data < 0 || (uint64_t)data > end ? end : (uint64_t)data};
}

/* Refuses a file in which more is missing than its file system can hold, which would
 * take forever to read. The writer leaves no holes, but a hole alone is no damage: some
 * file systems, and tools that copy files, store zeros as holes. */
static dlc_status check_holes(const dlc_safetensors *file) {
    struct statvfs disk;
    uint64_t missing = 0, end = LENGTH_BYTES + file->header_length + file->data_bytes;
    for (hole next = next_hole(file, 0); next.begin < end;
         next = next_hole(file, next.end))
        missing += next.end - next.begin;
    if (!missing || fstatvfs(file->fd, &disk) || !disk.f_blocks)
        return DLC_OK;
    uint64_t capacity = (uint64_t)disk.f_blocks * disk.f_frsize;
    return missing <= capacity
               ? DLC_OK
               : dlc_fail(DLC_ERR_DATA,
                          "%s has holes of %" PRIu64 " bytes, more than the %" PRIu64
                          " bytes of its file system: the file was damaged or edited",
                          file->path, missing, capacity);
}

/* ---- Hashing ----------------------------------------------------------------- */

/* Two chunks, because a file may be larger than the memory of this machine. */
typedef struct chunks {
    void *read, *zeros;
} chunks;

/* Hashes the bytes from `at` to `end`, which are in a hole if `zeros` is given. */
static dlc_status hash_span(const dlc_safetensors *file, uint64_t at, uint64_t end,
                            void *chunk, const void *zeros, XXH64_state_t *hash) {
    while (at < end) {
        uint64_t bytes = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES;
        if (!zeros)
            DLC_TRY(dlc_safetensors_read_at(file, at, chunk, bytes));
        XXH64_update(hash, zeros ? zeros : chunk, (size_t)bytes);
        at += bytes;
    }
    return DLC_OK;
}

/* Hashes the tensors. Holes are not read: most of the time would be spent there. */
static dlc_status hash_data(const dlc_safetensors *file, const chunks *with,
                            XXH64_state_t *hash) {
    uint64_t at = LENGTH_BYTES + file->header_length, end = at + file->data_bytes;
    while (at < end) {
        hole next = next_hole(file, at);
        DLC_TRY(hash_span(file, at, next.begin, with->read, NULL, hash));
        DLC_TRY(hash_span(file, next.begin, next.end, NULL, with->zeros, hash));
        at = next.end;
    }
    return DLC_OK;
}

static dlc_status hash_file(dlc_safetensors *file, char *digits, uint64_t *sum) {
    unsigned char length[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)(file->header_length >> 8 * i);
    memset(digits, '0', DIGITS);
    XXH64_state_t hash;
    XXH64_reset(&hash, 0);
    XXH64_update(&hash, length, sizeof length);
    XXH64_update(&hash, file->header, (size_t)file->header_length);
    const chunks with = {dlc_alloc(CHUNK_BYTES, 1), dlc_alloc(CHUNK_BYTES, 1)};
    dlc_status status = with.read && with.zeros ? hash_data(file, &with, &hash)
                                                : DLC_ERR_NOMEM;
    dlc_free(with.read);
    dlc_free(with.zeros);
    if (status == DLC_OK)
        *sum = XXH64_digest(&hash);
    return status;
}

dlc_status dlc_safetensors_verify(dlc_safetensors *file) {
    if (!is_our_own(file))
        return DLC_OK;
    char *digits = find_digits(file);
    int is_right = 0;
    if (digits) {
        uint64_t sum;
        char found[DIGITS + 1];
        char stored[DIGITS + 1] = {0};
        memcpy(stored, digits, DIGITS);
        DLC_TRY(check_holes(file));
        DLC_TRY(hash_file(file, digits, &sum));
        snprintf(found, sizeof found, "%016" PRIx64, sum);
        is_right = strcmp(found, stored) == 0;
    }
    if (!is_right)
        return dlc_fail(DLC_ERR_DATA,
                        "%s: the checksum in it doesn't match its contents: the file "
                        "was damaged or edited",
                        file->path);
    return DLC_OK;
}
