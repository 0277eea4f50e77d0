/* Writes SVG: shapes and texts, with names escaped. Coordinates are pixels. Used by
 * every command that draws a picture. */
#ifndef DLC_TOOLS_SVG_H
#define DLC_TOOLS_SVG_H

#include "base/text.h"

/* Begins a picture with the style sheet `style`; `dark` is added for dark colour
 * schemes. The background has class "back". */
void dlc_svg_begin(dlc_text *svg, double width, double height, const char *title,
                   const char *light, const char *dark);
void dlc_svg_end(dlc_text *svg);

/* `tip`: shown when the mouse is over the shape; NULL: none. */
void dlc_svg_box(dlc_text *svg, const char *style, double x, double y, double width,
                 double height, const char *tip);
void dlc_svg_line(dlc_text *svg, const char *style, double x1, double y1, double x2,
                  double y2);
/* A curve below y from x1 to x2, three quarters of `depth` deep. */
void dlc_svg_arc(dlc_text *svg, const char *style, double x1, double x2, double y,
                 double depth, const char *tip);
/* `anchor`: "start", "middle" or "end", where x is. */
void dlc_svg_text(dlc_text *svg, const char *style, const char *anchor, double x,
                  double y, const char *text);

#endif
