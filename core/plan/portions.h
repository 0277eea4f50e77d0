/* The split layers at the end of a net: the whole batch at once, or by portions of it
 * (net/portions.h), of which the next is sent while one is computed. Less has to be
 * kept, and less is waited for; but weights are read, and their gradients added up, for
 * each portion. */
#ifndef DLC_PLAN_PORTIONS_H
#define DLC_PLAN_PORTIONS_H

#include "net/net.h"
#include "plan/exchange.h"

typedef struct dlc_plan_group {
    double samples;         /* of a rank */
    dlc_plan_time work;     /* of the layers for a rank's samples, both ways */
    double parameter_bytes; /* that this rank has, */
    double largest_bytes;   /* and of the largest layer */
    double cut_bytes;       /* a sample's, of what the group reads, */
    double kept_bytes;      /* and of what it gives on the way */
    int no_gradient;        /* what it reads has none */
    double memory;          /* bytes that a rank moves in a second */
} dlc_plan_group;

typedef struct dlc_plan_portions {
    int32_t count;   /* of portions; 0: it cannot be had */
    double seconds;  /* of a step in the group, */
    double exchange; /* that the cut is on its way, both ways, */
    double exposed;  /* and that nothing is computed meanwhile */
    double bytes;    /* of memory for the group */
} dlc_plan_portions;

const char *dlc_plan_split_way_text(dlc_split_way way); /* "whole_batch", "by_rank", "chunked" */

/* As many portions as ranks. */
dlc_status dlc_plan_portions_of(const dlc_plan_group *group,
                                const dlc_plan_cluster *cluster, dlc_split_way way,
                                dlc_plan_portions *portions);

/* Of those that fit in `room` bytes (0: not known; none fits: of those that need least)
 * the fastest: the whole batch at once unless another way is clearly faster. *reason: a
 * phrase. */
dlc_split_way dlc_plan_split_way(const dlc_plan_portions portions[DLC_SPLIT_WAYS],
                                 double room, const char **reason);

#endif
