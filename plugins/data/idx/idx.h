/* IDX, the format of MNIST: a header (two zero bytes, element type, number of
 * dimensions, then each dimension as 4 bytes, big endian) and the elements.
 */
#ifndef IDX_H
#define IDX_H

#include <dlcore/data.h>

/* Element types that are supported. */
enum { IDX_U8 = 0x08, IDX_F32 = 0x0d };

#define IDX_MAX_DIMS 4

/* The contents of a file, decompressed and checked. */
typedef struct idx_file {
    const char *path;
    unsigned char *bytes; /* owned, mapped */
    size_t size;
    int type;
    int rank;
    int64_t dims[IDX_MAX_DIMS];
    size_t begin;         /* of the elements */
    size_t element_bytes; /* of one */
} idx_file;

/* Reads `path`, compressed by gzip or not (detected by its contents), and checks the
 * header against the size. The caller releases the result with idx_unload; `path` must
 * outlive it. */
dlc_status idx_load(const char *path, idx_file *file);
void idx_unload(idx_file *file); /* zeroed is allowed */

#endif
