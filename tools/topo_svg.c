/* The matrix as a picture: near in strong colours, far in weak ones. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "svg.h"
#include "topo_report.h"

enum { LABEL = 32 };

/* Pixels. */
static const double margin = 24, cell = 54, row_height = 26, letter = 7.2, head = 74;

static const char light[] =
    "text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;\n"
    "       fill: #1f2430; font-variant-numeric: tabular-nums; }\n"
    ".title { font-size: 18px; font-weight: 600; }\n"
    ".muted { fill: #6b7280; }\n"
    ".back { fill: #ffffff; }\n"
    ".X { fill: #e6e8ec; } .NV { fill: #5fb58f; } .SHM { fill: #5fb58f; }\n"
    ".PIX { fill: #86b6e8; } .PXB { fill: #a8cbef; } .PHB { fill: #c9def4; }\n"
    ".NODE { fill: #f3dfa8; } .SYS { fill: #f1c99a; } .NET { fill: #e9b3ad; }\n"
    ".bad { fill: #d0342c; }\n";
static const char dark[] =
    "text { fill: #e4e7ec; }\n"
    ".muted { fill: #98a1ae; }\n"
    ".back { fill: #15181e; }\n"
    ".X { fill: #2b3039; } .NV { fill: #2c7a58; } .SHM { fill: #2c7a58; }\n"
    ".PIX { fill: #2f5f93; } .PXB { fill: #2a4f78; } .PHB { fill: #263f5c; }\n"
    ".NODE { fill: #6b5a24; } .SYS { fill: #704d22; } .NET { fill: #6e332e; }\n";

typedef struct picture {
    const topo_report *report;
    dlc_text *svg;
    const int32_t *row, *column;
    size_t rows, columns;
    double left; /* where cells begin */
} picture;

/* Rows and columns begin with the ends, whose pairs lie in order. */
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
    dlc_text_add(tip, "%s - %s: %s", a, b, dlc_way_text(pair->route.way));
    if (pair->route.way < DLC_WAYS)
        dlc_text_add(tip, " (%s)", pair->route.verdict[pair->route.way].reason);
    if (!pair->problem)
        dlc_choice_name(&pair->choice, &name);
    dlc_text_add(tip, "; transport %s",
                 pair->problem ? "none" : dlc_text_string(&name));
    if (pair->measured.done && pair->measured.problem[0])
        dlc_text_add(tip, "; failed: %s", pair->measured.problem);
    else if (pair->measured.done)
        dlc_text_add(tip, "; %.2f GB/s, %.2f us", pair->measured.gbs,
                     pair->measured.us);
    dlc_text_free(&name);
}

static void draw_cell(const picture *to, size_t r, size_t c, double y) {
    const topo_pair *pair = pair_of(to->report, r, c);
    dlc_topo_path path = dlc_topo_path_between(&to->report->topo, to->row[r],
                                               to->column[c]);
    double x = to->left + (double)c * cell;
    char text[16];
    dlc_text tip = {0};
    int measured = pair && pair->measured.done;
    if (pair)
        add_tip(to->report, pair, &tip);
    int bad = measured && (pair->measured.problem[0] || !pair->measured.intact);
    dlc_svg_box(to->svg, bad ? "bad" : dlc_topo_class_text(path.class), x + 1, y + 1,
                cell - 2, row_height - 2, pair ? dlc_text_string(&tip) : NULL);
    if (measured && !bad)
        snprintf(text, sizeof text, "%.1f", pair->measured.gbs);
    else
        dlc_topo_path_text(&path, text);
    dlc_svg_text(to->svg, "cell", "middle", x + cell / 2, y + row_height * 0.67, text);
    if (dlc_text_status(&tip) != DLC_OK)
        to->svg->failed = 1;
    dlc_text_free(&tip);
}

static void draw_matrix(const picture *to) {
    char text[LABEL];
    for (size_t c = 0; c < to->columns; c++) {
        dlc_topo_label(&to->report->topo, to->column[c], text, sizeof text);
        dlc_svg_text(to->svg, "muted", "middle", to->left + ((double)c + 0.5) * cell,
                     head - 8, text);
    }
    for (size_t r = 0; r < to->rows; r++) {
        double y = head + (double)r * row_height;
        dlc_topo_label(&to->report->topo, to->row[r], text, sizeof text);
        dlc_svg_text(to->svg, "name", "end", to->left - 8, y + row_height * 0.67, text);
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
    if (to->report->measured)
        dlc_svg_text(to->svg, "muted", "start", margin, y + 11,
                     "Figures: GB/s one way, measured.");
}

static void draw(picture *to) {
    const char *title = to->report->source ? to->report->source : "This job";
    size_t longest = 6;
    char text[LABEL];
    for (size_t r = 0; r < to->rows; r++) {
        dlc_topo_label(&to->report->topo, to->row[r], text, sizeof text);
        longest = strlen(text) > longest ? strlen(text) : longest;
    }
    to->left = margin + 8 + (double)longest * letter;
    double width = to->left + (double)to->columns * cell + margin;
    double below = head + (double)to->rows * row_height + 24;
    if (width < 460)
        width = 460;
    dlc_svg_begin(to->svg, width, below + 20 * (DLC_TOPO_CLASSES + 1) + margin, title,
                  light, dark);
    dlc_svg_text(to->svg, "title", "start", margin, 34, title);
    draw_matrix(to);
    draw_legend(to, below);
    dlc_svg_end(to->svg);
}

dlc_status topo_svg(const topo_report *report, dlc_text *svg) {
    int32_t *row = dlc_alloc(TOPO_ENDS_MOST, sizeof *row);
    int32_t *column = dlc_alloc(2 * (size_t)TOPO_ENDS_MOST, sizeof *column);
    if (row && column) {
        picture to = {.report = report, .svg = svg, .row = row, .column = column};
        to.rows = topo_report_rows(report, row);
        memcpy(column, row, to.rows * sizeof *row);
        to.columns = to.rows + topo_report_adapters(report, column + to.rows);
        draw(&to);
    } else {
        svg->failed = 1;
    }
    dlc_free(column);
    dlc_free(row);
    return dlc_text_status(svg);
}
