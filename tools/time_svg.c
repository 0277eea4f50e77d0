/* Draws the table: a stacked bar for each of the slowest rows, then one for each type
 * of layer. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "svg.h"
#include "time_report.h"

enum { BARS_MOST = 40, NAME_LETTERS = 38 };

/* Pixels. */
static const double width = 1040, margin = 28, row_height = 22, bar_height = 14,
                    letter = 6.7, values_width = 240;

static const char *const parts[TIME_PARTS] = {"forward", "data", "param", "update"};
static const char *const part_names[TIME_PARTS] = {"forward", "backward, data",
                                                   "backward, weights", "update"};

static const char light[] =
    "text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;\n"
    "       fill: #1f2430; font-variant-numeric: tabular-nums; }\n"
    ".title { font-size: 20px; font-weight: 600; }\n"
    ".head { font-size: 13px; font-weight: 600; }\n"
    ".muted { fill: #6b7280; }\n"
    ".back { fill: #ffffff; }\n"
    ".grid { stroke: #e6e8ec; }\n"
    ".forward { fill: #3b78c9; }\n"
    ".data { fill: #e39a3b; }\n"
    ".param { fill: #2f9c86; }\n"
    ".update { fill: #9566c7; }\n"
    ".clipped { opacity: 0.4; }\n";
static const char dark[] = "text { fill: #e4e7ec; }\n"
                           ".muted { fill: #98a1ae; }\n"
                           ".back { fill: #15181e; }\n"
                           ".grid { stroke: #2b3039; }\n"
                           ".forward { fill: #6ba3ea; }\n"
                           ".data { fill: #edb265; }\n"
                           ".param { fill: #56bfa8; }\n"
                           ".update { fill: #b891e6; }\n";

/* The state of drawing. */
typedef struct picture {
    dlc_text *svg;
    double scale; /* units per second, for the numbers */
    const char *unit;
    int digits;
    double x;     /* left end of the bars */
    double y;     /* position of the next item */
    double reach; /* seconds that a bar of full length stands for */
} picture;

static double bars_width(const picture *to) {
    return width - margin - values_width - to->x;
}

/* ---- Bars ------------------------------------------------------------------------ */

static void format_rate(const dlc_time_row *row, char *text, size_t bytes) {
    double gflops = dlc_time_row_gflops(row), gbytes = dlc_time_row_gbytes(row);
    if (gflops > 0)
        snprintf(text, bytes, "%.*f GFLOP/s", gflops < 10 ? 1 : 0, gflops);
    else if (gbytes > 0)
        snprintf(text, bytes, "%.*f GB/s", gbytes < 10 ? 1 : 0, gbytes);
    else
        text[0] = '\0';
}

static void draw_values(const picture *to, const dlc_time_row *row, double y) {
    char text[64];
    double x = width - margin;
    snprintf(text, sizeof text, "%.*f %s", to->digits, row->total * to->scale,
             to->unit);
    dlc_svg_text(to->svg, "value", "end", x - 152, y, text);
    snprintf(text, sizeof text, "%.1f %%", row->share * 100);
    dlc_svg_text(to->svg, "muted", "end", x - 96, y, text);
    format_rate(row, text, sizeof text);
    dlc_svg_text(to->svg, "muted", "end", x, y, text);
}

/* The tooltip of a part of a bar. */
static void format_tip(const picture *to, const char *name, const dlc_time_row *row,
                       int part, char *tip, size_t bytes) {
    double gflops = dlc_time_gflops(row, part), gbytes = dlc_time_gbytes(row, part);
    int used = snprintf(tip, bytes, "%.100s, %s: %.*f %s", name, part_names[part],
                        to->digits, row->seconds[part] * to->scale, to->unit);
    if (gflops > 0)
        used += snprintf(tip + used, bytes - (size_t)used, ", %.1f GFLOP/s", gflops);
    if (gbytes > 0)
        used += snprintf(tip + used, bytes - (size_t)used, ", %.1f GB/s", gbytes);
    if (row->choice[0])
        snprintf(tip + used, bytes - (size_t)used, " (%s)", row->choice);
}

/* A bar that doesn't fit is cut, and drawn paler. */
static void draw_bar(picture *to, const char *name, const dlc_time_row *row) {
    double x = to->x, full = bars_width(to);
    double pixels = full / (row->total > to->reach ? row->total : to->reach);
    double baseline = to->y + bar_height - 3;
    char cut[TIME_NAME_ROOM], tip[400], style[32];
    dlc_time_cut_name(name, NAME_LETTERS, cut);
    dlc_svg_text(to->svg, "name", "end", to->x - 10, baseline, cut);
    for (int part = 0; part < TIME_PARTS; part++) {
        double length = row->seconds[part] * pixels;
        if (length < 0.05)
            continue;
        snprintf(style, sizeof style, "%s%s", parts[part],
                 row->total > to->reach ? " clipped" : "");
        format_tip(to, name, row, part, tip, sizeof tip);
        dlc_svg_box(to->svg, style, x, to->y, length, bar_height, tip);
        x += length;
    }
    if (row->total > to->reach)
        dlc_svg_text(to->svg, "name", "middle", to->x + full / 2, baseline,
                     "not to scale");
    draw_values(to, row, baseline);
    to->y += row_height;
}

/* The distance of grid lines: 1, 2 or 5 times a power of ten, for about five lines. */
static double nice_step(double reach) {
    double step = pow(10, floor(log10(reach)));
    if (reach / step < 2)
        step /= 5;
    else if (reach / step < 5)
        step /= 2;
    return step;
}

static void draw_axis(picture *to, size_t bars) {
    double bottom = to->y + (double)bars * row_height - (row_height - bar_height) + 4;
    double reach = to->reach * to->scale, step = reach > 0 ? nice_step(reach) : 1;
    int digits = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    for (int i = 0; i * step <= reach * 1.0001; i++) {
        double x = to->x + (reach > 0 ? i * step / reach : 0) * bars_width(to);
        char text[32];
        snprintf(text, sizeof text, "%.*f%s%s", digits, i * step, i ? "" : " ",
                 i ? "" : to->unit);
        dlc_svg_line(to->svg, "grid", x, to->y - 6, x, bottom);
        dlc_svg_text(to->svg, "muted", "middle", x, to->y - 12, text);
    }
}

/* ---- Layers and types ------------------------------------------------------------ */

/* The smallest total of a row with a bar of its own. */
static dlc_status find_least(const dlc_time_table *table, double *least) {
    double *slowest = dlc_alloc(BARS_MOST, sizeof *slowest); /* descending */
    if (!slowest)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < table->rows; i++) {
        double total = table->row[i].total;
        for (int place = 0; place < BARS_MOST; place++) {
            if (total <= slowest[place])
                continue;
            double moved = slowest[place];
            slowest[place] = total;
            total = moved;
        }
    }
    *least = slowest[BARS_MOST - 1];
    dlc_free(slowest);
    return DLC_OK;
}

/* Chooses the rows to draw; `others` is the sum of the rest. */
static dlc_status choose_bars(const dlc_time_table *table,
                              const dlc_time_row *bars[BARS_MOST], size_t *count,
                              dlc_time_row *others) {
    double least;
    DLC_TRY(find_least(table, &least));
    for (size_t i = 0; i < table->rows; i++) {
        const dlc_time_row *row = &table->row[i];
        if (row->total > 0 && row->total >= least && *count < BARS_MOST) {
            bars[(*count)++] = row;
            continue;
        }
        if (row->fused_into)
            continue;
        others->layers++;
        others->total += row->total;
        others->share += row->share;
        for (int part = 0; part < TIME_PARTS; part++) {
            others->seconds[part] += row->seconds[part];
            others->work[part].multiply_adds += row->work[part].multiply_adds;
            others->work[part].bytes += row->work[part].bytes;
        }
    }
    return DLC_OK;
}

static void draw_layers(picture *to, const dlc_time_row *const *bars, size_t count,
                        const dlc_time_row *others) {
    char name[48];
    to->reach = 0;
    for (size_t i = 0; i < count; i++)
        to->reach = fmax(to->reach, bars[i]->total);
    draw_axis(to, count + (others->layers > 0));
    for (size_t i = 0; i < count; i++)
        draw_bar(to, bars[i]->name, bars[i]);
    snprintf(name, sizeof name, "%" PRId32 " others", others->layers);
    if (others->layers)
        draw_bar(to, name, others);
}

static void draw_types(picture *to, const dlc_time_table *table) {
    to->y += 24;
    dlc_svg_text(to->svg, "head", "start", margin, to->y, "By layer type");
    to->y += 40;
    to->reach = table->types ? table->type[0].total : 0;
    draw_axis(to, table->types);
    for (size_t i = 0; i < table->types; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.40s \xc3\x97%" PRId32, table->type[i].name,
                 table->type[i].layers);
        draw_bar(to, name, &table->type[i]);
    }
}

/* ---- Head ------------------------------------------------------------------------ */

static void draw_legend(picture *to, const dlc_time_table *table) {
    double x = margin;
    for (int part = 0; part < TIME_PARTS; part++) {
        char text[64];
        double share = table->sum.total > 0
                           ? table->sum.seconds[part] / table->sum.total
                           : 0;
        snprintf(text, sizeof text, "%s %.1f %%", part_names[part], share * 100);
        dlc_svg_box(to->svg, parts[part], x, to->y - 10, 12, 12, NULL);
        dlc_svg_text(to->svg, "name", "start", x + 18, to->y, text);
        x += 18 + letter * (double)strlen(text) + 22;
    }
}

static void draw_head(picture *to, const dlc_time_head *head,
                      const dlc_time_table *table) {
    char text[256];
    double images = dlc_time_images(head, table);
    snprintf(text, sizeof text, "%.120s: time of a training pass", head->net);
    dlc_svg_text(to->svg, "title", "start", margin, 42, text);
    snprintf(text, sizeof text,
             "%.*f %s per pass of %" PRId64
             " images: %.*f images/s, %.0f GFLOP/s in %s on %d "
             "thread%s (%.40s); medians of %zu pass%s",
             to->digits, table->sum.total * to->scale, to->unit, head->batch,
             images < 100 ? 2 : 0, images, dlc_time_row_gflops(&table->sum),
             head->precision, head->threads, head->threads == 1 ? "" : "s",
             head->device, table->passes, table->passes == 1 ? "" : "es");
    dlc_svg_text(to->svg, "muted", "start", margin, 66, text);
    to->y = 96;
    draw_legend(to, table);
    to->y = 142;
}

static double labels_width(const dlc_time_row *const *bars, size_t count) {
    size_t longest = 16;
    for (size_t i = 0; i < count; i++)
        longest = strlen(bars[i]->name) > longest ? strlen(bars[i]->name) : longest;
    return letter * (double)(longest < NAME_LETTERS ? longest : NAME_LETTERS) + 14;
}

dlc_status dlc_time_svg(const dlc_time_head *head, const dlc_time_table *table,
                        dlc_text *svg) {
    const dlc_time_row *bars[BARS_MOST];
    dlc_time_row others = {.name = NULL};
    size_t count = 0;
    DLC_TRY(choose_bars(table, bars, &count, &others));
    int is_short = table->sum.total < 0.1;
    picture to = {.svg = svg,
                  .scale = is_short ? 1e6 : 1e3,
                  .unit = is_short ? "us" : "ms",
                  .digits = 1,
                  .x = margin + labels_width(bars, count)};
    size_t rows = count + (others.layers > 0) + table->types;
    char title[160];
    snprintf(title, sizeof title, "%.120s: time of each layer", head->net);
    dlc_svg_begin(svg, width, 142 + 64 + row_height * (double)rows + 16, title, light,
                  dark);
    draw_head(&to, head, table);
    draw_layers(&to, bars, count, &others);
    draw_types(&to, table);
    dlc_svg_end(svg);
    return dlc_text_status(svg);
}
