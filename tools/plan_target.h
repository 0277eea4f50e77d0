/* The machines that `dlcore plan` predicts for: as said, as recorded, or this one. */
#ifndef DLC_TOOLS_PLAN_TARGET_H
#define DLC_TOOLS_PLAN_TARGET_H

#include "plan/cost.h"
#include "plan_measure.h"

/* As the command line has it; 0 and NULL: not said. */
typedef struct plan_said {
    const char *from;    /* a recorded machine */
    int32_t nodes, each; /* --nodes NxM */
    double link, inside; /* bytes a second */
    double latency;      /* seconds, of --link; below 0: not said */
    double speed;        /* of a rank, in ranks of this machine */
    double images_per_s; /* of a rank that trains alone */
} plan_said;

typedef struct plan_target {
    dlc_plan_cluster cluster;
    char inside[128], between[128];     /* where the numbers come from, in words */
    char way_inside[8], way_between[8]; /* "shm", "p2p", "rdma" ...; "" where unknown */
} plan_target;

/* "100Gb/s", "12.5GB/s", "800Mbit/s": bytes a second. "5us", "0.1ms": seconds. "16x8",
 * "4": machines, and ranks of each. 0: it is none. */
int plan_parse_rate(const char *text, double *bytes_per_s);
int plan_parse_time(const char *text, double *seconds);
int plan_parse_nodes(const char *text, int32_t *nodes, int32_t *each);

/* What was not said comes from the recorded machine, what that doesn't tell from what
 * was measured, or is assumed; the words say which. */
dlc_status plan_target_make(const plan_said *said, const plan_measured *measured,
                            plan_target *target);

#endif
