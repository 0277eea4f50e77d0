/* Lists of columns, as settings name them. */
#ifndef CSV_COLUMNS_H
#define CSV_COLUMNS_H

#include "rows.h"

/* Columns in the order in which they are named. Start with {0}. */
typedef struct columns {
    growing list; /* of int32_t, from 0 */
} columns;

static inline int32_t columns_count(const columns *of) {
    return (int32_t)(of->list.used / sizeof(int32_t));
}

static inline int32_t columns_at(const columns *of, int32_t i) {
    return ((const int32_t *)(const void *)of->list.bytes)[i];
}

/* Reads a list such as "age, 3, pixel0..pixel783": names of the header, or numbers from
 * 1, or ranges of either. `header` has no cells if there is none; `count` is the number
 * of columns. `where` says where the list stands. */
dlc_status columns_read(const char *text, const row *header, int32_t count,
                        const char *where, columns *made);

#endif
