/* Draws the report as SVG: the machines, and the matrix of all pairs, with strong
 * colors for near pairs and weak ones for distant pairs. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "svg.h"
#include "topo_machines.h"

enum { LABEL = 32 };

/* Pixels. */
static const double margin = 24, cell = 74, row_height = 36, letter = 7.2, head = 30;

static const char light[] =
    "text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;\n"
    "       fill: #1f2430; font-variant-numeric: tabular-nums; }\n"
    ".title { font-size: 18px; font-weight: 600; }\n"
    ".muted { fill: #6b7280; }\n"
    ".back { fill: #ffffff; }\n"
    ".X { fill: #e6e8ec; } .NV { fill: #5fb58f; } .SHM { fill: #5fb58f; }\n"
    ".PIX { fill: #86b6e8; } .PXB { fill: #a8cbef; } .PHB { fill: #c9def4; }\n"
    ".NODE { fill: #f3dfa8; } .SYS { fill: #f1c99a; } .NET { fill: #e9b3ad; }\n"
    ".bad { fill: #ef8a83; }\n"
    ".small, .lane { font-size: 10px; fill: #2c3340; }\n"
    ".lane { stroke: #ffffff; stroke-width: 3; paint-order: stroke; }\n"
    ".gpu { fill: #cfe9d8; stroke: #2f8f5f; } .nic { fill: #f7d9d5; stroke: #b9584d; }\n"
    ".rank { fill: #dcd5f2; stroke: #7d5fc0; } .core { fill: #eef0f3; stroke: #9aa3af; }\n"
    ".other { fill: #ffffff; stroke: #9aa3af; }\n"
    ".edge { stroke: #9aa3af; } .link { stroke: #2f8f5f; stroke-width: 1.5; }\n"
    ".net { stroke: #c27a72; stroke-width: 2; }\n";
static const char dark[] =
    "text { fill: #e4e7ec; }\n"
    ".muted { fill: #98a1ae; }\n"
    ".back { fill: #15181e; }\n"
    ".X { fill: #2b3039; } .NV { fill: #26694c; } .SHM { fill: #26694c; }\n"
    ".PIX { fill: #2f5f93; } .PXB { fill: #2a4f78; } .PHB { fill: #263f5c; }\n"
    ".NODE { fill: #6b5a24; } .SYS { fill: #704d22; } .NET { fill: #6e332e; }\n"
    ".bad { fill: #8f2a24; }\n"
    ".small, .lane { fill: #d5dae1; } .lane { stroke: #15181e; }\n"
    ".gpu { fill: #1d4a35; stroke: #4fae80; } .nic { fill: #572b27; stroke: #c9766c; }\n"
    ".rank { fill: #3a2f5e; stroke: #a48fe0; } .core { fill: #232831; stroke: #5d6674; }\n"
    ".other { fill: #15181e; stroke: #5d6674; }\n"
    ".edge { stroke: #5d6674; } .link { stroke: #4fae80; } .net { stroke: #a85a52; }\n";

typedef struct picture {
    const topo_report *report;
    dlc_text *svg;
    const int32_t *row, *column;
    size_t rows, columns;
    double left; /* where cells begin */
} picture;

/* The pair of a cell, or NULL. Rows and columns begin with the ends; pairs are in
 * order. */
static const topo_pair *pair_of(const topo_report *report, size_t row, size_t column) {
    size_t a = row < column ? row : column, b = row < column ? column : row;
    if (a == b || b >= report->ends)
        return NULL;
    return &report->pair[a * report->ends - a * (a + 1) / 2 + (b - a - 1)];
}

static void add_tip(const topo_report *report, const topo_pair *pair, dlc_text *tip) {
    char a[LABEL], b[LABEL];
    dlc_text name = {0};
    dlc_topo_label(&report->topo, report->end[pair->a], a, sizeof a);
    dlc_topo_label(&report->topo, report->end[pair->b], b, sizeof b);
    dlc_text_add(tip, "%s - %s: %s", a, b, dlc_route_text(pair->route.chosen));
    if (pair->route.chosen < DLC_ROUTES)
        dlc_text_add(tip, " (%s)", pair->route.verdict[pair->route.chosen].reason);
    if (pair->problem)
        dlc_text_add(&name, "none");
    else
        dlc_transport_choice_name(&pair->choice, &name);
    dlc_text_add(tip, "; transport ");
    dlc_text_append_text(tip, &name);
    if (pair->measured.done && pair->measured.problem[0])
        dlc_text_add(tip, "; failed: %s", pair->measured.problem);
    else if (pair->measured.done)
        dlc_text_add(tip, "; %.2f GB/s, %.2f us", pair->measured.gbs,
                     pair->measured.us);
    dlc_text_free(&name);
}

/* Draws a cell: the class of the path, and the transport or its measured bandwidth. */
static void draw_cell(const picture *to, size_t r, size_t c, double y) {
    const topo_pair *pair = pair_of(to->report, r, c);
    dlc_topo_path path = dlc_topo_path_between(&to->report->topo, to->row[r],
                                               to->column[c]);
    double x = to->left + (double)c * cell, middle = x + cell / 2;
    char near[16], speed[16];
    dlc_text tip = {0}, name = {0};
    int measured = pair && pair->measured.done;
    int bad = measured && (pair->measured.problem[0] || !pair->measured.intact);
    if (pair)
        add_tip(to->report, pair, &tip);
    if (pair && !pair->problem)
        dlc_transport_choice_name(&pair->choice, &name);
    dlc_svg_box(to->svg, bad ? "bad" : dlc_topo_class_text(path.class), x + 1, y + 1,
                cell - 2, row_height - 2, pair ? dlc_text_string(&tip) : NULL);
    dlc_topo_path_text(&path, near);
    dlc_svg_text(to->svg, "cell", "middle", middle, y + (pair ? 16 : 22), near);
    if (measured && !bad) {
        snprintf(speed, sizeof speed, "%.1f GB/s", pair->measured.gbs);
        dlc_svg_text(to->svg, "small", "middle", middle, y + 29, speed);
    } else if (pair) {
        dlc_svg_text(to->svg, "small", "middle", middle, y + 29,
                     bad             ? "failed"
                     : pair->problem ? "none"
                                     : dlc_text_string(&name));
    }
    dlc_text_fail_with(to->svg, &tip);
    dlc_text_fail_with(to->svg, &name);
    dlc_text_free(&tip);
    dlc_text_free(&name);
}

static void draw_matrix(const picture *to, double top) {
    char text[LABEL];
    for (size_t c = 0; c < to->columns; c++) {
        dlc_topo_label(&to->report->topo, to->column[c], text, sizeof text);
        dlc_svg_text(to->svg, "muted", "middle", to->left + ((double)c + 0.5) * cell,
                     top + head - 8, text);
    }
    for (size_t r = 0; r < to->rows; r++) {
        double y = top + head + (double)r * row_height;
        dlc_topo_label(&to->report->topo, to->row[r], text, sizeof text);
        dlc_svg_text(to->svg, "name", "end", to->left - 8, y + row_height * 0.62, text);
        for (size_t c = 0; c < to->columns; c++)
            draw_cell(to, r, c, y);
    }
}

static void draw_legend(const picture *to, double y) {
    for (dlc_topo_class c = 0; c < DLC_TOPO_CLASSES; c++) {
        const char *name = dlc_topo_class_text(c);
        dlc_svg_box(to->svg, name, margin, y, 14, 14, NULL);
        dlc_svg_text(to->svg, "name", "start", margin + 22, y + 11,
                     c == DLC_TOPO_NV ? "NV#" : name);
        dlc_svg_text(to->svg, "muted", "start", margin + 70, y + 11,
                     dlc_topo_class_help(c));
        y += 20;
    }
    dlc_svg_text(to->svg, "muted", "start", margin, y + 11,
                 to->report->measured
                     ? "Numbers in cells: measured GB/s per direction; beside "
                       "lines: nominal GB/s of the link."
                     : "Below the class of a pair: its transport. Numbers beside "
                       "lines: nominal GB/s of the link.");
}

/* Draws everything but the frame, and returns the size that the frame needs. */
static void draw(picture *to, const topo_tree *tree, double *width, double *height) {
    size_t longest = 6;
    char text[LABEL];
    topo_canvas canvas = {
        .report = to->report, .tree = tree, .svg = to->svg, .left = margin, .y = 56};
    topo_machines_draw(&canvas);
    for (size_t r = 0; r < to->rows; r++) {
        dlc_topo_label(&to->report->topo, to->row[r], text, sizeof text);
        longest = strlen(text) > longest ? strlen(text) : longest;
    }
    to->left = margin + 8 + (double)longest * letter;
    *width = to->left + (double)to->columns * cell + margin;
    draw_matrix(to, canvas.y);
    double below = canvas.y + head + (double)to->rows * row_height + 24;
    draw_legend(to, below);
    *height = below + 20 * (DLC_TOPO_CLASSES + 1) + margin;
    if (*width < canvas.right + margin)
        *width = canvas.right + margin;
    if (*width < 700)
        *width = 700;
}

static dlc_status draw_all(const picture *what, dlc_text *svg) {
    const char *source = what->report->source;
    const char *slash = source ? strrchr(source, '/') : NULL;
    /* Without its folders, which could be wider than the picture. */
    const char *title = slash ? slash + 1 : source ? source : "This job";
    double width = 0, height = 0;
    topo_tree tree = {0};
    dlc_text body = {0};
    picture to = *what;
    dlc_status status = topo_tree_make(to.report, &tree);
    to.svg = &body;
    if (status == DLC_OK) {
        draw(&to, &tree, &width, &height);
        status = dlc_text_status(&body);
    }
    if (status == DLC_OK) {
        dlc_svg_begin(svg, width, height, title, light, dark);
        dlc_svg_text(svg, "title", "start", margin, 34, title);
        dlc_text_append_text(svg, &body);
        dlc_svg_end(svg);
        status = dlc_text_status(svg);
    }
    dlc_text_free(&body);
    topo_tree_free(&tree);
    return status;
}

dlc_status topo_svg(const topo_report *report, dlc_text *svg) {
    int32_t *row = dlc_alloc(TOPO_MAX_ENDS, sizeof *row);
    int32_t *column = dlc_alloc(2 * (size_t)TOPO_MAX_ENDS, sizeof *column);
    dlc_status status = row && column ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        picture to = {.report = report, .row = row, .column = column};
        to.rows = topo_report_rows(report, row);
        memcpy(column, row, to.rows * sizeof *row);
        to.columns = to.rows + topo_report_adapters(report, column + to.rows);
        status = draw_all(&to, svg);
    }
    dlc_free(column);
    dlc_free(row);
    return status;
}
