/* Decodes UTF-8, and escapes what could command a terminal. */
#include "base/escape.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NONE = 0, INVALID = 1 };

static size_t sequence_bytes(unsigned char first) {
    return first < 0x80   ? 1
           : first < 0xc2 ? 0 /* a continuation byte, or overlong */
           : first < 0xe0 ? 2
           : first < 0xf0 ? 3
           : first < 0xf5 ? 4
                          : 0;
}

/* Whether the code is overlong, a surrogate, or beyond Unicode. */
static int is_invalid(uint32_t code, size_t bytes) {
    return (bytes == 3 && code < 0x800) || (code >= 0xd800 && code < 0xe000) ||
           (bytes == 4 && code < 0x10000) || code > 0x10ffff;
}

size_t dlc_utf8_next(const char *text, size_t length, uint32_t *code) {
    const unsigned char *at = (const unsigned char *)text;
    size_t bytes = sequence_bytes(at[0]);
    uint32_t value = bytes < 2 ? at[0] : at[0] & (0x7fu >> bytes);
    *code = UINT32_MAX;
    if (!bytes)
        return INVALID;
    for (size_t i = 1; i < bytes; i++) {
        if (i == length)
            return NONE;
        if ((at[i] & 0xc0) != 0x80)
            return INVALID;
        value = value << 6 | (at[i] & 0x3f);
    }
    if (is_invalid(value, bytes))
        return INVALID;
    *code = value;
    return bytes;
}

int dlc_is_printable(uint32_t code) {
    static const uint32_t hidden[][2] = {
        {0x00, 0x1f},       {0x7f, 0x9f},          {0x61c, 0x61c},   {0x200b, 0x200f},
        {0x2028, 0x202e},   {0x2060, 0x206f},      {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
        {0xe0000, 0xe0fff}, {0x110000, UINT32_MAX}};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (code >= hidden[i][0] && code <= hidden[i][1])
            return 0;
    return 1;
}

size_t dlc_escape_char(char shown[DLC_ESCAPE_BYTES], const char *text, size_t bytes,
                       uint32_t code) {
    unsigned char byte = (unsigned char)text[0];
    if (dlc_is_printable(code)) {
        memcpy(shown, text, bytes);
        shown[bytes] = '\0';
        return bytes;
    }
    int length;
    if (byte == '\n' || byte == '\t' || byte == '\r')
        length = snprintf(shown, DLC_ESCAPE_BYTES, "\\%c",
                          byte == '\n'   ? 'n'
                          : byte == '\t' ? 't'
                                         : 'r');
    else if (code == UINT32_MAX || code < 0x80)
        length = snprintf(shown, DLC_ESCAPE_BYTES, "\\x%02x", byte);
    else if (code < 0x10000)
        length = snprintf(shown, DLC_ESCAPE_BYTES, "\\u%04x", (unsigned)code);
    else
        length = snprintf(shown, DLC_ESCAPE_BYTES, "\\U%08x", (unsigned)code);
    return (size_t)length;
}

size_t dlc_escape_text(char *shown, size_t room, const char *text, int lines) {
    size_t length = 0, left = strlen(text);
    while (left) {
        char piece[DLC_ESCAPE_BYTES];
        uint32_t code;
        size_t bytes = dlc_utf8_next(text, left, &code), more = 1;
        bytes += !bytes; /* incomplete at the end: shown as bytes */
        if (lines && *text == '\n')
            piece[0] = '\n';
        else
            more = dlc_escape_char(piece, text, bytes, code);
        if (length + more >= room)
            break;
        memcpy(shown + length, piece, more);
        length += more;
        text += bytes;
        left -= bytes;
    }
    if (room)
        shown[length] = '\0';
    return length;
}

/* Has the format a conversion of floating-point numbers? */
static int has_floats(const char *format) {
    while ((format = strchr(format, '%'))) {
        format += 1 + strspn(format + 1, "-+ #0123456789.*hlLqjzt");
        if (*format && strchr("eEfFgG", *format))
            return 1;
        format += *format != '\0';
    }
    return 0;
}

static int is_of_word(char c) {
    return isalnum((unsigned char)c) || (c && strchr("_-./", c));
}

int dlc_print(char *to, size_t room, const char *format, va_list args) {
    static const char sick[] = "-nan";
    int length = vsnprintf(to, room, format, args);
    char *at = room > 0 && has_floats(format) ? to : NULL;
    while (at && (at = strstr(at, sick))) {
        if ((at == to || !is_of_word(at[-1])) && !is_of_word(at[sizeof sick - 1]))
            memmove(at, at + 1, strlen(at));
        at++;
    }
    return length;
}
