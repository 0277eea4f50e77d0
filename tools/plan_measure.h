/* What `dlcore plan` measures on this machine: a rank's layers, what its ranks
 * exchange, and a short real run to compare predictions with. */
#ifndef DLC_TOOLS_PLAN_MEASURE_H
#define DLC_TOOLS_PLAN_MEASURE_H

#include "plan/cost.h"
#include "train/setup.h"

typedef struct plan_measured {
    int done;            /* rank 0 has come to the end */
    int32_t ranks;       /* that measured at the same time */
    int32_t threads;     /* of each */
    int64_t batch;       /* of each */
    double update;       /* bytes of weights updated in a second; 0: not known */
    double rest;         /* seconds of a step that no layer takes */
    double copies;       /* of the weights, beside them */
    double memory;       /* bytes of a rank as it was measured, as check says */
    int host;            /* the device is the processor */
    int one_pass;        /* ranks sum and update in one pass over their memory */
    char transport[64];  /* "none" with one rank */
    double sum_latency;  /* seconds; of sums over all ranks; 0 with one rank */
    double sum_rate;     /* bytes a second */
    double images_per_s; /* of the real run, all ranks; 0: there was none */
    int32_t iterations;  /* of it */
    size_t layers;
    dlc_plan_layer layer[]; /* of the graph; names are the setup's */
} plan_measured;

typedef struct plan_how {
    int passes; /* of layers; 0: as many as take some seconds */
    int check;  /* also train for some seconds */
} plan_how;

/* Runs as many ranks as the setup says. *exit_code as of dlc_job_run; where it isn't 0
 * there is nothing in *measured. Free with plan_measured_free. */
dlc_status plan_measure(dlc_setup *setup, const plan_how *how, plan_measured **measured,
                        int *exit_code);
void plan_measured_free(plan_measured *measured); /* NULL allowed */

#endif
