/* Rows of a CSV file (RFC 4180): cells between delimiters; one in quotes may have
 * delimiters, newlines and doubled quotes in it. */
#ifndef CSV_ROWS_H
#define CSV_ROWS_H

#include "../shared/file.h"
#include "../shared/growing.h"

/* A cell; its text ends with a zero byte. */
typedef struct cell {
    char *text;
    size_t length;
} cell;

/* A row that was taken apart. Start with {0}; may be used again. */
typedef struct row {
    growing text, cells; /* the cells point into the text */
    int64_t line;        /* where it begins; from 1 */
} row;

void row_free(row *of);

static inline int32_t row_count(const row *of) {
    return (int32_t)(of->cells.used / sizeof(cell));
}

static inline const cell *row_cell(const row *of, int32_t column) {
    return (const cell *)(const void *)of->cells.bytes + column;
}

/* Takes the text of a row apart, which has a zero byte behind it. `path` is for
 * messages. DLC_ERR_DATA with the line for quotes where none may be. */
dlc_status row_split(const char *path, char delimiter, row *of);

/* Goes through all rows of a file but empty ones, in blocks, until a visit fails. The
 * visitor gets each row taken apart, and the bytes that it has in the file. */
typedef dlc_status (*row_visit)(void *context, row *at, int64_t begin, int64_t bytes);
dlc_status rows_walk(const data_file *in, char delimiter, row_visit visit,
                     void *context);

#endif
