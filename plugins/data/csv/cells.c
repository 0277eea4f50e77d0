/* Reads cells. */
#include "cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

dlc_status cell_refuse(const table *of, const row *at, int32_t column,
                       const char *what) {
    const row *header = &of->header;
    return host->fail(DLC_ERR_DATA, "%s:%lld: column %d%s%.100s: \"%.100s\" %s",
                      of->in.path, (long long)at->line, (int)column + 1,
                      row_count(header) ? ", " : "",
                      row_count(header) ? row_cell(header, column)->text : "",
                      row_cell(at, column)->text, what);
}

dlc_status cell_number(const table *of, const row *at, int32_t column, int may_be_nan,
                       float *number) {
    const cell *from = row_cell(at, column);
    char *end = from->text;
    float value = strtof(from->text, &end);
    if (end == from->text) /* as pandas writes what is missing */
        value = NAN;
    end += strspn(end, " ");
    if (*end || isinf(value) || (isnan(value) && !may_be_nan))
        return cell_refuse(of, at, column,
                           isinf(value) ? "is not a number of float32"
                                        : "is not a number");
    *number = value;
    return DLC_OK;
}

dlc_status cell_label(const table *of, const row *at, int32_t column, int32_t *label) {
    const cell *from = row_cell(at, column);
    int is_plain = from->text[strspn(from->text, "0123456789 ")] == '\0';
    int32_t named = is_plain ? -1 : classes_find(&of->known, from->text);
    if (named >= 0 || !from->text[strspn(from->text, " ")])
        *label = named;
    else if (!label_parse(from->text, from->length, label))
        return cell_refuse(of, at, column,
                           "is neither the number of a class nor the name of one; "
                           "`classes` names them");
    return DLC_OK;
}
