/* Undoes the filters of chunks, and copies rows out of them. */
#include "chunks.h"

#include <string.h>
#include <zlib.h>

enum { CHECKSUM = 4 };

void chunk_cache_open(chunk_cache *made) {
    for (int i = 0; i < SLOTS; i++)
        (void)pthread_mutex_init(&made->slots[i].lock, NULL);
}

void chunk_cache_close(chunk_cache *of) {
    for (int i = 0; i < SLOTS; i++) {
        (void)pthread_mutex_destroy(&of->slots[i].lock);
        host->free(of->slots[i].numbers);
    }
}

/* ---- Filters ------------------------------------------------------------------- */

/* A chunk on its way through the filters. */
typedef struct packed {
    unsigned char *bytes; /* owned */
    size_t count;
} packed;

static dlc_status replace(packed *chunk, unsigned char *made, size_t count) {
    host->free(chunk->bytes);
    *chunk = (packed){made, count};
    return DLC_OK;
}

static dlc_status undo_deflate(packed *chunk, size_t most) {
    unsigned char *made = host->alloc(most);
    uLongf count = (uLongf)most;
    if (!made)
        return DLC_ERR_NOMEM;
    int result = uncompress(made, &count, chunk->bytes, (uLong)chunk->count);
    if (result == Z_OK)
        return replace(chunk, made, count);
    host->free(made);
    return result == Z_MEM_ERROR ? host->fail(DLC_ERR_NOMEM, "out of memory to unpack")
                                 : DLC_ERR_DATA;
}

/* All first bytes of the numbers come first, then all second ones. */
static dlc_status undo_shuffle(packed *chunk, size_t bytes) {
    size_t count = chunk->count / bytes, done = count * bytes;
    unsigned char *made = host->alloc(chunk->count + 1);
    if (!made)
        return DLC_ERR_NOMEM;
    for (size_t b = 0; b < bytes; b++)
        for (size_t i = 0; i < count; i++)
            made[i * bytes + b] = chunk->bytes[b * count + i];
    memcpy(made + done, chunk->bytes + done, chunk->count - done);
    return replace(chunk, made, chunk->count);
}

/* DLC_ERR_DATA without a sentence: the caller knows which chunk it is. */
static dlc_status undo_filters(const layout *of, uint32_t mask, packed *chunk) {
    size_t bytes = (size_t)layout_chunk_bytes(of);
    dlc_status status = DLC_OK;
    for (int32_t f = of->filters; status == DLC_OK && f-- > 0;) {
        if (mask >> f & 1)
            continue;
        if (of->filter[f] == FILTER_DEFLATE)
            status = undo_deflate(chunk, bytes + (size_t)CHECKSUM * FILTERS_MOST);
        else if (of->filter[f] == FILTER_SHUFFLE)
            status = undo_shuffle(chunk, (size_t)of->of.bytes);
        else if (chunk->count < CHECKSUM)
            status = DLC_ERR_DATA;
        else
            chunk->count -= CHECKSUM;
    }
    return status == DLC_OK && chunk->count != bytes ? DLC_ERR_DATA : status;
}

/* What a chunk is that was never written. */
static void fill(const layout *of, packed *chunk) {
    static const unsigned char zeros[sizeof of->fill] = {0};
    size_t bytes = (size_t)of->of.bytes;
    if (memcmp(of->fill, zeros, sizeof zeros) == 0)
        return; /* as new memory is */
    for (size_t at = 0; at + bytes <= chunk->count; at += bytes)
        memcpy(chunk->bytes + at, of->fill, bytes);
}

/* Reads a chunk into new memory, which is the caller's. */
static dlc_status read_chunk(const data_file *in, const char *name, const layout *of,
                             int64_t number, packed *made) {
    const chunk_place *at = &of->place[number];
    int is_written = at->address >= 0;
    packed chunk = {.count = is_written ? at->bytes : (size_t)layout_chunk_bytes(of)};
    chunk.bytes = host->alloc(chunk.count + 1);
    if (!chunk.bytes)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_OK;
    if (is_written)
        status = file_read(in, at->address, chunk.bytes, chunk.count);
    else
        fill(of, &chunk);
    if (is_written && status == DLC_OK) {
        status = undo_filters(of, at->mask, &chunk);
        if (status == DLC_ERR_DATA)
            status = host->fail(DLC_ERR_DATA,
                                "%s: %s: the chunk at byte %lld is damaged", in->path,
                                name, (long long)at->address);
    }
    if (status != DLC_OK) {
        host->free(chunk.bytes);
        return status;
    }
    *made = chunk;
    return DLC_OK;
}

/* ---- Rows ---------------------------------------------------------------------- */

/* A part of a row that is in one chunk. */
typedef struct part {
    const layout *of;
    int64_t at[ARRAY_RANK_MOST]; /* the chunk, in chunks */
    int64_t row;                 /* in the chunk */
} part;

/* Copies what a chunk has of a row, from dimension d on: `from` and `to` are places in
 * numbers. */
static void copy_part(const part *p, int32_t d, const unsigned char *chunk,
                      int64_t from, unsigned char *row, int64_t to) {
    const layout *of = p->of;
    int32_t rank = of->of.rank;
    int64_t first = d < rank ? p->at[d] * of->chunk[d] : 0;
    int64_t count = d < rank ? of->of.dims[d] - first : 1;
    size_t bytes = (size_t)of->of.bytes;
    if (d < rank && count > of->chunk[d])
        count = of->chunk[d];
    if (d < rank)
        from *= of->chunk[d], to = to * of->of.dims[d] + first;
    if (d + 1 >= rank) {
        memcpy(row + (size_t)to * bytes, chunk + (size_t)from * bytes,
               (size_t)count * bytes);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        copy_part(p, d + 1, chunk, from + i, row, to + i);
}

/* Copies a part out of its chunk, which is read unless it is kept. */
static dlc_status take_part(chunk_cache *cache, const data_file *in, const char *name,
                            const part *p, int64_t chunk, unsigned char *to) {
    slot *at = &cache->slots[(uint64_t)chunk % SLOTS];
    dlc_status status = DLC_OK;
    packed read = {0};
    (void)pthread_mutex_lock(&at->lock);
    if (at->of != p->of || at->chunk != chunk) {
        status = read_chunk(in, name, p->of, chunk, &read);
        if (status == DLC_OK) {
            host->free(at->numbers);
            at->numbers = read.bytes;
            at->of = p->of;
            at->chunk = chunk;
        }
    }
    if (status == DLC_OK)
        copy_part(p, 1, at->numbers, p->row, to, 0);
    (void)pthread_mutex_unlock(&at->lock);
    return status;
}

dlc_status chunks_read_row(chunk_cache *cache, const data_file *in, const char *name,
                           const layout *of, int64_t row, unsigned char *to) {
    part p = {.of = of, .row = row % of->chunk[0], .at[0] = row / of->chunk[0]};
    dlc_status status = DLC_OK;
    int64_t chunks = 1;
    for (int32_t d = 1; d < of->of.rank; d++)
        chunks *= (of->of.dims[d] - 1) / of->chunk[d] + 1;
    for (int64_t i = 0; status == DLC_OK && i < chunks; i++) {
        int64_t rest = i;
        for (int32_t d = of->of.rank; d-- > 1;) {
            int64_t count = (of->of.dims[d] - 1) / of->chunk[d] + 1;
            p.at[d] = rest % count;
            rest /= count;
        }
        status = take_part(cache, in, name, &p, p.at[0] * chunks + i, to);
    }
    return status;
}
