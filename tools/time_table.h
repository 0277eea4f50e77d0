/* Makes a table from measured passes: medians, rates, shares, rows in order, and totals
 * by type of layer. Pure arithmetic: no clock, no session. Used by `dlcore time` and
 * `dlcore plan`. */
#ifndef DLC_TOOLS_TIME_TABLE_H
#define DLC_TOOLS_TIME_TABLE_H

#include "net/net.h"

/* The parts of a pass, and the solver's update after it. */
enum { TIME_UPDATE = DLC_NET_PARTS, TIME_PARTS };

/* Seconds of every part of every row and pass. Start with {.rows = N}. */
typedef struct dlc_time_samples {
    size_t rows, passes, room;
    double *part;  /* passes * rows * TIME_PARTS */
    double *whole; /* end-to-end time of each pass */
} dlc_time_samples;

/* Adds a pass and returns rows * TIME_PARTS zeros to fill in. NULL: out of memory.
 * Invalidates pointers to earlier passes. */
double *dlc_time_samples_add(dlc_time_samples *samples);
void dlc_time_samples_free(dlc_time_samples *samples);

/* What the device can do at most, in 10^9 a second; 0: unknown. */
typedef struct dlc_time_limits {
    double gflops, gbytes;
} dlc_time_limits;

/* One layer or reorder, all of a type, or the sum of all. */
typedef struct dlc_time_row {
    char *name; /* owned; "conv1 -> pool1" for a reorder */
    const char *type, *fused_into;
    char choice[96];
    int32_t layers; /* number of layers in it */
    int64_t parameters;
    dlc_net_work work[TIME_PARTS];
    double seconds[TIME_PARTS]; /* medians */
    double least[TIME_PARTS];   /* seconds that the limits allow; 0: unknown */
    double total, share;        /* their sum, and its share of the whole, 0 .. 1 */
} dlc_time_row;

typedef enum dlc_time_order { TIME_SLOWEST_FIRST, TIME_AS_IN_NET } dlc_time_order;

typedef struct dlc_time_table {
    size_t rows, types, passes;
    dlc_time_row *row;                      /* in the requested order */
    dlc_time_row *type;                     /* slowest first */
    dlc_time_row sum;                       /* of the medians */
    double pass_min, pass_median, pass_max; /* end to end */
} dlc_time_table;

/* `update` has one entry per row, the work of its update; NULL: none. `limits` may be
 * NULL: unknown. Strings of `net` must outlive the table. Release with
 * dlc_time_table_free. */
dlc_status dlc_time_table_make(const dlc_net_row *net, const dlc_net_work *update,
                               const dlc_time_limits *limits,
                               const dlc_time_samples *samples, dlc_time_order order,
                               dlc_time_table *table);
void dlc_time_table_free(dlc_time_table *table);

/* 10^9 operations (two per multiply-add) and 10^9 bytes per second; 0 if there is no
 * such work, or the part took too little time to have done it. */
double dlc_time_gflops(const dlc_time_row *row, int part);
double dlc_time_gbytes(const dlc_time_row *row, int part);
/* The rates over all parts that do such work. */
double dlc_time_row_gflops(const dlc_time_row *row);
double dlc_time_row_gbytes(const dlc_time_row *row);
/* The share of the limit that applies, of arithmetic or of memory: the time that it
 * allows, over the time taken. More than 1 where caches save bytes or an algorithm
 * multiplications; 0: unknown. The row's is that of the sums over its parts. */
double dlc_time_of_limit(const dlc_time_row *row, int part);
double dlc_time_row_of_limit(const dlc_time_row *row);

#endif
