/* What a step of training costs: the layers, the ranks and what joins them, in numbers.
 * Everything in this folder is arithmetic on these: no clock, no device, no peer. It is
 * the same on all ranks for the same numbers, so ranks that share what they measured
 * decide alike.
 *
 * Bytes are of float32, seconds are of one rank.
 */
#ifndef DLC_PLAN_COST_H
#define DLC_PLAN_COST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A time that grows with the batch: `fixed` whatever the batch (reading the weights,
 * starting the work), `each` for a sample. */
typedef struct dlc_plan_time {
    double fixed, each;
} dlc_plan_time;

/* One layer, in the order of forward. A layer that another one does the work of, and
 * the reorders in front of a layer, are counted in it. */
typedef struct dlc_plan_layer {
    const char *name;
    double parameter_bytes; /* that are trained */
    double in_bytes;        /* a sample's, of its first input */
    double out_bytes;       /* a sample's, of its outputs */
    double kept_bytes;      /* a sample's, that backward needs from forward; 0: all that
                               it gives */
    double cut_bytes; /* a sample's, of all that this layer and those before it give to
                         those behind it: what crosses when the net is cut here */
    dlc_plan_time forward, backward;
    int can_split; /* its outputs may be split over the ranks */
    int is_light;  /* it works on any part of its input alike, at next to no cost (relu,
                      dropout): it goes with its neighbours */
} dlc_plan_layer;

/* What joins two ranks. Messages of `bytes` take latency + bytes / bandwidth, one way;
 * both ways go at once, unless half_duplex. */
typedef struct dlc_plan_link {
    double latency, bandwidth; /* seconds; bytes a second, above 0 */
    int half_duplex;
} dlc_plan_link;

/* The ranks: `nodes` machines with `each` ranks. `between` is a machine's adapter,
 * which its ranks share; `inside` what each rank has within the machine. */
typedef struct dlc_plan_cluster {
    int32_t nodes, each; /* at least 1 */
    dlc_plan_link inside, between;
    double sum; /* bytes of a summand that a rank adds in a second; 0: as fast as they
                   come */
    double update; /* bytes of weights that the solver updates in a second; 0: in no
                      time */
    /* Of the time of sums behind backward's back, the part that the layers lose, 0 to
     * 1: 1 where sums are made on the cores that compute. */
    double stolen;
    double handover; /* seconds that an exchange takes from the computing thread */
    double rest;   /* seconds of a step that no layer takes: the next batch, what joins
                      the layers */
    double copies; /* copies of the weights that a rank keeps beside them: gradients and
                      the solver's state; 2 for momentum */
    double other_bytes; /* memory of a rank beside weights, copies and activations: the
                           process, the data, the test net */
    int one_pass; /* the ranks of a machine reach each other's memory: with one machine,
                     sums and updates are one pass (dlc_plan_pass) */
} dlc_plan_cluster;

static inline int32_t dlc_plan_ranks(const dlc_plan_cluster *cluster) {
    return cluster->nodes * cluster->each;
}

static inline double dlc_plan_seconds(dlc_plan_time time, double samples) {
    return time.fixed + time.each * samples;
}

/* The link of the widest ring over all ranks: `between` where there are several nodes,
 * `inside` otherwise. */
static inline const dlc_plan_link *dlc_plan_slowest(const dlc_plan_cluster *cluster) {
    return cluster->nodes > 1 ? &cluster->between : &cluster->inside;
}

double dlc_plan_parameter_bytes(const dlc_plan_layer *layer, size_t layers);
/* Forward and backward of `samples` on one rank, nothing else. */
double dlc_plan_compute(const dlc_plan_layer *layer, size_t layers, double samples);

/* Are these numbers that can be worked with? The detail sentence says which isn't. */
dlc_status dlc_plan_check(const dlc_plan_cluster *cluster);

#endif
