/* A string that grows as it is written to. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/memory.h"

void dlc_text_fail(dlc_text *text) {
    text->failed = 1;
    text->length = 0;
    if (text->bytes)
        text->bytes[0] = '\0';
}

static int reserve(dlc_text *text, size_t more) {
    if (text->failed)
        return 0;
    size_t need = text->length + more + 1;
    if (text->bytes && need <= text->room)
        return 1;
    size_t room = text->room ? text->room : 64;
    while (room < need)
        room *= 2;
    char *bytes = dlc_grow(text->bytes, text->length, room, 1);
    if (!bytes) {
        dlc_text_fail(text);
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

void dlc_text_append_text(dlc_text *text, const dlc_text *more) {
    if (more->failed)
        dlc_text_fail(text);
    else if (more->length)
        dlc_text_append(text, more->bytes, more->length);
}

void dlc_text_fail_with(dlc_text *text, const dlc_text *part) {
    if (part->failed)
        dlc_text_fail(text);
}

void dlc_text_add(dlc_text *text, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length >= 0 && reserve(text, (size_t)length)) {
        char *end = text->bytes + text->length;
        (void)dlc_print(end, (size_t)length + 1, format, again);
        text->length += strlen(end);
    }
    va_end(again);
}

const char *dlc_text_amount(double bytes, char text[DLC_AMOUNT_TEXT]) {
    const double least = 1e9, small = 1e6;
    int is_small = bytes < least;
    (void)snprintf(text, DLC_AMOUNT_TEXT, is_small ? "%.0f MB" : "%.1f GB",
                   bytes / (is_small ? small : least));
    return text;
}

void dlc_text_add_escaped(dlc_text *text, const char *value, int most) {
    size_t left = strlen(value);
    for (int count = 0; left && count < most; count++) {
        char shown[DLC_ESCAPE_BYTES];
        uint32_t code;
        size_t bytes = dlc_utf8_next(value, left, &code);
        bytes += !bytes; /* incomplete at the end */
        dlc_text_append(text, shown, dlc_escape_char(shown, value, bytes, code));
        value += bytes;
        left -= bytes;
    }
}

/* Characters of UTF-8. */
static int count_letters(const char *value) {
    int count = 0;
    for (; *value; value++)
        count += ((unsigned char)*value & 0xc0) != 0x80;
    return count;
}

void dlc_text_add_cell(dlc_text *text, int width, int most, const char *value) {
    dlc_text cell = {0};
    dlc_text_add_escaped(&cell, value, most);
    int count = count_letters(dlc_text_string(&cell));
    int spaces = abs(width) > count ? abs(width) - count : 0;
    dlc_text_add(text, "%*s", width > 0 ? spaces : 0, "");
    dlc_text_append_text(text, &cell);
    dlc_text_add(text, "%*s", width < 0 ? spaces : 0, "");
    dlc_text_free(&cell);
}

dlc_status dlc_text_status(const dlc_text *text) {
    return text->failed ? dlc_fail(DLC_ERR_NOMEM, "out of memory") : DLC_OK;
}

const char *dlc_text_string(const dlc_text *text) {
    return text->failed ? "(out of memory)" : text->bytes ? text->bytes : "";
}

void dlc_text_free(dlc_text *text) {
    dlc_free(text->bytes);
    *text = (dlc_text){0};
}
