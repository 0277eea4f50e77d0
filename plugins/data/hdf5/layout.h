/* Where the numbers of a dataset are in its HDF5 file. */
#ifndef HDF5_LAYOUT_H
#define HDF5_LAYOUT_H

#include "../shared/array.h"
#include "../shared/file.h"

enum { FILTERS_MOST = 8, REASON = 400 };

/* Filters that can be undone; their numbers are HDF5's. */
enum { FILTER_DEFLATE = 1, FILTER_SHUFFLE = 2, FILTER_FLETCHER = 3 };

/* Where a chunk is. */
typedef struct chunk_place {
    int64_t address; /* -1: it was never written */
    uint32_t bytes;  /* in the file */
    uint32_t mask;   /* bit f: filter f was left out */
} chunk_place;

/* How a dataset is stored: in one piece, or in chunks, or, if it is small, in the
 * header of the dataset. */
typedef struct layout {
    array of;
    enum { IN_ONE_PIECE, IN_CHUNKS, IN_HEADER } kind;
    int64_t address; /* IN_ONE_PIECE: of the first number */

    /* IN_CHUNKS: their shape, what was done to them, and all of them, the last
     * dimension first. */
    int64_t chunk[ARRAY_RANK_MOST];
    int32_t filters, filter[FILTERS_MOST];
    int64_t chunks;
    chunk_place *place;    /* owned */
    unsigned char fill[8]; /* a number of chunks that were never written */

    unsigned char *numbers; /* IN_HEADER: owned */
} layout;

/* Asks libhdf5 about the dataset `name`, in a process of its own, since a damaged file
 * may crash it. Everything that it says is compared with the size of the file. *found:
 * 0 if there is no such dataset. DLC_ERR_DATA for damage, and for datasets that cannot
 * be read in place. */
dlc_status layout_ask(const data_file *in, const char *name, layout *made, int *found);
void layout_free(layout *of);

int64_t layout_chunk_bytes(const layout *of); /* before the filters */

#endif
