/* The cost of the tensor-parallel layers at the end of a net with each tensor-parallel
 * schedule: the whole batch at once, or in chunks (net/batch_chunks.h), of which the
 * next is sent while one is computed. Chunks need less memory and less waiting, but for
 * each of them weights are read and gradients accumulated. */
#ifndef DLC_PLAN_BATCH_CHUNKS_H
#define DLC_PLAN_BATCH_CHUNKS_H

#include "net/net.h"
#include "plan/exchange.h"

typedef struct dlc_plan_tensor_group {
    double samples;     /* of a rank */
    dlc_plan_time work; /* forward and backward of the layers for a rank's samples */
    double parameter_bytes; /* of this rank */
    double largest_bytes;   /* of the largest layer's parameters */
    double cut_bytes;       /* of the group's input, per sample */
    double kept_bytes;      /* of the layers' outputs, per sample */
    int no_gradient;        /* the input needs no gradient */
    double memory;          /* bytes that a rank moves per second */
} dlc_plan_tensor_group;

typedef struct dlc_plan_chunks {
    int32_t count;   /* number of chunks; 0: the schedule isn't possible */
    double seconds;  /* of the group's part of a step */
    double exchange; /* seconds of transferring the input and its gradient */
    double exposed;  /* seconds of that in which nothing is computed */
    double bytes;    /* of memory for the group */
} dlc_plan_chunks;

const char *dlc_plan_schedule_text(
    dlc_tensor_schedule schedule); /* "whole_batch", "by_rank", "chunked" */

/* Computes the cost of a schedule; with chunks there are as many as ranks. */
dlc_status dlc_plan_chunks_of(const dlc_plan_tensor_group *group,
                              const dlc_plan_cluster *cluster,
                              dlc_tensor_schedule schedule, dlc_plan_chunks *chunks);

/* Chooses the fastest schedule that fits in `room` bytes (0: unknown): the whole batch
 * at once, unless another one is clearly faster. If none fits, the one that needs
 * least. *reason is a phrase. */
dlc_tensor_schedule
dlc_plan_choose_schedule(const dlc_plan_chunks chunks[DLC_TENSOR_SCHEDULES],
                         double room, const char **reason);

#endif
