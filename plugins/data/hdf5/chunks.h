/* Reads rows of a dataset that is stored in chunks. Chunks that were unpacked are kept
 * for a while, since those who read in order want many rows of each. */
#ifndef HDF5_CHUNKS_H
#define HDF5_CHUNKS_H

#include <pthread.h>

#include "layout.h"

enum { SLOTS = 8 };

/* A chunk that is kept. */
typedef struct slot {
    pthread_mutex_t lock;
    const layout *of; /* whose it is; NULL: nothing is kept */
    int64_t chunk;
    unsigned char *numbers; /* owned */
} slot;

typedef struct chunk_cache {
    slot slots[SLOTS];
} chunk_cache;

void chunk_cache_open(chunk_cache *made);
void chunk_cache_close(chunk_cache *of);

/* Reads row `row`. Any thread. `name` is that of the dataset, for messages. */
dlc_status chunks_read_row(chunk_cache *cache, const data_file *in, const char *name,
                           const layout *of, int64_t row, unsigned char *to);

#endif
