/* The values of an LMDB file, in the order of their keys. */
#ifndef LMDB_TREE_H
#define LMDB_TREE_H

#include "../shared/file.h"

/* Where a key and its value are, in the file. */
typedef struct tree_value {
    int64_t key, begin;
    uint32_t bytes;
    uint16_t key_bytes;

    /* The value has pages of its own. `begin` is that of the first one, and is followed
     * by a header; otherwise it is that of the value. */
    uint16_t is_large;
} tree_value;

/* Visits all values of the main database, until a visit fails. DLC_ERR_DATA for damage,
 * and for what is no plain database: with several values for a key, or with others in
 * it. */
typedef dlc_status (*tree_visit)(void *context, const tree_value *at);
dlc_status tree_walk(const data_file *in, tree_visit visit, void *context);

/* Reads a value. `room` has its bytes and TREE_HEADER more; *value points into it. */
enum { TREE_HEADER = 16 };
dlc_status tree_read(const data_file *in, const tree_value *at, unsigned char *room,
                     const unsigned char **value);

#endif
