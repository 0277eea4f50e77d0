/* The greedy placement of buffers. */
#include "net/buffers.h"

#include <stdlib.h>
#include <string.h>

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

static int overlap(const dlc_buffer *a, const dlc_buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset at which a buffer fits between those that are placed, which are
 * sorted by offset, and in use at the same time. */
static size_t lowest_gap(dlc_buffer *const *placed, size_t count,
                         const dlc_buffer *buffer) {
    size_t offset = 0, bytes = align_up(buffer->bytes);
    for (size_t i = 0; i < count && placed[i]->offset < offset + bytes; i++) {
        size_t end = placed[i]->offset + align_up(placed[i]->bytes);
        if (end > offset && overlap(placed[i], buffer))
            offset = end;
    }
    return offset;
}

/* Keeps the order by offset, of equal ones the one in which they come. */
static void insert(dlc_buffer **placed, size_t count, dlc_buffer *buffer) {
    size_t begin = 0, end = count;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (placed[middle]->offset <= buffer->offset)
            begin = middle + 1;
        else
            end = middle;
    }
    memmove(&placed[begin + 1], &placed[begin], (count - begin) * sizeof(dlc_buffer *));
    placed[begin] = buffer;
}

dlc_status dlc_buffers_place(dlc_buffer *buffers, size_t count, size_t *total) {
    dlc_status status = DLC_ERR_NOMEM;
    dlc_buffer **order = dlc_alloc(count, sizeof(dlc_buffer *));
    dlc_buffer **placed = dlc_alloc(count, sizeof(dlc_buffer *));
    if (!order || !placed)
        goto out;
    for (size_t i = 0; i < count; i++)
        order[i] = &buffers[i];
    qsort(order, count, sizeof(dlc_buffer *), by_size);

    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        order[i]->offset = lowest_gap(placed, i, order[i]);
        insert(placed, i, order[i]);
        size_t end = order[i]->offset + align_up(order[i]->bytes);
        if (end > size)
            size = end;
    }
    *total = size;
    status = DLC_OK;
out:
    dlc_free(placed);
    dlc_free(order);
    return status;
}
