/* The checksum of a safetensors file that dlcore wrote: XXH64 of the whole file. Called
 * through dlc_safetensors_verify before any tensor is read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "train/checkpoint/safetensors_file.h"

enum { CHUNK_BYTES = 1 << 20 };

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

/* Hashes the tensors in chunks, because a file may be larger than the memory of this
 * machine. */
static dlc_status hash_data(const dlc_safetensors *file, XXH64_state_t *hash) {
    uint64_t begin = LENGTH_BYTES + file->header_length;
    void *chunk = dlc_alloc(CHUNK_BYTES, 1);
    dlc_status status = chunk ? DLC_OK : DLC_ERR_NOMEM;
    for (uint64_t done = 0; status == DLC_OK && done < file->data_bytes;) {
        uint64_t left = file->data_bytes - done;
        uint64_t bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        status = dlc_safetensors_read_at(file, begin + done, chunk, bytes);
        if (status == DLC_OK)
            XXH64_update(hash, chunk, (size_t)bytes);
        done += bytes;
    }
    dlc_free(chunk);
    return status;
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
    DLC_TRY(hash_data(file, &hash));
    *sum = XXH64_digest(&hash);
    return DLC_OK;
}

dlc_status dlc_safetensors_verify(dlc_safetensors *file) {
    if (!is_our_own(file))
        return DLC_OK;
    char *digits = find_digits(file);
    if (digits) {
        uint64_t sum;
        char found[DIGITS + 1];
        char stored[DIGITS + 1] = {0};
        memcpy(stored, digits, DIGITS);
        DLC_TRY(hash_file(file, digits, &sum));
        snprintf(found, sizeof found, "%016" PRIx64, sum);
        file->has_checksum = strcmp(found, stored) == 0;
    }
    if (!file->has_checksum)
        return dlc_fail(DLC_ERR_DATA,
                        "%s: the checksum in it doesn't match its contents: the file "
                        "was damaged or edited",
                        file->path);
    return DLC_OK;
}
