/* The choice of transports for a group of ranks, with reasons: one for all of them, or
 * one inside each node and another between the nodes. Called when training connects,
 * and by `dlcore topo` and `dlcore doctor`. */
#ifndef DLC_COMM_CHOOSE_H
#define DLC_COMM_CHOOSE_H

#include <dlcore/transport.h>

#include "base/text.h"
#include "plugin/registry.h"

/* Which ranks a transport would connect. */
typedef enum dlc_comm_scope {
    DLC_SCOPE_ALL,        /* all ranks, alone */
    DLC_SCOPE_INTRA_NODE, /* the ranks of each node */
    DLC_SCOPE_INTER_NODE, /* the nodes: one rank of each */
    DLC_SCOPES
} dlc_comm_scope;

/* What was found out about one transport in one scope. */
typedef struct dlc_transport_verdict {
    char *name;   /* owned */
    char *reason; /* owned; e.g. "shared memory, 2 ranks on one node" */
    dlc_comm_scope scope;
    int32_t score; /* 0: cannot be used */
    int chosen;
} dlc_transport_verdict;

/* Start with {0}; release with dlc_transport_choice_free. */
typedef struct dlc_transport_choice {
    const dlc_feature *feature;     /* of all ranks, or inside the nodes if ... */
    const dlc_feature *inter_node;  /* ... this one isn't NULL: between the nodes */
    dlc_transport_verdict *verdict; /* owned; one per scope and transport found, whether
                                       or not it can be used */
    size_t verdicts;
} dlc_transport_choice;

/* Gives the settings of one transport, for its score. The callee owns them. */
typedef dlc_status dlc_settings_of(void *context, const dlc_feature *feature,
                                   const dlc_settings **settings);

/* Chooses the transports of a group.
 *
 * With `wanted` "auto", every transport gives a score for the group and the highest
 * wins; the first of several with equal scores. If nodes have several ranks each and
 * there are several nodes, the best transport inside the nodes together with the best
 * between them is taken instead if the former scores higher than any transport for all
 * ranks. Otherwise `wanted` names one transport, or two: "A+B" is A inside the nodes
 * and B between them; A alone for one node, B alone if every node has one rank.
 *
 * `args` is as for the transports' `score`, except that settings come from
 * `settings_of` (NULL: no settings). `device` is the name of the ranks' device.
 *
 * DLC_ERR_PLUGIN: there is no such transport, or it cannot be used.
 * DLC_ERR_CONFIG: it (or, with "auto", every transport) cannot connect these ranks; the
 * detail says why. `choice` holds the verdicts in that case, too. */
dlc_status dlc_transport_choose(const dlc_registry *registry, const char *wanted,
                                const char *device, const dlc_transport_args *args,
                                dlc_settings_of *settings_of, void *context,
                                dlc_transport_choice *choice);

/* Appends the verdicts as lines to read, the choice first:
 *     transport: shm: shared memory, 2 ranks on one node
 *         not tcp: slower here (20 against 50): TCP over loopback
 *         not rdma: rank 1 has no adapter                                       */
void dlc_transport_choice_text(const dlc_transport_choice *choice, dlc_text *text);

/* Appends "shm" or "shm+tcp". */
void dlc_transport_choice_name(const dlc_transport_choice *choice, dlc_text *text);

void dlc_transport_choice_free(dlc_transport_choice *choice);

#endif
