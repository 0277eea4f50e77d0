/* What it costs to exchange gradients, and how much of it backward hides. */
#ifndef DLC_PLAN_EXCHANGE_H
#define DLC_PLAN_EXCHANGE_H

#include "plan/cost.h"

/* How sums over all ranks are made. */
typedef enum dlc_plan_way {
    /* Each rank sums its slice of everybody's, then gives it to everybody; inside the
     * machines first, then between them: what core/comm does. */
    DLC_PLAN_DIRECT,
    DLC_PLAN_RING, /* the same bytes, from neighbour to neighbour */
    DLC_PLAN_TREE, /* up a binary tree to rank 0 and down again, all of it each time */
    DLC_PLAN_SERVER, /* summed by one rank of each machine, then by parameter servers,
                        as many as there are machines, each with a share of the weights;
                        back the same way */
    DLC_PLAN_WAYS
} dlc_plan_way;

const char *dlc_plan_way_text(dlc_plan_way way); /* "direct", "ring", ... */

/* Seconds of the sum of a buffer of `bytes` over all ranks, by itself. */
double dlc_plan_all_reduce(const dlc_plan_cluster *cluster, dlc_plan_way way,
                           double bytes);
/* Seconds in which the ranks sum `bytes` of gradients, update the weights and give them
 * out, all in one pass: each reads everybody's gradients of its share, reads and writes
 * its part of the weights and the solver's state, and writes the weights to everybody.
 * That takes as long as an update would that moves as many bytes, since memory bounds
 * both. 0: they can't. */
double dlc_plan_pass(const dlc_plan_cluster *cluster, double bytes);
/* Seconds until each rank has a buffer of `bytes` of which it had its share; and half
 * an all-reduce the other way. */
double dlc_plan_gather(const dlc_plan_cluster *cluster, double bytes);
/* Seconds in which every rank gives every other its share of its `bytes`. */
double dlc_plan_all_to_all(const dlc_plan_cluster *cluster, double bytes);

/* Sets both links so that a direct sum over the cluster's ranks takes `latency` and as
 * many bytes of the buffer a second, as measured on them (dlc_pace); nodes, each, and
 * all else stay. `sum` becomes 0: adding up was measured with the rest. */
void dlc_plan_links_of_sums(double latency, double bandwidth,
                            dlc_plan_cluster *cluster);

/* The size of buckets that leaves least outside backward, in bytes. */
double dlc_plan_bucket(const dlc_plan_cluster *cluster, dlc_plan_way way, double bytes);

/* What of the exchange goes on while layers compute. */
typedef enum dlc_plan_overlap {
    DLC_PLAN_OVERLAP_NONE,     /* all of backward, then all of the exchange */
    DLC_PLAN_OVERLAP_BACKWARD, /* a bucket goes as soon as backward has filled it */
    DLC_PLAN_OVERLAP_AHEAD,    /* and the next forward waits for each layer's own */
    DLC_PLAN_OVERLAP_SHARDS, /* behind backward each rank gets the sum of its shard; it
                                updates that, then weights are gathered */
    DLC_PLAN_OVERLAP_PASS,   /* a bucket that backward has filled is summed and updated
                                in one pass; only where ranks can */
    DLC_PLAN_OVERLAP_BEST    /* one pass where ranks can; else the best of the three
                                before it */
} dlc_plan_overlap;

const char *dlc_plan_overlap_text(dlc_plan_overlap overlap); /* "backward", ... */

typedef struct dlc_plan_exchange {
    dlc_plan_way way;
    dlc_plan_overlap overlap;
    double bucket; /* bytes; 0: dlc_plan_bucket's */
    double scale;  /* of the bytes that are exchanged; 0: 1. Half for float16 */
} dlc_plan_exchange;

/* Layers whose parameters are not exchanged, and what a layer needs besides, for the
 * step of a mix (split.h). NULL: data parallelism. */
typedef struct dlc_plan_extra {
    int alone;                /* its parameters are this rank's only */
    double parameter_bytes;   /* of them, that this rank has; where `alone` */
    double forward, backward; /* seconds more */
} dlc_plan_extra;

/* One step of one rank, when it has settled. */
typedef struct dlc_plan_step {
    double forward, backward; /* of the layers */
    double update;            /* of the weights that the rank updates */
    double rest;              /* as the cluster says */
    double exchange;          /* of all buckets, one behind the other */
    double exposed;           /* what of it the layers did not hide */
    double seconds;           /* of the step */
    double bytes;             /* exchanged, of a rank's gradients */
    double bucket;            /* bytes */
    int32_t buckets;
    dlc_plan_overlap overlap; /* that is meant by DLC_PLAN_OVERLAP_BEST */
} dlc_plan_step;

/* Simulates it: `samples` a rank; `extra` has one entry a layer, or is NULL. */
dlc_status dlc_plan_step_of(const dlc_plan_layer *layer, size_t layers,
                            const dlc_plan_extra *extra,
                            const dlc_plan_cluster *cluster,
                            const dlc_plan_exchange *exchange, double samples,
                            dlc_plan_step *step);

/* Bytes that a rank needs: weights, copies of them, activations of `samples`, and
 * cluster->other_bytes. */
double dlc_plan_memory(const dlc_plan_layer *layer, size_t layers,
                       const dlc_plan_extra *extra, const dlc_plan_cluster *cluster,
                       double samples);

#endif
