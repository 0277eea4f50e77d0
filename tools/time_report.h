/* The output of `dlcore time`: as text, JSON and a plot. */
#ifndef DLC_TOOLS_TIME_REPORT_H
#define DLC_TOOLS_TIME_REPORT_H

#include "base/json.h"
#include "time_table.h"

/* What was measured. */
typedef struct dlc_time_head {
    const char *net, *device, *solver, *precision;
    int64_t batch;
    int threads;
    double feed_images;     /* that the feed alone delivers per second */
    dlc_time_limits limits; /* the table was made with */
} dlc_time_head;

typedef struct dlc_time_style {
    int wide;  /* rates of every part, not only of the row */
    int all;   /* also layers that are fused into others */
    int width; /* lines are cut at this width; 0: not cut */
} dlc_time_style;

void dlc_time_text(const dlc_time_head *head, const dlc_time_table *table,
                   const dlc_time_style *style, dlc_text *text);
void dlc_time_json(const dlc_time_head *head, const dlc_time_table *table,
                   dlc_json *json);
/* Draws a bar for each of the slowest rows, in the table's order, and one for the
 * others. */
dlc_status dlc_time_svg(const dlc_time_head *head, const dlc_time_table *table,
                        dlc_text *svg);

enum { TIME_NAME_ROOM = 160 };
/* Shortens a name to at most `most` (4 .. 120) bytes by cutting out its middle. */
void dlc_time_cut_name(const char *name, int most, char cut[TIME_NAME_ROOM]);

/* Samples per second of such passes. */
double dlc_time_images(const dlc_time_head *head, const dlc_time_table *table);

#endif
