/* Draws a confusion matrix: the darker a cell, the larger the share of the samples with
 * its label. With few classes the cells have their numbers. */
#include <stdio.h>
#include <string.h>

#include "svg.h"
#include "test_report.h"

/* Pixels. */
static const double margin = 28, letter = 6.7, title_letter = 12.5, head_height = 72;

enum { NUMBERS_MOST = 30, NAMES_MOST = 100, NAME_LETTERS = 20, SHADES = 11 };

static const char light[] =
    "text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;\n"
    "       fill: #1f2430; font-variant-numeric: tabular-nums; }\n"
    ".title { font-size: 20px; font-weight: 600; }\n"
    ".muted { fill: #6b7280; }\n"
    ".back { fill: #ffffff; }\n"
    ".frame { fill: none; stroke: #c3c8d0; }\n"
    ".right { fill: #2f9c86; }\n"
    ".wrong { fill: #d9534f; }\n"
    ".on { fill: #ffffff; }\n"
    ".s0 { opacity: 0; } .s1 { opacity: .1; } .s2 { opacity: .2; } .s3 { opacity: .3; }\n"
    ".s4 { opacity: .4; } .s5 { opacity: .5; } .s6 { opacity: .6; } .s7 { opacity: .7; }\n"
    ".s8 { opacity: .8; } .s9 { opacity: .9; } .s10 { opacity: 1; }\n";
static const char dark[] = "text { fill: #e4e7ec; }\n"
                           ".muted { fill: #98a1ae; }\n"
                           ".back { fill: #15181e; }\n"
                           ".frame { stroke: #3a404b; }\n"
                           ".right { fill: #56bfa8; }\n"
                           ".wrong { fill: #e8837f; }\n"
                           ".on { fill: #15181e; }\n";

typedef struct picture {
    dlc_text *svg;
    const dlc_test_classes *classes;
    double x, y, cell; /* of the matrix */
} picture;

static double longest_name(const dlc_class_names *names) {
    size_t longest = 0;
    for (int32_t i = 0; i < names->count; i++)
        if (strlen(names->name[i]) > longest)
            longest = strlen(names->name[i]);
    return (double)(longest < NAME_LETTERS ? longest : NAME_LETTERS);
}

/* Small shares are shown, too: one mistake is one shade. */
static int shade_of(double share) {
    int shade = (int)(share * (SHADES - 1) + 0.5);
    return share > 0 && shade == 0 ? 1 : shade;
}

static void draw_cell(const picture *to, int32_t label, int32_t prediction) {
    const dlc_tally *tally = to->classes->tally;
    const char *const *name = to->classes->names->name;
    double n = dlc_tally_at(tally, label, prediction);
    int shade = shade_of(dlc_test_share(n, dlc_tally_labelled(tally, label)));
    double x = to->x + prediction * to->cell, y = to->y + label * to->cell;
    char style[16], number[32];
    dlc_text tip = {0};
    if (n <= 0)
        return;
    snprintf(style, sizeof style, "%s s%d", label == prediction ? "right" : "wrong",
             shade);
    dlc_text_add(&tip, "%s, taken for %s: %.0f", name[label], name[prediction], n);
    dlc_svg_box(to->svg, style, x, y, to->cell, to->cell, dlc_text_string(&tip));
    dlc_text_fail_with(to->svg, &tip);
    dlc_text_free(&tip);
    snprintf(number, sizeof number, "%.0f", n);
    if (tally->classes <= NUMBERS_MOST)
        dlc_svg_text(to->svg, shade > SHADES / 2 ? "on" : "number", "middle",
                     x + to->cell / 2, y + to->cell / 2 + 4, number);
}

static void draw_names(const picture *to, int32_t class) {
    dlc_text name = {0}, head = {0};
    char accuracy[16];
    const dlc_tally *tally = to->classes->tally;
    double middle = (class + 0.5) * to->cell,
           samples = dlc_tally_labelled(tally, class);
    double side = to->x + tally->classes * to->cell;
    dlc_text_add_cell(&name, 0, NAME_LETTERS, to->classes->names->name[class]);
    dlc_svg_text(to->svg, "name", "end", to->x - 8, to->y + middle + 4,
                 dlc_text_string(&name));
    snprintf(accuracy, sizeof accuracy, "%.1f %%",
             100 * dlc_test_share(dlc_tally_at(tally, class, class), samples));
    dlc_svg_text(to->svg, "muted", "start", side + 8, to->y + middle + 4, accuracy);
    dlc_text_add_cell(&head, 0, (int)(to->cell / letter),
                      to->classes->names->name[class]);
    dlc_svg_text(to->svg, "muted", "middle", to->x + middle, to->y - 8,
                 dlc_text_string(&head));
    dlc_text_fail_with(to->svg, &name);
    dlc_text_fail_with(to->svg, &head);
    dlc_text_free(&name);
    dlc_text_free(&head);
}

void dlc_test_draw_confusion(const dlc_test_classes *classes, const char *net,
                             dlc_text *svg) {
    int32_t count = classes->tally->classes;
    picture to = {.svg = svg, .classes = classes};
    char title[96];
    to.cell = count <= NUMBERS_MOST ? 44 : count <= NAMES_MOST ? 16 : 900.0 / count;
    to.x = margin + (count <= NAMES_MOST ? longest_name(classes->names) * letter : 0) +
           8;
    to.y = margin + head_height;
    snprintf(title, sizeof title, "%.64s: confusion matrix", net);
    double side = to.cell * count, width = to.x + side + 64 + margin;
    double title_width = 2 * margin + (double)strlen(title) * title_letter;
    dlc_svg_begin(svg, width > title_width ? width : title_width, to.y + side + margin,
                  title, light, dark);
    dlc_svg_text(svg, "title", "start", margin, margin + 16, title);
    dlc_svg_text(svg, "muted", "start", margin, margin + 38,
                 "labels in rows, predictions in columns");
    for (int32_t i = 0; i < count; i++) {
        for (int32_t j = 0; j < count; j++)
            draw_cell(&to, i, j);
        if (count <= NAMES_MOST)
            draw_names(&to, i);
    }
    dlc_svg_box(svg, "frame", to.x, to.y, side, side, NULL);
    dlc_svg_end(svg);
}
