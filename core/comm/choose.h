/* Which transports join a group of ranks, and why: one for all of them, or one inside
 * each node and another between the nodes. */
#ifndef DLC_COMM_CHOOSE_H
#define DLC_COMM_CHOOSE_H

#include <dlcore/transport.h>

#include "base/text.h"
#include "plugin/registry.h"

/* Which ranks a transport would join. */
typedef enum dlc_route {
    DLC_ROUTE_ALL,     /* all, alone */
    DLC_ROUTE_INSIDE,  /* those of each node */
    DLC_ROUTE_BETWEEN, /* the nodes: a rank of each */
    DLC_ROUTES
} dlc_route;

/* What a person is told of one transport on one route. */
typedef struct dlc_verdict {
    char *name;   /* own */
    char *reason; /* own; "shared memory, 2 ranks on one node" */
    dlc_route route;
    int32_t score;
    int chosen;
} dlc_verdict;

/* Start with {0}; release with dlc_choice_free. */
typedef struct dlc_choice {
    const dlc_feature *feature; /* joins all ranks; or those of each node where ... */
    const dlc_feature *between; /* ... this one joins the nodes; else NULL */
    dlc_verdict *verdict;       /* own; one a route and transport that was found, usable
                                   or not */
    size_t verdicts;
} dlc_choice;

/* The settings of one transport, for its score. Owner: the callee. */
typedef dlc_status dlc_settings_of(void *context, const dlc_feature *feature,
                                   const dlc_settings **settings);

/* Asks each transport for its score for the group and takes the best (of equals the
 * first). Where ranks share nodes and there are several nodes, it takes the best inside
 * them and the best between them, if the one inside is better than any for all. Or,
 * where `wanted` is not "auto", the transport of that name, or two of them: "A+B" is A
 * inside nodes and B between them; where there is one node, or one rank a node, it is
 * A or B alone. `args` is as for the transports' `score`, but for the settings: they
 * come from `settings_of` (NULL: there are none). `device` is the name of the ranks'
 * device.
 *
 * DLC_ERR_PLUGIN: there is no such transport, or it cannot be used.
 * DLC_ERR_CONFIG: it (or none of them) cannot join these ranks; the sentence says
 * why. `choice` holds the verdicts then, too. */
dlc_status dlc_comm_choose(const dlc_registry *registry, const char *wanted,
                           const char *device, const dlc_transport_args *args,
                           dlc_settings_of *settings_of, void *context,
                           dlc_choice *choice);

/* The verdicts as lines for a person, the choice first:
 *     transport: shm: shared memory, 2 ranks on one node
 *         not tcp: slower here (20 against 50): TCP over loopback
 *         not rdma: rank 1 has no adapter                                       */
void dlc_choice_text(const dlc_choice *choice, dlc_text *text);

/* "shm", "shm+tcp". */
void dlc_choice_name(const dlc_choice *choice, dlc_text *text);

void dlc_choice_free(dlc_choice *choice);

#endif
