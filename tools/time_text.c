/* Writes the table as text for a terminal. */
#include "time_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_LEAST = 12, NAME_MOST = 34, COUNT_LETTERS = 4 };

/* A table whose times all have the unit that suits the total. */
typedef struct text_table {
    const dlc_time_style *style;
    dlc_text *text;
    double scale; /* units per second */
    const char *unit;
    int digits; /* after the decimal point */
    int name;   /* width of the first column */
} text_table;

static const char *const part_names[TIME_PARTS] = {"forward", "bw data", "bw param",
                                                   "update"};

double dlc_time_images(const dlc_time_head *head, const dlc_time_table *table) {
    return table->sum.total > 0 ? (double)head->batch / table->sum.total : 0;
}

static int continues(char byte) { /* a continuation byte of UTF-8 */
    return ((unsigned char)byte & 0xc0) == 0x80;
}

void dlc_time_cut_name(const char *name, int most, char cut[TIME_NAME_ROOM]) {
    size_t length = strlen(name), room = (size_t)most;
    if (length <= room) {
        snprintf(cut, TIME_NAME_ROOM, "%s", name);
        return;
    }
    size_t head = (room - 2) / 2, tail = length - (room - 2 - head);
    while (head && continues(name[head]))
        head--;
    while (continues(name[tail]))
        tail++;
    snprintf(cut, TIME_NAME_ROOM, "%.*s..%s", (int)head, name, name + tail);
}

/* ---- Lines ----------------------------------------------------------------------- */

/* Ends a line, cut at the terminal's last column. */
static void end_line(text_table *to, size_t begin) {
    dlc_text *text = to->text;
    size_t width = (size_t)to->style->width;
    if (text->failed)
        return;
    if (width && text->length - begin > width)
        text->length = begin + width;
    while (text->length > begin && text->bytes[text->length - 1] == ' ')
        text->length--;
    dlc_text_append(text, "\n", 1);
}

static void add_time(text_table *to, const dlc_time_row *row, int part) {
    double seconds = part < 0 ? row->total : row->seconds[part];
    if (seconds > 0)
        dlc_text_add(to->text, " %8.*f", to->digits, seconds * to->scale);
    else
        dlc_text_add(to->text, " %8s", "-");
}

static void add_rate(text_table *to, int width, double rate) {
    if (rate > 0)
        dlc_text_add(to->text, " %*.1f", width, rate);
    else
        dlc_text_add(to->text, " %*s", width, "-");
}

static void add_share(text_table *to, double share) {
    if (share > 0)
        dlc_text_add(to->text, " %7.0f%%", share * 100);
    else
        dlc_text_add(to->text, " %8s", "-");
}

static void add_row(text_table *to, const char *name, const char *type,
                    const dlc_time_row *row, const char *done_by) {
    size_t begin = to->text->length;
    char cut[TIME_NAME_ROOM];
    dlc_time_cut_name(name, to->name, cut);
    dlc_text_add(to->text, "%-*s", to->name, cut);
    if (to->style->wide)
        dlc_text_add(to->text, " %-14.14s", type);
    for (int part = 0; part < TIME_PARTS; part++) {
        add_time(to, row, part);
        if (to->style->wide && part != TIME_UPDATE)
            add_rate(to, 7, dlc_time_gflops(row, part));
        if (to->style->wide)
            add_rate(to, 6, dlc_time_gbytes(row, part));
    }
    add_time(to, row, -1);
    dlc_text_add(to->text, " %5.1f", row->share * 100);
    add_rate(to, 7, dlc_time_row_gflops(row));
    add_rate(to, 6, dlc_time_row_gbytes(row));
    add_share(to, dlc_time_row_of_limit(row));
    dlc_text_add(to->text, "  %s", done_by);
    end_line(to, begin);
}

static void add_heading(text_table *to, const char *what, const char *type,
                        const char *last) {
    size_t begin = to->text->length;
    dlc_text_add(to->text, "%-*s", to->name, what);
    if (to->style->wide)
        dlc_text_add(to->text, " %-14s", type);
    for (int part = 0; part < TIME_PARTS; part++) {
        dlc_text_add(to->text, " %8s", part_names[part]);
        if (to->style->wide && part != TIME_UPDATE)
            dlc_text_add(to->text, " %7s", "GFLOP/s");
        if (to->style->wide)
            dlc_text_add(to->text, " %6s", "GB/s");
    }
    dlc_text_add(to->text, " %8s %5s %7s %6s %8s  %s", "total", "%", "GFLOP/s", "GB/s",
                 "of limit", last);
    end_line(to, begin);
}

/* ---- The tables ------------------------------------------------------------------ */

static int longest_name(const dlc_time_table *table) {
    int longest = NAME_LEAST;
    for (size_t i = 0; i < table->rows; i++) {
        int length = (int)strlen(table->row[i].name);
        longest = length > longest ? length : longest;
    }
    for (size_t i = 0; i < table->types; i++) {
        int length = (int)strlen(table->type[i].name) + COUNT_LETTERS;
        longest = length > longest ? length : longest;
    }
    return longest < NAME_MOST ? longest : NAME_MOST;
}

static void add_layers(text_table *to, const dlc_time_table *table) {
    int hidden = 0;
    add_heading(to, "layer", "type", "done by");
    for (size_t i = 0; i < table->rows; i++) {
        const dlc_time_row *row = &table->row[i];
        char done_by[160];
        if (row->fused_into && !to->style->all) {
            hidden++;
            continue;
        }
        if (row->fused_into)
            snprintf(done_by, sizeof done_by, "in %s", row->fused_into);
        else
            snprintf(done_by, sizeof done_by, "%s", row->choice);
        add_row(to, row->name, row->type, row, done_by);
    }
    add_row(to, "total", "", &table->sum, "");
    if (hidden)
        dlc_text_add(to->text, "(and %d fused into others: --all)\n", hidden);
}

static void add_types(text_table *to, const dlc_time_table *table) {
    add_heading(to, "by type", "", "");
    for (size_t i = 0; i < table->types; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s x%" PRId32, table->type[i].name,
                 table->type[i].layers);
        add_row(to, name, "", &table->type[i], "");
    }
}

void dlc_time_text(const dlc_time_head *head, const dlc_time_table *table,
                   const dlc_time_style *style, dlc_text *text) {
    int is_short = table->sum.total < 0.1;
    text_table to = {.style = style,
                     .text = text,
                     .scale = is_short ? 1e6 : 1e3,
                     .unit = is_short ? "us" : "ms",
                     .digits = is_short ? 1 : 2,
                     .name = longest_name(table)};
    dlc_text_add(text,
                 "%s: batch %" PRId64
                 ", %s, %d thread%s on %s, solver %s; medians of %zu "
                 "pass%s, in %s\n\n",
                 head->net, head->batch, head->precision, head->threads,
                 head->threads == 1 ? "" : "s", head->device, head->solver,
                 table->passes, table->passes == 1 ? "" : "es", to.unit);
    add_layers(&to, table);
    dlc_text_add(text, "\n");
    add_types(&to, table);
    dlc_text_add(text, "\n%.*f %s per pass, %.*f images/s", to.digits,
                 table->sum.total * to.scale, to.unit,
                 dlc_time_images(head, table) < 100 ? 2 : 0,
                 dlc_time_images(head, table));
    dlc_text_add(text, "; end to end %.*f %s (%.*f to %.*f)\n", to.digits,
                 table->pass_median * to.scale, to.unit, to.digits,
                 table->pass_min * to.scale, to.digits, table->pass_max * to.scale);
    int is_slow = head->feed_images < dlc_time_images(head, table);
    dlc_text_add(text, "feed alone %.0f images/s%s\n", head->feed_images,
                 is_slow ? ": training will wait for data" : "");
    if (head->limits.gflops > 0)
        dlc_text_add(text, "limits of the device: %.0f GFLOP/s in %s, %.1f GB/s\n",
                     head->limits.gflops, head->precision, head->limits.gbytes);
}
