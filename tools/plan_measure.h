/* Measures for `dlcore plan` on this machine: a rank's layers, the all-reduce of its
 * ranks, and a short real run to compare the prediction with. */
#ifndef DLC_TOOLS_PLAN_MEASURE_H
#define DLC_TOOLS_PLAN_MEASURE_H

#include "plan/cost.h"
#include "setup/setup.h"

typedef struct plan_measured {
    int done;                    /* rank 0 has finished */
    int32_t ranks;               /* that were measured at the same time */
    int32_t threads;             /* per rank */
    int64_t batch;               /* per rank */
    int64_t micro_batch;         /* of rank 0, measured, too; 0: there was none */
    int32_t micro_batches;       /* that training divides a batch into */
    double update_bandwidth;     /* bytes of weights updated per second; 0: unknown */
    double accumulate_bandwidth; /* bytes of gradients added to others per second */
    double rest;                 /* seconds of a step outside the layers */
    double copies;               /* of the weights, besides the weights */
    double memory;               /* bytes of a rank, as in the memory plan */
    int host;                    /* the device is the CPU */
    int fused_update;            /* the ranks use fused updates */
    char transport[64];          /* "none" with one rank */
    double all_reduce_latency;   /* seconds; 0 with one rank */
    double all_reduce_bandwidth; /* bytes per second */
    double images_per_s;         /* of the real run, all ranks; 0: there was none */
    int32_t iterations;          /* of the real run */
    size_t layers;
    dlc_plan_layer layer[]; /* of the graph; names point into the setup */
} plan_measured;

typedef struct plan_measure_options {
    int passes;         /* over the layers; 0: as many as take some seconds */
    int check;          /* also train for some seconds */
    int32_t mesh_ranks; /* of the mesh that the setup has: layers are measured with its
                           micro-batches, too; 0: it has none */
} plan_measure_options;

/* Runs the setup's number of ranks, without tensor or pipeline parallelism. *exit_code
 * is that of dlc_job_run; unless it is 0, *measured isn't set. Release with
 * plan_measured_free. */
dlc_status plan_measure(dlc_setup *setup, const plan_measure_options *options,
                        plan_measured **measured, int *exit_code);
void plan_measured_free(plan_measured *measured); /* NULL is allowed */

#endif
