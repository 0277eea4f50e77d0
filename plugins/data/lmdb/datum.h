/* Caffe's Datum: an image and a label, as a message of protocol buffers. */
#ifndef LMDB_DATUM_H
#define LMDB_DATUM_H

#include <stddef.h>
#include <stdint.h>

typedef struct datum {
    int32_t channels, height, width;
    int64_t label;             /* may be beyond an int32 */
    int is_encoded;            /* `data` is an image file */
    const unsigned char *data; /* in the message */
    size_t bytes;              /* of it */
    size_t floats;             /* of float_data, instead of data */
} datum;

/* Takes a message apart. `floats`, if not NULL, gets float_data: first ask how many
 * there are. Returns what is wrong with it; NULL: nothing. */
const char *datum_parse(const unsigned char *message, size_t bytes, float *floats,
                        datum *made);

#endif
