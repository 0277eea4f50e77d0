/* The costs of collectives, and of a whole data-parallel step, in which backward hides
 * a part of the exchange (exchange.c, step.c). */
#ifndef DLC_PLAN_EXCHANGE_H
#define DLC_PLAN_EXCHANGE_H

#include "plan/cost.h"

/* All-reduce algorithms. */
typedef enum dlc_plan_algorithm {
    /* Direct reduce-scatter and all-gather, inside the machines and then between them,
     * as in core/comm. */
    DLC_PLAN_DIRECT,
    DLC_PLAN_RING,   /* as many bytes, from neighbor to neighbor */
    DLC_PLAN_TREE,   /* up a binary tree to rank 0 and down again, the whole buffer each
                        time */
    DLC_PLAN_SERVER, /* reduced by one rank of each machine, then by parameter servers,
                        one per machine, each with its part of the weights; and back */
    DLC_PLAN_ALGORITHMS
} dlc_plan_algorithm;

/* Seconds of an all-reduce of `bytes` over all ranks, without overlap. */
double dlc_plan_all_reduce(const dlc_plan_cluster *cluster,
                           dlc_plan_algorithm algorithm, double bytes);
/* Seconds of a fused update of `bytes` of gradients: in one pass each rank reads all
 * ranks' gradients of its shard, reads and writes its shard of the weights and the
 * solver's state, and writes the weights to all ranks. Both this and an update are
 * bounded by memory, so it takes as long as an update that moves as many bytes. 0: not
 * possible. */
double dlc_plan_fused_update(const dlc_plan_cluster *cluster, double bytes);
/* Bytes moved in memory to update a byte of weights with a rule of so many slots: reads
 * gradient, weight and slots, and writes all but the gradient. */
double dlc_plan_update_moves(double slots);
/* Whether sharded updates pay, for a measured all-reduce and update. A bucket's
 * reduce-scatter takes half as long as an all-reduce and is hidden as before; the
 * all-gather of the weights takes the other half and isn't hidden, but 1 - 1/ranks of
 * the update is saved. */
int dlc_plan_favors_sharding(double bandwidth, double update_bandwidth, int32_t ranks);
/* Seconds of an all-gather, or a reduce-scatter, of a buffer of `bytes`. */
double dlc_plan_all_gather(const dlc_plan_cluster *cluster, double bytes);
/* Seconds of an all-to-all in which every rank has `bytes`. */
double dlc_plan_all_to_all(const dlc_plan_cluster *cluster, double bytes);

/* Sets both links so that a direct all-reduce over the cluster's ranks has the latency
 * and bandwidth that were measured (dlc_comm_cost). `sum_bandwidth` becomes 0, because
 * the measurement includes the additions; all else stays. */
void dlc_plan_links_from_all_reduce(double latency, double bandwidth,
                                    dlc_plan_cluster *cluster);

/* The fewest bytes of a bucket, if there are more. */
enum { DLC_PLAN_MIN_BUCKET = 64 << 10 };
/* The bucket size, in bytes, that leaves the least of the exchange of `bytes` outside
 * backward. What backward doesn't hide is the `cost` of each bucket in seconds (its
 * latency, and handing it from thread to thread) and the transfer of the last one,
 * bytes / bucket * cost + bucket / bandwidth, which is least at
 * sqrt(bytes * cost * bandwidth). If an arena is reduced faster than a bucket is handed
 * over it is one bucket. */
double dlc_plan_best_bucket(double cost, double bandwidth, double bytes);
/* The same for the all-reduce of a cluster. */
double dlc_plan_bucket_bytes(const dlc_plan_cluster *cluster,
                             dlc_plan_algorithm algorithm, double bytes);

/* What of the exchange overlaps with computing. */
typedef enum dlc_plan_overlap {
    DLC_PLAN_OVERLAP_NONE,     /* the exchange starts after backward */
    DLC_PLAN_OVERLAP_BACKWARD, /* a bucket is reduced as soon as backward has filled it
                                */
    DLC_PLAN_OVERLAP_FORWARD,  /* ... and the next forward waits for each layer's own */
    DLC_PLAN_OVERLAP_SHARDED, /* a bucket is reduce-scattered during backward; then each
                                 rank updates its shard and weights are all-gathered */
    DLC_PLAN_OVERLAP_FUSED, /* a filled bucket is reduced and updated in one pass; only
                               if cluster->fused_update */
    DLC_PLAN_OVERLAP_BEST   /* FUSED if possible, else the best of the three before */
} dlc_plan_overlap;

const char *dlc_plan_overlap_text(dlc_plan_overlap overlap); /* "backward", ... */

typedef struct dlc_plan_exchange {
    dlc_plan_algorithm algorithm;
    dlc_plan_overlap overlap;
    double bucket; /* bytes; 0: dlc_plan_bucket_bytes chooses */
    double scale;  /* factor on the bytes exchanged, 0.5 for float16; 0: 1 */
} dlc_plan_exchange;

/* What differs for a layer if some layers are tensor-parallel (tensor_parallel.h). */
typedef struct dlc_plan_extra {
    int is_split; /* its parameters are split, so gradients aren't exchanged */
    double parameter_bytes;   /* of this rank, if is_split */
    double forward, backward; /* additional seconds */
} dlc_plan_extra;

/* One step of one rank, in the steady state. */
typedef struct dlc_plan_step {
    double forward, backward; /* of the layers */
    double update;            /* of the weights that the rank updates */
    double rest;              /* cluster->rest */
    double exchange;          /* of all buckets, in sequence */
    double exposed;           /* the part of it that the layers don't hide */
    double seconds;           /* of the step */
    double bytes;             /* of a rank's gradients that are exchanged */
    double bucket;            /* bytes */
    int32_t buckets;
    dlc_plan_overlap overlap; /* the one chosen for DLC_PLAN_OVERLAP_BEST */
} dlc_plan_step;

/* Simulates a step with `samples` per rank. `extra` has one entry per layer; NULL: pure
 * data parallelism. */
dlc_status dlc_plan_step_of(const dlc_plan_layer *layer, size_t layers,
                            const dlc_plan_extra *extra,
                            const dlc_plan_cluster *cluster,
                            const dlc_plan_exchange *exchange, double samples,
                            dlc_plan_step *step);

/* The bytes of memory that a rank needs: weights, their copies, activations of
 * `samples`, and cluster->other_bytes. */
double dlc_plan_memory(const dlc_plan_layer *layer, size_t layers,
                       const dlc_plan_extra *extra, const dlc_plan_cluster *cluster,
                       double samples);

#endif
