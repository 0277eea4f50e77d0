/* The container of PNG (ISO/IEC 15948) around deflate's stored blocks (RFC 1950, 1951).
 */
#include "png.h"

#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "file.h"

/* ---- Glyphs ------------------------------------------------------------------ */

enum { ROWS = 7, COLUMNS = 5 };

/* Rows from top to bottom; the highest of five bits is the left column. */
static const struct glyph {
    char character;
    uint8_t row[ROWS];
} glyphs[] = {
    {'?', {0x0e, 0x11, 0x01, 0x02, 0x04, 0x00, 0x04}},
    {' ', {0}},
    {'-', {0x00, 0x00, 0x00, 0x1f, 0x00, 0x00, 0x00}},
    {'_', {0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1f}},
    {'.', {0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x0c}},
    {',', {0x00, 0x00, 0x00, 0x00, 0x0c, 0x04, 0x08}},
    {':', {0x00, 0x0c, 0x0c, 0x00, 0x0c, 0x0c, 0x00}},
    {'(', {0x02, 0x04, 0x08, 0x08, 0x08, 0x04, 0x02}},
    {')', {0x08, 0x04, 0x02, 0x02, 0x02, 0x04, 0x08}},
    {'/', {0x01, 0x01, 0x02, 0x04, 0x08, 0x10, 0x10}},
    {'+', {0x00, 0x04, 0x04, 0x1f, 0x04, 0x04, 0x00}},
    {'0', {0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e}},
    {'1', {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e}},
    {'2', {0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f}},
    {'3', {0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e}},
    {'4', {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02}},
    {'5', {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e}},
    {'6', {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e}},
    {'7', {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08}},
    {'8', {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e}},
    {'9', {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c}},
    {'A', {0x0e, 0x11, 0x11, 0x1f, 0x11, 0x11, 0x11}},
    {'B', {0x1e, 0x11, 0x11, 0x1e, 0x11, 0x11, 0x1e}},
    {'C', {0x0e, 0x11, 0x10, 0x10, 0x10, 0x11, 0x0e}},
    {'D', {0x1e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x1e}},
    {'E', {0x1f, 0x10, 0x10, 0x1e, 0x10, 0x10, 0x1f}},
    {'F', {0x1f, 0x10, 0x10, 0x1e, 0x10, 0x10, 0x10}},
    {'G', {0x0e, 0x11, 0x10, 0x17, 0x11, 0x11, 0x0f}},
    {'H', {0x11, 0x11, 0x11, 0x1f, 0x11, 0x11, 0x11}},
    {'I', {0x0e, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0e}},
    {'J', {0x07, 0x02, 0x02, 0x02, 0x02, 0x12, 0x0c}},
    {'K', {0x11, 0x12, 0x14, 0x18, 0x14, 0x12, 0x11}},
    {'L', {0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x1f}},
    {'M', {0x11, 0x1b, 0x15, 0x15, 0x11, 0x11, 0x11}},
    {'N', {0x11, 0x19, 0x15, 0x13, 0x11, 0x11, 0x11}},
    {'O', {0x0e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e}},
    {'P', {0x1e, 0x11, 0x11, 0x1e, 0x10, 0x10, 0x10}},
    {'Q', {0x0e, 0x11, 0x11, 0x11, 0x15, 0x12, 0x0d}},
    {'R', {0x1e, 0x11, 0x11, 0x1e, 0x14, 0x12, 0x11}},
    {'S', {0x0f, 0x10, 0x10, 0x0e, 0x01, 0x01, 0x1e}},
    {'T', {0x1f, 0x04, 0x04, 0x04, 0x04, 0x04, 0x04}},
    {'U', {0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e}},
    {'V', {0x11, 0x11, 0x11, 0x11, 0x11, 0x0a, 0x04}},
    {'W', {0x11, 0x11, 0x11, 0x15, 0x15, 0x1b, 0x11}},
    {'X', {0x11, 0x11, 0x0a, 0x04, 0x0a, 0x11, 0x11}},
    {'Y', {0x11, 0x11, 0x0a, 0x04, 0x04, 0x04, 0x04}},
    {'Z', {0x1f, 0x01, 0x02, 0x04, 0x08, 0x10, 0x1f}},
};

static const struct glyph *find_glyph(char character) {
    if (character >= 'a' && character <= 'z')
        character = (char)(character - 'a' + 'A');
    for (size_t i = 0; i < sizeof glyphs / sizeof *glyphs; i++)
        if (glyphs[i].character == character)
            return &glyphs[i];
    return &glyphs[0];
}

void dlc_canvas_text(const dlc_canvas *canvas, int64_t x, int64_t y, int64_t room,
                     const char *text) {
    for (; *text && room >= COLUMNS; text++) {
        if (((unsigned char)*text & 0xc0) == 0x80)
            continue; /* of a character that was a '?' already */
        const struct glyph *glyph = find_glyph(*text);
        for (int row = 0; row < ROWS; row++)
            for (int column = 0; column < COLUMNS; column++)
                if (glyph->row[row] >> (COLUMNS - 1 - column) & 1)
                    memset(dlc_canvas_at(canvas, x + column, y + row), 0, 3);
        x += DLC_CANVAS_ADVANCE;
        room -= DLC_CANVAS_ADVANCE;
    }
}

/* ---- The canvas -------------------------------------------------------------- */

dlc_status dlc_canvas_open(int64_t width, int64_t height, dlc_canvas *canvas) {
    uint8_t *pixels = dlc_alloc((size_t)height, (size_t)width * 3);
    if (!pixels)
        return DLC_ERR_NOMEM;
    memset(pixels, 255, (size_t)(width * height * 3));
    *canvas = (dlc_canvas){width, height, pixels};
    return DLC_OK;
}

void dlc_canvas_close(dlc_canvas *canvas) {
    dlc_free(canvas->pixels);
    *canvas = (dlc_canvas){0};
}

uint8_t *dlc_canvas_at(const dlc_canvas *canvas, int64_t x, int64_t y) {
    return canvas->pixels + (y * canvas->width + x) * 3;
}

/* ---- The file ---------------------------------------------------------------- */

static void put32(dlc_text *file, uint32_t value) {
    const char bytes[4] = {(char)(value >> 24), (char)(value >> 16), (char)(value >> 8),
                           (char)value};
    dlc_text_append(file, bytes, sizeof bytes);
}

static uint32_t crc32_of(const char *bytes, size_t count) {
    uint32_t table[256], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
    }
    for (size_t i = 0; i < count; i++)
        crc = crc >> 8 ^ table[(crc ^ (uint8_t)bytes[i]) & 255];
    return ~crc;
}

static uint32_t adler32_of(const char *bytes, size_t count) {
    enum { BASE = 65521 };
    uint32_t low = 1, high = 0;
    for (size_t i = 0; i < count; i++) {
        low = (low + (uint8_t)bytes[i]) % BASE;
        high = (high + low) % BASE;
    }
    return high << 16 | low;
}

/* The checksum covers the type, too. */
static void put_chunk(dlc_text *file, const char type[4], const char *bytes,
                      size_t count) {
    put32(file, (uint32_t)count);
    size_t begin = file->length;
    dlc_text_append(file, type, 4);
    dlc_text_append(file, bytes, count);
    if (!file->failed)
        put32(file, crc32_of(file->bytes + begin, count + 4));
}

static void put_header(dlc_text *file, const dlc_canvas *canvas) {
    /* 8 bits, red, green and blue, not interlaced. */
    static const char format[] = {8, 2, 0, 0, 0};
    dlc_text header = {0};
    put32(&header, (uint32_t)canvas->width);
    put32(&header, (uint32_t)canvas->height);
    dlc_text_append(&header, format, sizeof format);
    if (header.failed)
        dlc_text_fail(file);
    else
        put_chunk(file, "IHDR", header.bytes, header.length);
    dlc_text_free(&header);
}

/* Blocks of at most 65,535 bytes, each with its length and the complement of it. */
static void put_stored(dlc_text *stream, const char *bytes, size_t count) {
    enum { MOST = 65535 };
    dlc_text_append(stream, "\x78\x01", 2);
    for (size_t at = 0, left = count; left > 0;) {
        uint32_t size = left < MOST ? (uint32_t)left : MOST, other = ~size;
        const char head[5] = {size == left, (char)size, (char)(size >> 8), (char)other,
                              (char)(other >> 8)};
        dlc_text_append(stream, head, sizeof head);
        dlc_text_append(stream, bytes + at, size);
        at += size;
        left -= size;
    }
    put32(stream, adler32_of(bytes, count));
}

static void put_pixels(dlc_text *file, const dlc_canvas *canvas) {
    dlc_text rows = {0}, stream = {0};
    for (int64_t y = 0; y < canvas->height; y++) {
        dlc_text_append(&rows, "", 1); /* not filtered */
        dlc_text_append(&rows, (const char *)dlc_canvas_at(canvas, 0, y),
                        (size_t)canvas->width * 3);
    }
    if (!rows.failed)
        put_stored(&stream, rows.bytes, rows.length);
    if (rows.failed || stream.failed)
        dlc_text_fail(file);
    else
        put_chunk(file, "IDAT", stream.bytes, stream.length);
    dlc_text_free(&stream);
    dlc_text_free(&rows);
}

dlc_status dlc_canvas_write(const dlc_canvas *canvas, const char *path) {
    dlc_text file = {0};
    dlc_text_append(&file, "\x89PNG\r\n\x1a\n", 8);
    put_header(&file, canvas);
    put_pixels(&file, canvas);
    put_chunk(&file, "IEND", "", 0);
    dlc_status status = dlc_text_status(&file);
    if (status == DLC_OK)
        status = dlc_tool_file_write(path, file.bytes, file.length);
    dlc_text_free(&file);
    return status;
}
