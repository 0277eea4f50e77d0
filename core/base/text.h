/* A string that grows as it is written to. */
#ifndef DLC_BASE_TEXT_H
#define DLC_BASE_TEXT_H

#include <stddef.h>
#include <string.h>

#include "base/status.h"

/* Start with {0}; release with dlc_text_free. `bytes` is NUL-terminated once something
 * was added. A failed allocation is remembered and reported by dlc_text_status, so that
 * the steps in between need no checks. A failed text is empty and stays so: nobody sees
 * a part of it. */
typedef struct dlc_text {
    char *bytes;
    size_t length, room;
    int failed;
} dlc_text;

void dlc_text_add(dlc_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Whether the value of a setting is `auto`: the choice is ours. */
static inline int dlc_is_auto(const char *value) {
    return strcmp(value, "auto") == 0;
}

/* Whether a list that ends with NULL has this text. NULL is an empty list. */
static inline int dlc_is_listed(const char *const *list, const char *text) {
    for (; list && *list; list++)
        if (strcmp(*list, text) == 0)
            return 1;
    return 0;
}

/* "21.7 GB", or "40 MB" below one GB. */
#define DLC_AMOUNT_TEXT 32
const char *dlc_text_amount(double bytes, char text[DLC_AMOUNT_TEXT]);

/* Appends at most `most` characters of `value`, as dlc_escape_text would: a name cannot
 * begin a line of its own. */
void dlc_text_add_escaped(dlc_text *text, const char *value, int most);
/* Appends a cell of a table: `value`, escaped, filled up with spaces to `width`
 * characters, on the right if that is negative, and cut after `most`. Printf's %*.*s
 * would count bytes of UTF-8. */
void dlc_text_add_cell(dlc_text *text, int width, int most, const char *value);
void dlc_text_append(dlc_text *text, const char *bytes, size_t length);
dlc_status dlc_text_status(const dlc_text *text);
/* Never NULL. Of a failed text "(out of memory)", for a message; where the text is more
 * than that, ask dlc_text_status. */
const char *dlc_text_string(const dlc_text *text);
/* Makes it a failed text, because memory ran out for something that belongs into it. */
void dlc_text_fail(dlc_text *text);
/* Makes it one if `part`, which belongs into it, has failed. */
void dlc_text_fail_with(dlc_text *text, const dlc_text *part);
/* Appends another text, or fails if that has failed. */
void dlc_text_append_text(dlc_text *text, const dlc_text *more);
void dlc_text_free(dlc_text *text);

#endif
