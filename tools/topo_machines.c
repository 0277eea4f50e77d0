/* Draws machines as nested boxes, their devices, direct links, and the network. */
#include "topo_machines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/device.h>

#include "svg.h"

enum { LABEL = 32, TEXT = 160, MACHINES_MOST = 4, ARC_LABELS_MOST = 40 };

/* Pixels. */
static const double column = 70, row = 27, box = 23, lead = 24, leaf = 40, letter = 6.6,
                    gap = 34, arc_step = 15, arc_most = 200;

static double x_of(const topo_canvas *to, int32_t begin) {
    return to->left + (double)begin * column;
}

static double leaves_top(const topo_canvas *to, double top) {
    return top + (double)to->tree->rows * row - (row - box) + lead;
}

/* ---- Boxes ---------------------------------------------------------------------- */

/* The class of the paths with this common ancestor; X: there are none. */
static dlc_topo_class class_at(const topo_canvas *to, int32_t i) {
    const topo_box *its = &to->tree->box[i];
    if (its->mark.pairs)
        return its->mark.class;
    if (its->children < 2)
        return DLC_TOPO_X;
    switch (to->report->topo.node[i].kind) {
    case DLC_TOPO_SWITCH:
        return its->inner ? DLC_TOPO_PXB : DLC_TOPO_PIX;
    case DLC_TOPO_HOST_BRIDGE:
        return DLC_TOPO_PHB;
    case DLC_TOPO_NUMA:
        return DLC_TOPO_NODE;
    default:
        return DLC_TOPO_SYS;
    }
}

static void name_box(const topo_canvas *to, int32_t i, char text[TEXT]) {
    const dlc_topo_node *node = &to->report->topo.node[i];
    const char *kind = dlc_topo_kind_text(node->kind);
    const char *between = node->name[0] ? ": " : "";
    if (node->kind == DLC_TOPO_MACHINE) {
        char label[LABEL];
        dlc_topo_label(&to->report->topo, i, label, sizeof label);
        (void)snprintf(text, TEXT, "%s%s%s", label, between, node->name);
    } else if (node->kind == DLC_TOPO_PACKAGE && node->index >= 0) {
        (void)snprintf(text, TEXT, "%s %d%s%s", kind, (int)node->index, between,
                       node->name);
    } else if (node->index >= 0) {
        (void)snprintf(text, TEXT, "%s %d", kind, (int)node->index);
    } else {
        (void)snprintf(text, TEXT, "%s", kind);
    }
}

/* Writes a box's name (or its last word) on the left, and the class and transports of
 * the pairs with this common ancestor on the right; what doesn't fit is only in the
 * tooltip. */
static void draw_words(const topo_canvas *to, const char *name, const char *words,
                       double x, double width, double y) {
    double room = width - 12;
    const char *last = strrchr(name, ' ');
    if (letter * (double)strlen(name) > room)
        name = last ? last + 1 : "";
    if (letter * (double)strlen(name) > room)
        name = "";
    dlc_svg_text(to->svg, "name", "start", x + 7, y, name);
    if (letter * (double)(strlen(name) + 2 + strlen(words)) <= room)
        dlc_svg_text(to->svg, "name", "end", x + width - 8, y, words);
}

static void draw_box(const topo_canvas *to, int32_t i, double top) {
    const topo_box *its = &to->tree->box[i];
    const dlc_topo_node *node = &to->report->topo.node[i];
    dlc_topo_class class = class_at(to, i);
    const char *near = dlc_topo_class_text(class);
    char name[TEXT], mark[TEXT], words[TEXT + 16], tip[3 * TEXT];
    double x = x_of(to, its->begin), y = top + (double)its->row * row;
    double width = (double)its->leaves * column;
    name_box(to, i, name);
    topo_mark_text(&its->mark, mark, sizeof mark);
    int used = snprintf(tip, sizeof tip, "%s %s", name, node->address);
    if (class != DLC_TOPO_X)
        used += snprintf(tip + used, sizeof tip - (size_t)used, ": %s",
                         dlc_topo_class_help(class));
    if (node->gbs > 0)
        used += snprintf(tip + used, sizeof tip - (size_t)used, "; %.3g GB/s to it",
                         (double)node->gbs);
    if (mark[0])
        (void)snprintf(tip + used, sizeof tip - (size_t)used, "; %zu pair%s by %s",
                       its->mark.pairs, its->mark.pairs == 1 ? "" : "s", mark);
    (void)snprintf(words, sizeof words, "%s%s%s", near, mark[0] ? ": " : "", mark);
    dlc_svg_box(to->svg, near, x + 1.5, y, width - 3, box, tip);
    draw_words(to, name, class == DLC_TOPO_X ? "" : words, x, width, y + 16);
}

/* ---- Devices, adapters, ranks -----------------------------------------------------
 */

/* "longname.." */
static void cut(const char *text, char out[12]) {
    int fits = strlen(text) <= 10;
    (void)snprintf(out, 12, fits ? "%.10s" : "%.8s..", text);
}

/* The text below a leaf's name: what computes on it, or what it is. */
static void describe_leaf(const topo_canvas *to, int32_t i, char text[TEXT]) {
    const dlc_topo *topo = &to->report->topo;
    const dlc_topo_node *node = &topo->node[i];
    text[0] = '\0';
    if (node->kind == DLC_TOPO_NIC && node->speed > 0)
        (void)snprintf(text, TEXT, "%.3g GB/s", (double)node->speed);
    else if (node->kind == DLC_TOPO_RANK)
        (void)snprintf(text, TEXT, "%s", node->device);
    else if (node->kind == DLC_TOPO_GPU)
        (void)snprintf(text, TEXT, "%s", node->name);
    for (size_t k = 0; node->kind == DLC_TOPO_GPU && k < to->report->ends; k++) {
        int32_t end = to->report->end[k];
        if (end != i && topo->node[end].parent == i)
            dlc_topo_label(topo, end, text, LABEL);
    }
}

static const char *style_of(dlc_topo_kind kind) {
    return kind == DLC_TOPO_GPU    ? "gpu"
           : kind == DLC_TOPO_NIC  ? "nic"
           : kind == DLC_TOPO_RANK ? "rank"
                                   : "other";
}

static void draw_leaf_box(const topo_canvas *to, const char *style, double x, double y,
                          const char *name, const char *words, const char *tip) {
    char text[12];
    dlc_svg_box(to->svg, style, x + 3, y, column - 6, leaf, tip);
    cut(name, text);
    dlc_svg_text(to->svg, "name", "middle", x + column / 2, y + (words[0] ? 17 : 25),
                 text);
    cut(words, text);
    if (words[0])
        dlc_svg_text(to->svg, "small", "middle", x + column / 2, y + 32, text);
}

static void draw_leaf(const topo_canvas *to, int32_t i, double top) {
    const dlc_topo_node *node = &to->report->topo.node[i];
    const topo_box *its = &to->tree->box[i];
    double x = x_of(to, its->begin), y = leaves_top(to, top), middle = x + column / 2;
    char name[LABEL], words[TEXT], speed[24], tip[2 * TEXT];
    dlc_topo_label(&to->report->topo, i, name, sizeof name);
    describe_leaf(to, i, words);
    (void)snprintf(tip, sizeof tip, "%s %s %s", name, node->name, node->address);
    if (its->parent >= 0)
        dlc_svg_line(to->svg, "edge", middle,
                     top + (double)to->tree->box[its->parent].row * row + box, middle,
                     y);
    draw_leaf_box(to, style_of(node->kind), x, y, name, words, tip);
    if (node->gbs > 0) {
        (void)snprintf(speed, sizeof speed, "%.3g", (double)node->gbs);
        dlc_svg_text(to->svg, "small", "start", middle + 4, y - 6, speed);
    }
}

static void draw_cores(const topo_canvas *to, int32_t i, double top) {
    const topo_box *its = &to->tree->box[i];
    double x = x_of(to, its->begin), y = leaves_top(to, top);
    char text[32];
    (void)snprintf(text, sizeof text, "%d", (int)its->cores);
    dlc_svg_line(to->svg, "edge", x + column / 2, top + (double)its->row * row + box,
                 x + column / 2, y);
    draw_leaf_box(to, "core", x, y, text, its->cores == 1 ? "core" : "cores", NULL);
}

/* ---- Direct links --------------------------------------------------------------- */

static int is_fabric(const topo_canvas *to, int32_t i) {
    return to->report->topo.node[i].kind == DLC_TOPO_FABRIC;
}

static double middle_of(const topo_canvas *to, int32_t i) {
    const topo_box *its = &to->tree->box[to->tree->box[i].shown];
    return x_of(to, its->begin) + (double)its->leaves * column / 2;
}

/* Draws a bar below the devices that stands for all fabric switches of the machine. */
static double draw_fabric(const topo_canvas *to, int32_t machine, double y) {
    const dlc_topo *topo = &to->report->topo;
    size_t switches = dlc_topo_count(topo, machine, DLC_TOPO_FABRIC);
    uint32_t kind = 0;
    double least = 1e9, most = 0;
    char name[TEXT], mark[TEXT], words[TEXT + 16];
    for (int32_t i = 0; i < (int32_t)topo->nodes; i++) {
        int32_t links = 0;
        if (topo->node[i].machine != machine || !to->tree->box[i].is_leaf)
            continue;
        for (size_t k = 0; k < topo->links; k++)
            if (topo->link[k].from == i && is_fabric(to, topo->link[k].to)) {
                links += topo->link[k].count;
                kind = topo->link[k].kind;
            }
        if (!links)
            continue;
        double x = middle_of(to, i);
        least = x < least ? x : least;
        most = x > most ? x : most;
        (void)snprintf(name, sizeof name, "NV%d", (int)links);
        dlc_svg_line(to->svg, "link", x, y, x, y + 26);
        dlc_svg_text(to->svg, "lane", "start", x + 5, y + 17, name);
    }
    if (most <= 0)
        return 0;
    (void)snprintf(name, sizeof name, "%zu %s%s", switches,
                   kind == DLC_LINK_NVLINK ? "NVSwitch" : "switch",
                   switches == 1 ? "" : "es");
    topo_mark_text(&to->tree->link[machine], mark, sizeof mark);
    (void)snprintf(words, sizeof words, "NV#%s%s", mark[0] ? ": " : "", mark);
    dlc_svg_box(to->svg, "NV", least - column / 2 + 3, y + 26,
                most - least + column - 6, box, name);
    draw_words(to, name, words, least - column / 2, most - least + column, y + 42);
    return 26 + box;
}

/* Whether this is the first entry of a link; both ends may list it. */
static int is_first_entry(const dlc_topo *topo, size_t k) {
    const dlc_topo_link *link = &topo->link[k];
    if (link->from < link->to)
        return 1;
    for (size_t i = 0; i < topo->links; i++)
        if (topo->link[i].from == link->to && topo->link[i].to == link->from)
            return 0;
    return 1;
}

static int is_arc(const topo_canvas *to, int32_t machine, size_t k) {
    const dlc_topo *topo = &to->report->topo;
    const dlc_topo_link *link = &topo->link[k];
    return topo->node[link->from].machine == machine && link->from != link->to &&
           to->tree->box[link->from].is_leaf && to->tree->box[link->to].is_leaf &&
           is_first_entry(topo, k);
}

static double draw_arc(const topo_canvas *to, const dlc_topo_link *link, double y,
                       int labelled) {
    double a = middle_of(to, link->from), b = middle_of(to, link->to);
    double deep = 14 + arc_step * (a < b ? b - a : a - b) / column;
    char name[2][LABEL], tip[TEXT];
    deep = deep < arc_most ? deep : arc_most;
    dlc_topo_label(&to->report->topo, link->from, name[0], LABEL);
    dlc_topo_label(&to->report->topo, link->to, name[1], LABEL);
    (void)snprintf(tip, sizeof tip, "%s - %s: NV%d, %.3g GB/s", name[0], name[1],
                   (int)link->count, (double)link->gbs);
    dlc_svg_arc(to->svg, "link", a, b, y, deep, tip);
    (void)snprintf(tip, sizeof tip, "NV%d", (int)link->count);
    if (labelled)
        dlc_svg_text(to->svg, "lane", "middle", (a + b) / 2, y + 0.75 * deep + 3, tip);
    return 0.75 * deep + 4;
}

static double draw_arcs(const topo_canvas *to, int32_t machine, double y) {
    const dlc_topo *topo = &to->report->topo;
    double deepest = 0;
    size_t arcs = 0;
    char mark[TEXT], words[TEXT + 32];
    for (size_t k = 0; k < topo->links; k++)
        arcs += is_arc(to, machine, k) != 0;
    for (size_t k = 0; k < topo->links; k++)
        if (is_arc(to, machine, k)) {
            double deep = draw_arc(to, &topo->link[k], y, arcs <= ARC_LABELS_MOST);
            deepest = deep > deepest ? deep : deepest;
        }
    topo_mark_text(&to->tree->link[machine], mark, sizeof mark);
    if (!arcs || !mark[0])
        return deepest;
    (void)snprintf(words, sizeof words, "NV#: %s", mark);
    dlc_svg_text(to->svg, "name", "start", x_of(to, to->tree->box[machine].begin) + 8,
                 y + deepest + 20, words);
    return deepest + 26;
}

/* ---- Machines -------------------------------------------------------------------- */

static void draw_machine(topo_canvas *to, int32_t machine) {
    const dlc_topo *topo = &to->report->topo;
    double top = to->y, right;
    for (int32_t i = machine; i < (int32_t)topo->nodes; i++) {
        const topo_box *its = &to->tree->box[i];
        if (topo->node[i].machine != machine || its->shown != i || !its->leaves)
            continue;
        if (its->is_leaf)
            draw_leaf(to, i, top);
        else
            draw_box(to, i, top);
        if (its->cores)
            draw_cores(to, i, top);
    }
    to->y = leaves_top(to, top) + leaf;
    to->y += draw_fabric(to, machine, to->y);
    to->y += draw_arcs(to, machine, to->y);
    right = x_of(to, to->tree->box[machine].leaves);
    to->right = right > to->right ? right : to->right;
}

/* Draws the network, on the left of the machines and below them. */
static void draw_network(topo_canvas *to, const double *top, size_t drawn, size_t all) {
    char mark[TEXT], words[TEXT + 16], name[64] = "network";
    topo_mark_text(&to->tree->network, mark, sizeof mark);
    (void)snprintf(words, sizeof words, "NET%s%s", mark[0] ? ": " : "", mark);
    if (all > drawn)
        (void)snprintf(name, sizeof name, "network, to %zu more machines", all - drawn);
    double x = to->left - 12, wide = to->right - to->left;
    for (size_t i = 0; i < drawn; i++)
        dlc_svg_line(to->svg, "net", x, top[i] + box / 2, to->left + 1,
                     top[i] + box / 2);
    dlc_svg_line(to->svg, "net", x, top[0] + box / 2, x, to->y + box / 2);
    dlc_svg_line(to->svg, "net", x, to->y + box / 2, to->left + 1, to->y + box / 2);
    wide = wide > 420 ? wide : 420;
    to->right = to->left + wide;
    dlc_svg_box(to->svg, "NET", to->left + 1.5, to->y, wide - 3, box, NULL);
    draw_words(to, name, words, to->left, wide, to->y + 16);
    to->y += box + gap;
}

void topo_machines_draw(topo_canvas *to) {
    const dlc_topo *topo = &to->report->topo;
    size_t all = dlc_topo_count(topo, -1, DLC_TOPO_MACHINE), drawn = 0;
    double top[MACHINES_MOST];
    to->left += all > 1 ? 16 : 0;
    for (; drawn < all && drawn < MACHINES_MOST; drawn++) {
        top[drawn] = to->y;
        draw_machine(to, dlc_topo_nth(topo, -1, DLC_TOPO_MACHINE, drawn));
        to->y += gap;
    }
    if (all > 1)
        draw_network(to, top, drawn, all);
}
