/* The header of an array in NumPy's format. */
#ifndef DATA_NPY_HEADER_H
#define DATA_NPY_HEADER_H

#include "array.h"
#include "file.h"

/* Reads the header of the array that is bytes begin .. begin + bytes - 1 of a file, and
 * checks that its numbers are all there. *data: where they begin, in the file. `name`
 * is for messages. DLC_ERR_DATA for damage, and for arrays that are not made of plain
 * numbers or not in C's order. */
dlc_status npy_header_read(const data_file *in, const char *name, int64_t begin,
                           int64_t bytes, array *made, int64_t *data);

#endif
