/* Writes SVG elements into a text, with escaped names. */
#include "svg.h"

/* Bytes of the UTF-8 character at `at`; 0 if it is malformed. */
static size_t letter_bytes(const unsigned char *at) {
    size_t bytes = at[0] < 0x80                    ? 1
                   : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                   : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                   : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                   : 0;
    for (size_t i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90) ||
        (at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xbe))
        return 0; /* overlong form, surrogate, or not a character of XML */
    return bytes;
}

/* Appends text escaped for XML; characters that XML forbids become question marks. */
static void add_escaped(dlc_text *svg, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        size_t bytes = letter_bytes(at);
        if (*at == '&')
            dlc_text_add(svg, "&amp;");
        else if (*at == '<')
            dlc_text_add(svg, "&lt;");
        else if (*at == '>')
            dlc_text_add(svg, "&gt;");
        else if (*at == '"')
            dlc_text_add(svg, "&quot;");
        else if (bytes == 0 || *at < 0x20 || *at == 0x7f)
            dlc_text_add(svg, "?");
        else
            dlc_text_append(svg, (const char *)at, bytes);
        at += bytes ? bytes : 1;
    }
}

void dlc_svg_begin(dlc_text *svg, double width, double height, const char *title,
                   const char *light, const char *dark) {
    dlc_text_add(svg,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                 "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<title>",
                 width, height, width, height);
    add_escaped(svg, title);
    dlc_text_add(svg,
                 "</title>\n<style>\n%s@media (prefers-color-scheme: dark) {\n%s}\n"
                 "</style>\n<rect class=\"back\" width=\"100%%\" height=\"100%%\"/>\n",
                 light, dark);
}

void dlc_svg_end(dlc_text *svg) {
    dlc_text_add(svg, "</svg>\n");
}

void dlc_svg_box(dlc_text *svg, const char *style, double x, double y, double width,
                 double height, const char *tip) {
    dlc_text_add(svg,
                 "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                 "height=\"%.2f\"",
                 style, x, y, width, height);
    if (tip) {
        dlc_text_add(svg, "><title>");
        add_escaped(svg, tip);
        dlc_text_add(svg, "</title></rect>\n");
    } else {
        dlc_text_add(svg, "/>\n");
    }
}

void dlc_svg_line(dlc_text *svg, const char *style, double x1, double y1, double x2,
                  double y2) {
    dlc_text_add(svg,
                 "<line class=\"%s\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" "
                 "y2=\"%.2f\"/>\n",
                 style, x1, y1, x2, y2);
}

void dlc_svg_arc(dlc_text *svg, const char *style, double x1, double x2, double y,
                 double depth, const char *tip) {
    dlc_text_add(svg,
                 "<path class=\"%s\" fill=\"none\" d=\"M%.2f %.2f C%.2f %.2f %.2f %.2f "
                 "%.2f %.2f\"><title>",
                 style, x1, y, x1, y + depth, x2, y + depth, x2, y);
    add_escaped(svg, tip);
    dlc_text_add(svg, "</title></path>\n");
}

void dlc_svg_text(dlc_text *svg, const char *style, const char *anchor, double x,
                  double y, const char *text) {
    dlc_text_add(svg, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.2f\" y=\"%.2f\">",
                 style, anchor, x, y);
    add_escaped(svg, text);
    dlc_text_add(svg, "</text>\n");
}
