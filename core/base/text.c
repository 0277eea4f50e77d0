/* See text.h. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static int reserve(dlc_text *text, size_t more) {
    if (text->failed)
        return 0;
    size_t need = text->length + more + 1;
    if (need <= text->room)
        return 1;
    size_t room = text->room ? text->room : 64;
    while (room < need)
        room *= 2;
    char *bytes = dlc_grow(text->bytes, text->length, room, 1);
    if (!bytes) {
        text->failed = 1;
        return 0;
    }
    text->bytes = bytes;
    text->room = room;
    return 1;
}

void dlc_text_append(dlc_text *text, const char *bytes, size_t length) {
    if (!reserve(text, length))
        return;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void dlc_text_add(dlc_text *text, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length >= 0 && reserve(text, (size_t)length)) {
        vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

dlc_status dlc_text_status(const dlc_text *text) {
    return text->failed ? dlc_fail(DLC_ERR_NOMEM, "out of memory") : DLC_OK;
}

const char *dlc_text_string(const dlc_text *text) {
    return text->bytes ? text->bytes : "";
}

void dlc_text_free(dlc_text *text) {
    dlc_free(text->bytes);
    *text = (dlc_text){0};
}

#define NAME_MAX_COMPARED 63

static size_t min3(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Insertions, deletions, replacements and swaps of neighbours. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    size_t rows[3][NAME_MAX_COMPARED + 2];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= nb; j++)
        last[j] = j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t differs = a[i - 1] != b[j - 1];
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + differs);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[nb];
}

const char *dlc_nearest(const char *name, const char *const *candidates, size_t count) {
    size_t length = strlen(name);
    if (length > NAME_MAX_COMPARED)
        return NULL;
    /* One slip in three letters is a slip; more is another word. */
    size_t best = length / 3 + 2;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(candidates[i]);
        if (n > NAME_MAX_COMPARED)
            continue;
        size_t distance = edit_distance(name, length, candidates[i], n);
        if (distance < best && distance < n) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}
