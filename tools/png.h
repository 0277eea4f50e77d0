/* Writes PNG files. The pixels are not compressed, which needs no library; any program
 * that opens a PNG reads them. Used by commands that draw images. */
#ifndef DLC_TOOLS_PNG_H
#define DLC_TOOLS_PNG_H

#include <stdint.h>

#include "base/status.h"

/* A picture of red, green and blue bytes, interleaved. */
typedef struct dlc_canvas {
    int64_t width, height;
    uint8_t *pixels; /* own */
} dlc_canvas;

/* A white canvas. DLC_ERR_NOMEM. */
dlc_status dlc_canvas_open(int64_t width, int64_t height, dlc_canvas *canvas);
void dlc_canvas_close(dlc_canvas *canvas); /* a zeroed one is allowed */

/* The pixel at x, y, which must be inside. */
uint8_t *dlc_canvas_at(const dlc_canvas *canvas, int64_t x, int64_t y);

/* Writes a line of black text with its upper left corner at x, y, as far as it fits
 * into `room` pixels. Glyphs have 5 x 7 pixels; small letters become capitals, and
 * unknown characters '?'. */
enum { DLC_CANVAS_ADVANCE = 6, DLC_CANVAS_LINE = 9 };
void dlc_canvas_text(const dlc_canvas *canvas, int64_t x, int64_t y, int64_t room,
                     const char *text);

/* Writes the canvas to a file, completely or not at all. DLC_ERR_IO, DLC_ERR_NOMEM. */
dlc_status dlc_canvas_write(const dlc_canvas *canvas, const char *path);

#endif
