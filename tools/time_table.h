/* What was measured, made into a table: medians over the passes, rates, shares, rows
 * in order, and the same by type of layer. Arithmetic alone: no clock, no session. */
#ifndef DLC_TOOLS_TIME_TABLE_H
#define DLC_TOOLS_TIME_TABLE_H

#include "net/net.h"

/* The parts of a pass, and the solver's update behind it. */
enum { TIME_UPDATE = DLC_NET_PARTS, TIME_PARTS };

/* Seconds of every part of every row, pass by pass. Begin with {.rows = N}. */
typedef struct dlc_time_samples {
    size_t rows, passes, room;
    double *part;  /* passes * rows * TIME_PARTS */
    double *whole; /* of each pass from end to end */
} dlc_time_samples;

/* Room for one pass more: rows * TIME_PARTS zeros to fill in, its index passes - 1.
 * NULL when memory ran out. Pointers to earlier passes end. */
double *dlc_time_samples_add(dlc_time_samples *samples);
void dlc_time_samples_free(dlc_time_samples *samples);

/* One layer or reorder; or all of a type; or the sum of all. */
typedef struct dlc_time_row {
    char *name; /* of a reorder "conv1 -> pool1"; own */
    const char *type, *absorbed_by;
    char choice[96];
    int32_t layers; /* that are in it */
    int64_t parameters;
    dlc_net_work work[TIME_PARTS];
    double seconds[TIME_PARTS]; /* medians */
    double total, share;        /* their sum; and that of the whole, 0 .. 1 */
} dlc_time_row;

typedef enum dlc_time_order { TIME_SLOWEST_FIRST, TIME_AS_IN_NET } dlc_time_order;

typedef struct dlc_time_table {
    size_t rows, types, passes;
    dlc_time_row *row;                         /* in the order asked for */
    dlc_time_row *type;                        /* slowest first */
    dlc_time_row sum;                          /* of the medians */
    double pass_least, pass_median, pass_most; /* from end to end */
} dlc_time_table;

/* `update` has one entry a row, the work of its update; NULL: none. Strings of `net`
 * must stay. Free with dlc_time_table_free. */
dlc_status dlc_time_table_make(const dlc_net_row *net, const dlc_net_work *update,
                               const dlc_time_samples *samples, dlc_time_order order,
                               dlc_time_table *table);
void dlc_time_table_free(dlc_time_table *table);

/* 10^9 operations (two a multiply-add) and 10^9 bytes a second; 0 where there is
 * nothing to tell: no work of that kind, or a part too short to do it in. */
double dlc_time_gflops(const dlc_time_row *row, int part);
double dlc_time_gbytes(const dlc_time_row *row, int part);
/* The same over all parts that did such work. */
double dlc_time_row_gflops(const dlc_time_row *row);
double dlc_time_row_gbytes(const dlc_time_row *row);

#endif
