/* What `dlcore bench comm` measures, and how it is shown: the columns that NVIDIA's
 * collective tests have, JSON, a picture. Arithmetic alone: no clock, no ranks. */
#ifndef DLC_TOOLS_BENCH_TABLE_H
#define DLC_TOOLS_BENCH_TABLE_H

#include <stdint.h>

#include "base/json.h"

typedef enum dlc_bench_op {
    BENCH_ALL_REDUCE,
    BENCH_BROADCAST,
    BENCH_ALL_GATHER,
    BENCH_REDUCE_SCATTER,
    BENCH_SEND_RECV, /* each rank to the next, from the one before */
    BENCH_PING_PONG, /* first and last rank, in turns; the time is of one way */
    BENCH_STREAM,    /* first to last rank, several under way */
    BENCH_OPS
} dlc_bench_op;

/* "all_reduce"; NULL: there is no such operation. */
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
    int arena; /* in memory that the transport was told of */
} dlc_bench_head;

/* GB/s (10^9 bytes) that the caller sees, and the load of the links in it. As
 * those tests define them (their doc/PERFORMANCE.md), bus bandwidth is
 * 2 (n-1)/n of it for all_reduce, (n-1)/n for all_gather and reduce_scatter, and all
 * of it for the others. */
double dlc_bench_algbw(const dlc_bench_row *row);
double dlc_bench_busbw(const dlc_bench_row *row, int32_t ranks);

/* Lines end with '\n'. The head comes before the first row of each operation. */
void dlc_bench_text_head(const dlc_bench_head *head, dlc_bench_op op, dlc_text *text);
void dlc_bench_text_row(const dlc_bench_head *head, const dlc_bench_row *row,
                        dlc_text *text);
/* A list of objects. */
void dlc_bench_json(const dlc_bench_head *head, const dlc_bench_row *row, size_t rows,
                    dlc_json *json);
/* Bus bandwidth and time over size, a line an operation. */
dlc_status dlc_bench_svg(const dlc_bench_head *head, const dlc_bench_row *row,
                         size_t rows, dlc_text *svg);

/* "4K", "65536", "1G" -> bytes; 0: it is no size. */
uint64_t dlc_bench_parse_size(const char *text);
/* The least of bytes, "4 KiB", "1.5 MiB"; `text` has room for 16 letters. */
void dlc_bench_format_size(uint64_t bytes, char *text);
/* Names joined by commas, or "all" -> a bit for each operation. NULL, or the name that
 * there is not (in `bad`, with room for 32 letters). */
const char *dlc_bench_parse_ops(const char *text, unsigned *ops, char *bad);

#endif
