/* Measures an operation with one size, and checks its result. */
#ifndef DLC_TOOLS_BENCH_MEASURE_H
#define DLC_TOOLS_BENCH_MEASURE_H

#include "bench_group.h"
#include "bench_table.h"

typedef struct dlc_bench_options {
    uint64_t iterations; /* 0: as many as take 0.2 s */
    uint64_t warm_up;    /* 0: as many as take 0.05 s */
    int check;
} dlc_bench_options;

/* Collective; all ranks get the same row. `bytes` must fit the group's memory and be a
 * multiple of 4. If group->stopped is set afterwards, *row is undefined. */
dlc_status dlc_bench_measure(dlc_bench_group *group, const dlc_bench_options *options,
                             dlc_bench_op op, size_t bytes, dlc_bench_row *row);

#endif
