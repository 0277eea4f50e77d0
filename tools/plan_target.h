/* The machines that `dlcore plan` predicts for: as given on the command line, as
 * recorded in a file, or this machine. */
#ifndef DLC_TOOLS_PLAN_TARGET_H
#define DLC_TOOLS_PLAN_TARGET_H

#include "plan/cost.h"
#include "plan_measure.h"

/* The command line's options; 0 and NULL: not given. */
typedef struct plan_given {
    const char *from;              /* a recorded machine */
    int32_t nodes, ranks_per_node; /* --nodes NxM */
    double link, inside;           /* bytes per second */
    double latency;                /* seconds, of --link; negative: not given */
    double speed;                  /* of a rank, relative to this machine's */
    double images_per_s;           /* of a rank that trains alone */
} plan_given;

typedef struct plan_target {
    dlc_plan_cluster cluster;
    char inside[128], between[128];         /* the numbers and where they come from */
    char route_inside[8], route_between[8]; /* "shm", "p2p", "rdma" ...; "": unknown */
} plan_target;

/* Parse "100Gb/s", "12.5GB/s" or "800Mbit/s" to bytes per second; "5us" or "0.1ms" to
 * seconds; "16x8" or "4" to machines and ranks per machine. Return 0 if the text is
 * invalid. */
int plan_parse_rate(const char *text, double *bytes_per_s);
int plan_parse_time(const char *text, double *seconds);
int plan_parse_nodes(const char *text, int32_t *nodes, int32_t *ranks_per_node);

/* Numbers that were not given come from the recorded machine, else from the
 * measurement, else they are assumed; the texts say which. */
dlc_status plan_target_make(const plan_given *given, const plan_measured *measured,
                            plan_target *target);

#endif
