/* Runs an operation on one size: how long it takes, and whether it is right. */
#ifndef DLC_TOOLS_BENCH_MEASURE_H
#define DLC_TOOLS_BENCH_MEASURE_H

#include "bench_group.h"
#include "bench_table.h"

typedef struct dlc_bench_how {
    uint64_t iterations; /* 0: as many as take 0.2 s */
    uint64_t warm_up;    /* 0: as many as take 0.05 s */
    int check;
} dlc_bench_how;

/* All ranks together; every rank's row is the same. `bytes` fits the group's memory
 * and is a multiple of 4. Where group->stopped is set afterwards, there is no row. */
dlc_status dlc_bench_measure(dlc_bench_group *group, const dlc_bench_how *how,
                             dlc_bench_op op, size_t bytes, dlc_bench_row *row);

#endif
