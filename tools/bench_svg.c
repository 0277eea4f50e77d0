/* Draws a benchmark: time and bus bandwidth over size, with logarithmic axes, and one
 * line per operation with its name at the end. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_table.h"
#include "svg.h"

/* Pixels. */
static const double width = 1200, height = 480, margin = 28, panel_width = 390,
                    panel_height = 330, panel_top = 104, axis = 50, label_width = 132,
                    label_gap = 15;

static const char light[] =
    "text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;\n"
    "       fill: #1f2430; font-variant-numeric: tabular-nums; }\n"
    ".title { font-size: 20px; font-weight: 600; }\n"
    ".head { font-size: 13px; font-weight: 600; }\n"
    ".muted { fill: #6b7280; }\n"
    ".back { fill: #ffffff; }\n"
    ".grid { stroke: #e6e8ec; }\n"
    ".lead { stroke: #9aa3af; }\n"
    "line.op0, line.op1, line.op2, line.op3, line.op4, line.op5, line.op6 {\n"
    "       stroke-width: 2; stroke-linecap: round; }\n"
    "text.op0, text.op1, text.op2, text.op3, text.op4, text.op5, text.op6 {\n"
    "       stroke: none; font-weight: 600; }\n"
    ".op0 { fill: #2f69b3; stroke: #2f69b3; }\n"
    ".op1 { fill: #b35c00; stroke: #b35c00; }\n"
    ".op2 { fill: #1c7a66; stroke: #1c7a66; }\n"
    ".op3 { fill: #7d4fb0; stroke: #7d4fb0; }\n"
    ".op4 { fill: #b83a48; stroke: #b83a48; }\n"
    ".op5 { fill: #5b6677; stroke: #5b6677; }\n"
    ".op6 { fill: #7a5c2a; stroke: #7a5c2a; }\n";
static const char dark[] = "text { fill: #e4e7ec; }\n"
                           ".muted { fill: #98a1ae; }\n"
                           ".back { fill: #15181e; }\n"
                           ".grid { stroke: #2b3039; }\n"
                           ".lead { stroke: #5d6674; }\n"
                           ".op0 { fill: #6ba3ea; stroke: #6ba3ea; }\n"
                           ".op1 { fill: #edb265; stroke: #edb265; }\n"
                           ".op2 { fill: #56bfa8; stroke: #56bfa8; }\n"
                           ".op3 { fill: #b891e6; stroke: #b891e6; }\n"
                           ".op4 { fill: #e5828c; stroke: #e5828c; }\n"
                           ".op5 { fill: #a9b4c2; stroke: #a9b4c2; }\n"
                           ".op6 { fill: #c4a76b; stroke: #c4a76b; }\n";

/* One of the two panels: its content and position. Logarithms have base 2 on the x
 * axis, and base 10 on the y axis. */
typedef struct panel {
    dlc_text *svg;
    const dlc_bench_head *head;
    int is_time;
    double left;
    double x0, x1, y0, y1;
} panel;

static double value_of(const panel *to, const dlc_bench_row *row) {
    return to->is_time ? row->seconds * 1e6 : dlc_bench_busbw(row, to->head->ranks);
}

static double x_of(const panel *to, double bytes) {
    double range = to->x1 > to->x0 ? to->x1 - to->x0 : 1;
    return to->left + (log2(bytes) - to->x0) / range * panel_width;
}

static double y_of(const panel *to, double value) {
    return panel_top + panel_height -
           (log10(value) - to->y0) / (to->y1 - to->y0) * panel_height;
}

static void find_range(panel *to, const dlc_bench_row *row, size_t rows) {
    to->x0 = to->y0 = INFINITY;
    to->x1 = to->y1 = -INFINITY;
    for (size_t i = 0; i < rows; i++) {
        double value = value_of(to, &row[i]);
        to->x0 = fmin(to->x0, log2((double)row[i].bytes));
        to->x1 = fmax(to->x1, log2((double)row[i].bytes));
        if (value > 0) {
            to->y0 = fmin(to->y0, floor(log10(value)));
            to->y1 = fmax(to->y1, ceil(log10(value)));
        }
    }
    if (!(to->y1 > to->y0)) {
        to->y0 = isfinite(to->y0) ? to->y0 : 0;
        to->y1 = to->y0 + 1;
    }
}

static void draw_grid(const panel *to) {
    char text[32];
    for (int i = 0; i <= (int)(to->y1 - to->y0); i++) {
        double value = pow(10, to->y0 + i), y = y_of(to, value);
        (void)snprintf(text, sizeof text, "%g", value);
        dlc_svg_line(to->svg, "grid", to->left, y, to->left + panel_width, y);
        dlc_svg_text(to->svg, "muted", "end", to->left - 8, y + 4, text);
    }
    int step = (int)fmax(1, ceil((to->x1 - to->x0) / 6));
    for (int i = 0; i <= (int)(to->x1 - to->x0 + 0.001); i += step) {
        double bytes = exp2(to->x0 + i), x = x_of(to, bytes);
        dlc_bench_format_size((uint64_t)(bytes + 0.5), text);
        dlc_svg_line(to->svg, "grid", x, panel_top, x, panel_top + panel_height);
        dlc_svg_text(to->svg, "muted", "middle", x, panel_top + panel_height + 20,
                     text);
    }
    dlc_svg_text(to->svg, "head", "start", to->left, panel_top - 12,
                 to->is_time ? "time (us)" : "bus bandwidth (GB/s)");
}

static void draw_row(const panel *to, const dlc_bench_row *row,
                     const dlc_bench_row *before) {
    char style[16], size[16], tip[160];
    double value = value_of(to, row), x = x_of(to, (double)row->bytes);
    if (value <= 0)
        return;
    (void)snprintf(style, sizeof style, "op%d", (int)row->op);
    dlc_bench_format_size(row->bytes, size);
    (void)snprintf(tip, sizeof tip, "%s, %s: %.4g us, %.3g GB/s",
                   dlc_bench_op_name((int)row->op), size, row->seconds * 1e6,
                   dlc_bench_busbw(row, to->head->ranks));
    if (before && value_of(to, before) > 0)
        dlc_svg_line(to->svg, style, x_of(to, (double)before->bytes),
                     y_of(to, value_of(to, before)), x, y_of(to, value));
    dlc_svg_box(to->svg, style, x - 3, y_of(to, value) - 3, 6, 6, tip);
}

/* ---- Names at the lines' ends ---------------------------------------------------- */

typedef struct line_end {
    int op;
    double x, y; /* of the last point */
    double at;   /* position of the name */
} line_end;

static size_t find_ends(const panel *to, const dlc_bench_row *row, size_t rows,
                        line_end end[BENCH_OPS]) {
    size_t count = 0;
    for (size_t i = 0; i < rows; i++) {
        double value = value_of(to, &row[i]);
        if (value <= 0 || (i + 1 < rows && row[i + 1].op == row[i].op &&
                           value_of(to, &row[i + 1]) > 0))
            continue;
        line_end its = {.op = (int)row[i].op,
                        .x = x_of(to, (double)row[i].bytes),
                        .y = y_of(to, value)};
        size_t place = 0; /* one per operation: its last point */
        while (place < count && end[place].op != its.op)
            place++;
        if (place == BENCH_OPS)
            return BENCH_OPS;
        if (place == count)
            count++;
        end[place] = its;
    }
    return count;
}

static void sort_ends(line_end *end, size_t count) {
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k > 0 && end[k].y < end[k - 1].y; k--) {
            line_end moved = end[k];
            end[k] = end[k - 1];
            end[k - 1] = moved;
        }
}

/* Places the names as near to the points as possible without overlapping. */
static void spread_names(line_end *end, size_t count) {
    double next = panel_top, last = panel_top + panel_height;
    for (size_t i = 0; i < count; i++) {
        end[i].at = fmax(end[i].y, next);
        next = end[i].at + label_gap;
    }
    for (size_t i = count; i-- > 0;) {
        end[i].at = fmin(end[i].at, last);
        last = end[i].at - label_gap;
    }
}

static void draw_names(const panel *to, const dlc_bench_row *row, size_t rows) {
    line_end end[BENCH_OPS];
    size_t count = find_ends(to, row, rows, end);
    double right = to->left + panel_width;
    sort_ends(end, count);
    spread_names(end, count);
    for (size_t i = 0; i < count; i++) {
        char style[16];
        (void)snprintf(style, sizeof style, "op%d", end[i].op);
        if (fabs(end[i].at - end[i].y) > 2 || end[i].x < right - 1)
            dlc_svg_line(to->svg, "lead", end[i].x + 5, end[i].y, right + 12,
                         end[i].at);
        dlc_svg_text(to->svg, style, "start", right + 15, end[i].at + 4,
                     dlc_bench_op_name(end[i].op));
    }
}

static void draw_panel(panel *to, const dlc_bench_row *row, size_t rows) {
    find_range(to, row, rows);
    draw_grid(to);
    for (size_t i = 0; i < rows; i++)
        draw_row(to, &row[i], i && row[i - 1].op == row[i].op ? &row[i - 1] : NULL);
    draw_names(to, row, rows);
}

dlc_status dlc_bench_svg(const dlc_bench_head *head, const dlc_bench_row *row,
                         size_t rows, dlc_text *svg) {
    char text[160];
    (void)snprintf(text, sizeof text, "Communication of %" PRId32 " ranks by %.60s",
                   head->ranks, head->transport);
    dlc_svg_begin(svg, width, height, text, light, dark);
    dlc_svg_text(svg, "title", "start", margin, 42, text);
    (void)snprintf(text, sizeof text, "%.40s, %s memory, float32, in place",
                   head->device, head->arena ? "registered" : "plain");
    dlc_svg_text(svg, "muted", "start", margin, 64, text);
    for (int i = 0; i < 2 && rows; i++) {
        panel to = {.svg = svg,
                    .head = head,
                    .is_time = i,
                    .left = margin + axis + i * (panel_width + label_width + axis)};
        draw_panel(&to, row, rows);
    }
    dlc_svg_end(svg);
    return dlc_text_status(svg);
}
