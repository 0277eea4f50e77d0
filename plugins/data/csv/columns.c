/* Reads lists of columns. */
#include "columns.h"

#include <string.h>

#define RANGE ".."

/* A piece of a list. */
typedef struct piece {
    const char *text;
    size_t length;
} piece;

static piece trim(const char *begin, const char *end) {
    while (begin < end && *begin == ' ')
        begin++;
    while (end > begin && end[-1] == ' ')
        end--;
    return (piece){begin, (size_t)(end - begin)};
}

/* A column's name, or its number from 1; -1: neither. */
static int32_t find(piece of, const row *header, int32_t count) {
    int32_t number = 0;
    for (int32_t i = 0; i < row_count(header); i++)
        if (row_cell(header, i)->length == of.length &&
            memcmp(row_cell(header, i)->text, of.text, of.length) == 0)
            return i;
    for (size_t i = 0; i < of.length; i++) {
        if (of.text[i] < '0' || of.text[i] > '9' || number > count)
            return -1;
        number = 10 * number + (of.text[i] - '0');
    }
    return number <= count ? number - 1 : -1;
}

static dlc_status add(columns *to, int32_t first, int32_t last) {
    dlc_status status = DLC_OK;
    for (int32_t i = first; status == DLC_OK && i <= last; i++)
        status = growing_add(&to->list, &i, sizeof i);
    return status;
}

/* Adds the columns of a piece, which is a name as a whole, or a range. */
static dlc_status add_piece(piece of, const row *header, int32_t count,
                            const char *where, columns *made) {
    const char *range = memmem(of.text, of.length, RANGE, strlen(RANGE));
    int32_t first = find(of, header, count), last = first;
    if (first < 0 && range) {
        first = find(trim(of.text, range), header, count);
        last = find(trim(range + strlen(RANGE), of.text + of.length), header, count);
    }
    if (first >= 0 && first <= last)
        return add(made, first, last);
    return host->fail(
        DLC_ERR_DATA,
        "%s: there is no column \"%.*s\": the %d columns have the numbers "
        "from 1%s%.100s",
        where, (int)(of.length < 200 ? of.length : 200), of.text, (int)count,
        row_count(header) ? ", and names, the first of which is " : "",
        row_count(header) ? row_cell(header, 0)->text : "");
}

dlc_status columns_read(const char *text, const row *header, int32_t count,
                        const char *where, columns *made) {
    dlc_status status = DLC_OK;
    for (const char *at = text; status == DLC_OK && at;) {
        const char *end = strchrnul(at, ',');
        status = add_piece(trim(at, end), header, count, where, made);
        at = *end ? end + 1 : NULL;
    }
    return status;
}
