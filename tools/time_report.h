/* What was measured, shown: for people, for programs, as a picture. */
#ifndef DLC_TOOLS_TIME_REPORT_H
#define DLC_TOOLS_TIME_REPORT_H

#include "base/json.h"
#include "time_table.h"

/* What it was measured of. */
typedef struct dlc_time_head {
    const char *net, *device, *solver, *precision;
    int64_t batch;
    int threads;
} dlc_time_head;

typedef struct dlc_time_style {
    int wide;  /* the rates of every part, not of the row alone */
    int all;   /* layers that others do the work of, too */
    int width; /* lines are cut there; 0: nowhere */
} dlc_time_style;

void dlc_time_text(const dlc_time_head *head, const dlc_time_table *table,
                   const dlc_time_style *style, dlc_text *text);
void dlc_time_json(const dlc_time_head *head, const dlc_time_table *table,
                   dlc_json *json);
/* A bar for each of the slowest rows, in the table's order, and one for the others. */
dlc_status dlc_time_svg(const dlc_time_head *head, const dlc_time_table *table,
                        dlc_text *svg);

enum { TIME_NAME_ROOM = 160 };
/* A name of at most `most` (4 .. 120) bytes, its middle cut out where it is longer. */
void dlc_time_cut_name(const char *name, int most, char cut[TIME_NAME_ROOM]);

/* Samples that a second of such passes takes. */
double dlc_time_images(const dlc_time_head *head, const dlc_time_table *table);

#endif
