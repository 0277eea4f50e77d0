/* The greedy placement of buffers. */
#include "net/buffers.h"

#include <stdlib.h>

#include "base/memory.h"

static size_t align_up(size_t bytes) {
    return (bytes + DLC_BUFFER_ALIGNMENT - 1) / DLC_BUFFER_ALIGNMENT *
           DLC_BUFFER_ALIGNMENT;
}

static int by_size(const void *left, const void *right) {
    const dlc_buffer *a = *(const dlc_buffer *const *)left;
    const dlc_buffer *b = *(const dlc_buffer *const *)right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : 1; /* ties are broken the same way on every machine */
}

static int by_offset(const void *left, const void *right) {
    const dlc_buffer *a = *(const dlc_buffer *const *)left;
    const dlc_buffer *b = *(const dlc_buffer *const *)right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a < b ? -1 : 1;
}

static int overlap(const dlc_buffer *a, const dlc_buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset at which `bytes` fit between the `count` neighbours that are in use
 * at the same time, which are sorted by offset. */
static size_t lowest_gap(dlc_buffer *const *neighbours, size_t count, size_t bytes) {
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        if (neighbours[i]->offset >= offset + align_up(bytes))
            break;
        size_t end = neighbours[i]->offset + align_up(neighbours[i]->bytes);
        if (end > offset)
            offset = end;
    }
    return offset;
}

dlc_status dlc_buffers_place(dlc_buffer *buffers, size_t count, size_t *total) {
    dlc_status status = DLC_ERR_NOMEM;
    dlc_buffer **order = dlc_alloc(count, sizeof(dlc_buffer *));
    dlc_buffer **neighbours = dlc_alloc(count, sizeof(dlc_buffer *));
    if (!order || !neighbours)
        goto out;
    for (size_t i = 0; i < count; i++)
        order[i] = &buffers[i];
    qsort(order, count, sizeof(dlc_buffer *), by_size);

    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = 0;
        for (size_t j = 0; j < i; j++)
            if (overlap(order[i], order[j]))
                neighbours[n++] = order[j];
        qsort(neighbours, n, sizeof(dlc_buffer *), by_offset);
        order[i]->offset = lowest_gap(neighbours, n, order[i]->bytes);
        size_t end = order[i]->offset + align_up(order[i]->bytes);
        if (end > size)
            size = end;
    }
    *total = size;
    status = DLC_OK;
out:
    dlc_free(neighbours);
    dlc_free(order);
    return status;
}
