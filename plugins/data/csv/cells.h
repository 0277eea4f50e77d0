/* Cells of a table that are numbers or classes. */
#ifndef CSV_CELLS_H
#define CSV_CELLS_H

#include "../shared/classes.h"
#include "rows.h"

typedef struct table {
    data_file in;
    row header;    /* has no cells if there is none */
    classes known; /* the names of classes */
} table;

/* Fails with the line, the column and the text of a cell, and what is wrong with it. */
dlc_status cell_refuse(const table *of, const row *at, int32_t column,
                       const char *what);

/* Reads a number that is finite, or, if it may be, NaN, which an empty cell is, too. */
dlc_status cell_number(const table *of, const row *at, int32_t column, int may_be_nan,
                       float *number);
/* Reads the number of a class (label_parse), or the name of one that is known; an
 * empty cell is DLC_LABEL_NONE. */
dlc_status cell_label(const table *of, const row *at, int32_t column, int32_t *label);

#endif
