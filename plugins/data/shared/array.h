/* Arrays of numbers, as NumPy and HDF5 store them. The first dimension is that of the
 * samples: each has one row. */
#ifndef DATA_ARRAY_H
#define DATA_ARRAY_H

#include <dlcore/data.h>

enum { ARRAY_RANK_MOST = DLC_MAX_DIMS + 1 };

/* The kinds of numbers. */
typedef enum number_kind {
    NUMBER_NONE = 0,
    NUMBER_UNSIGNED = 'u',
    NUMBER_SIGNED = 'i',
    NUMBER_FLOAT = 'f',
} number_kind;

typedef struct array {
    number_kind kind;
    int32_t bytes; /* of a number: 1, 2, 4, 8 */
    int is_big_endian;
    int32_t rank; /* 1 .. ARRAY_RANK_MOST */
    int64_t dims[ARRAY_RANK_MOST];
} array;

/* 1 if there are such numbers, and all bytes together can be counted. */
int array_is_sound(const array *of);
/* 1 if no dimension is empty, either. */
int array_is_valid(const array *of);
int64_t array_row_count(const array *of); /* numbers in a row */
int64_t array_row_bytes(const array *of);
int64_t array_bytes(const array *of); /* all of them */

/* Are the numbers stored as this computer stores them? */
int array_is_native(const array *of);
/* The number that is stored at `at`. */
double array_number(const array *of, const unsigned char *at);

/* Writes type and shape as a user knows them, such as "float32, 3 x 28 x 28". */
void array_describe(const array *of, char *text, size_t room);

#endif
