/* The inputs of the cost models: the layers, the ranks and their interconnect in
 * numbers. Everything in this folder is pure arithmetic on them: no clock, no device,
 * no peer. Equal numbers give equal results, so ranks that share their measurements
 * decide the same.
 *
 * Bytes are those of float32; seconds are those of one rank.
 */
#ifndef DLC_PLAN_COST_H
#define DLC_PLAN_COST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Predictions are no more accurate: what is chosen instead of the usual must be faster
 * by this fraction. */
#define DLC_PLAN_MARGIN 0.02
/* Seconds that each bucket, however small, takes from the compute threads that share
 * its cores: threads are woken, find their peers late, sleep, and are woken again.
 * Measured: 0.06 ms in shared memory, more over TCP. */
#define DLC_PLAN_HANDOVER 200e-6
/* Bytes moved in memory to add a byte to a sum: reads both, writes one. */
#define DLC_PLAN_ADD_MOVES 3.0

/* A time that grows with the batch: `fixed` seconds for any batch (reading the weights,
 * starting the work) plus `per_sample`. */
typedef struct dlc_plan_time {
    double fixed, per_sample;
} dlc_plan_time;

/* One layer, in forward order. It includes the layers that are fused into it, and the
 * reorders of its inputs. */
typedef struct dlc_plan_layer {
    const char *name;
    double parameter_bytes; /* of trained parameters */
    double in_bytes;        /* of its first input, per sample */
    double out_bytes;       /* of its outputs, per sample */
    double kept_bytes; /* that backward needs from forward, per sample; 0: all of its
                          outputs */
    double cut_bytes;  /* of the boundary tensors if the net is cut behind this layer,
                          per  sample: outputs up to here that later layers read */
    dlc_plan_time forward, backward;
    int can_split; /* its outputs may be split over the ranks (channel-parallel) */
    int is_light;  /* works on any part of its input at negligible cost (relu, dropout),
                      so  it is split if its neighbors are */
} dlc_plan_layer;

/* The link between two ranks. A message takes latency + bytes / bandwidth; both
 * directions work at once unless half_duplex. */
typedef struct dlc_plan_link {
    double latency, bandwidth; /* seconds; bytes per second, above 0 */
    int half_duplex;
} dlc_plan_link;

/* The ranks: `nodes` machines of `ranks_per_node` ranks. `between` is a machine's
 * network adapter, which its ranks share; `inside` is each rank's link within the
 * machine. */
typedef struct dlc_plan_cluster {
    int32_t nodes, ranks_per_node; /* at least 1 */
    dlc_plan_link inside, between;
    double sum_bandwidth;        /* bytes of an operand that a rank adds per second; 0:
                                    infinite */
    double update_bandwidth;     /* bytes of weights that are updated per second; 0:
                                    infinite */
    double accumulate_bandwidth; /* bytes of gradients that are added to those of other
                                    micro-batches per second; 0: infinite */
    /* The fraction of the reductions that overlap backward by which the layers become
     * slower, 0 to 1: 1 if the reductions run on the cores that compute. */
    double interference;
    double handover; /* seconds that starting an exchange takes from the computing
                        thread */
    double rest;   /* seconds of a step outside the layers: the next batch, overhead */
    double copies; /* of the weights in a rank's memory, besides the weights: gradients
                      and the solver's slots */
    double other_bytes; /* a rank's other memory, besides weights, copies and
                           activations: the process, the data, the test net */
    int fused_update;   /* the ranks of a machine can access each other's memory: on one
                           machine reduction and update are one pass
                           (dlc_plan_fused_update) */
} dlc_plan_cluster;

static inline int32_t dlc_plan_ranks(const dlc_plan_cluster *cluster) {
    return cluster->nodes * cluster->ranks_per_node;
}

static inline double dlc_plan_seconds(dlc_plan_time time, double samples) {
    return time.fixed + time.per_sample * samples;
}

/* The slowest link of a ring over all ranks: `between` if there are several nodes, else
 * `inside`. */
static inline const dlc_plan_link *dlc_plan_slowest(const dlc_plan_cluster *cluster) {
    return cluster->nodes > 1 ? &cluster->between : &cluster->inside;
}

/* Seconds that updating so many bytes of weights takes. */
static inline double dlc_plan_update_seconds(const dlc_plan_cluster *cluster,
                                             double bytes) {
    return cluster->update_bandwidth > 0 ? bytes / cluster->update_bandwidth : 0;
}

/* The parameter bytes of all layers. */
double dlc_plan_parameter_bytes(const dlc_plan_layer *layer, size_t layers);
/* Seconds of forward and backward for `samples` on one rank, without communication. */
double dlc_plan_compute(const dlc_plan_layer *layer, size_t layers, double samples);

/* DLC_ERR_CONFIG if a number is out of range; the detail says which. */
dlc_status dlc_plan_check(const dlc_plan_cluster *cluster);

#endif
