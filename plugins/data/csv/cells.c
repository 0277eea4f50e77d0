/* Reads cells. */
#include "cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_MOST 100000000

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
    end += strspn(end, " ");
    if (end == from->text || *end || isinf(value) || (isnan(value) && !may_be_nan))
        return cell_refuse(of, at, column, "is not a number");
    *number = value;
    return DLC_OK;
}

/* Is it the class of a sample that does not count? */
static int is_none(const char *text) {
    text += strspn(text, " ");
    return text[0] == '-' && text[1] == '1' && !text[2 + strspn(text + 2, " ")];
}

dlc_status cell_label(const table *of, const row *at, int32_t column, int32_t *label) {
    const cell *from = row_cell(at, column);
    const char *digits = from->text + strspn(from->text, " ");
    size_t count = strspn(digits, "0123456789");
    int64_t number = 0;
    if (is_none(from->text)) {
        *label = DLC_LABEL_NONE;
        return DLC_OK;
    }
    for (size_t i = 0; i < count && number <= LABEL_MOST; i++)
        number = 10 * number + (digits[i] - '0');
    if (!count || digits[count + strspn(digits + count, " ")])
        number = classes_find(&of->known, from->text);
    if (number < 0 || number > LABEL_MOST)
        return cell_refuse(of, at, column,
                           "is neither the number of a class nor the name of one; "
                           "`classes` names them");
    *label = (int32_t)number;
    return DLC_OK;
}
