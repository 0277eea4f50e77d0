/* The results of `dlcore bench comm`: as a table with the columns of NVIDIA's
 * collective tests, as JSON and as a plot. Pure arithmetic: no clock, no ranks. */
#ifndef DLC_TOOLS_BENCH_TABLE_H
#define DLC_TOOLS_BENCH_TABLE_H

#include <stdint.h>

#include "base/json.h"

typedef enum dlc_bench_op {
    BENCH_ALL_REDUCE,
    BENCH_BROADCAST,
    BENCH_ALL_GATHER,
    BENCH_REDUCE_SCATTER,
    BENCH_SEND_RECV, /* to the next rank, from the previous one */
    BENCH_PING_PONG, /* between the first rank and the last; one-way time */
    BENCH_STREAM,    /* from the first rank to the last, several in flight */
    BENCH_OPS
} dlc_bench_op;

/* "all_reduce", ...; NULL: there is no such operation. */
const char *dlc_bench_op_name(int op);

typedef struct dlc_bench_row {
    dlc_bench_op op;
    uint64_t bytes;
    uint64_t iterations;
    double seconds; /* of one operation */
    int64_t wrong;  /* elements, over all ranks; -1: not checked */
} dlc_bench_row;

typedef struct dlc_bench_head {
    const char *transport, *device;
    int32_t ranks;
    int arena; /* in memory registered with the transport */
} dlc_bench_head;

/* Algorithm bandwidth, size / time, and bus bandwidth, the load of the busiest link, in
 * GB/s (10^9 bytes per second). As NVIDIA's tests define it (doc/PERFORMANCE.md), bus
 * bandwidth is 2 (n-1)/n of the former for all_reduce, (n-1)/n for all_gather and
 * reduce_scatter, and all of it for the others. */
double dlc_bench_algbw(const dlc_bench_row *row);
double dlc_bench_busbw(const dlc_bench_row *row, int32_t ranks);

/* Append lines of the table; a head is written before the first row of each operation.
 */
void dlc_bench_text_head(const dlc_bench_head *head, dlc_bench_op op, dlc_text *text);
void dlc_bench_text_row(const dlc_bench_head *head, const dlc_bench_row *row,
                        dlc_text *text);
/* Appends a list of objects. */
void dlc_bench_json(const dlc_bench_head *head, const dlc_bench_row *row, size_t rows,
                    dlc_json *json);
/* Draws bus bandwidth and time over size, with one line per operation. */
dlc_status dlc_bench_svg(const dlc_bench_head *head, const dlc_bench_row *row,
                         size_t rows, dlc_text *svg);

/* Parses "4K", "65536" or "1G" to bytes; 0: not a size. */
uint64_t dlc_bench_parse_size(const char *text);
/* Writes "4 B", "4 KiB" or "1.5 MiB"; `text` has room for 16 characters. */
void dlc_bench_format_size(uint64_t bytes, char *text);
/* Parses names separated by commas, or "all", to one bit per operation. Returns NULL,
 * or the unknown name (in `bad`, which has room for 32 characters). */
const char *dlc_bench_parse_ops(const char *text, unsigned *ops, char *bad);

#endif
