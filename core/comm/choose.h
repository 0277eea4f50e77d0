/* The choice of transports for a group of ranks, with reasons: one for all of them, or
 * one for each of several levels of domains. Called when training connects, and by
 * `dlcore topo` and `dlcore doctor`.
 *
 * The choice is a function of the ranks' domains, the graph of their machines, and what
 * the transports predict, so all ranks of a job, and `dlcore topo` on recorded
 * machines, come to the same one. */
#ifndef DLC_COMM_CHOOSE_H
#define DLC_COMM_CHOOSE_H

#include "base/text.h"
#include "plugin/registry.h"
#include "topology/domains.h"

/* Which ranks a transport would connect: the domains of one level, one rank of each,
 * within each domain of a higher level. */
typedef struct dlc_comm_scope {
    int32_t below;  /* dlc_domain_level; DLC_SCOPE_RANKS: every rank */
    int32_t within; /* dlc_domain_level; DLC_DOMAIN_JOB: all are in one */
} dlc_comm_scope;
#define DLC_SCOPE_RANKS (-1)

static inline int dlc_comm_scope_is_same(dlc_comm_scope a, dlc_comm_scope b) {
    return a.below == b.below && a.within == b.within;
}

/* What was found out about one transport in one scope. */
typedef struct dlc_transport_verdict {
    char *name;   /* owned */
    char *reason; /* owned; e.g. "shared memory, 2 ranks on one node" */
    dlc_comm_scope scope;
    double seconds; /* predicted for an iteration's reductions; 0: cannot be used */
    int chosen;
} dlc_transport_verdict;

/* What was predicted for the slowest group of a scope, and the bandwidth of its link as
 * the topology has it. */
typedef struct dlc_transport_path {
    dlc_transport_prediction prediction;
    double link_bandwidth;
} dlc_transport_path;

/* The transport of one level. */
typedef struct dlc_transport_level {
    const dlc_feature *feature;
    dlc_comm_scope scope;
    dlc_transport_path path;
} dlc_transport_level;

/* What was found out about a transport when it was tried (probe.h). */
typedef struct dlc_transport_finding {
    char name[64]; /* of the transport */
    dlc_comm_scope scope;
    double slowdown; /* how many times as long as predicted it takes; 0: unusable */
    char text[256];  /* what was found */
    int everywhere;  /* not only in this scope */
} dlc_transport_finding;

/* Start with {0}; release with dlc_transport_choice_free. */
typedef struct dlc_transport_choice {
    dlc_transport_level level[DLC_DOMAIN_LEVELS]; /* the innermost first */
    int32_t levels;                               /* 0: nothing was chosen */
    double bytes;                   /* that an iteration reduces, as assumed */
    double seconds;                 /* that this takes, as predicted */
    char *next;                     /* owned; the next best choice: "A+B"; NULL: none */
    double next_seconds;            /* of the next best */
    dlc_transport_verdict *verdict; /* owned; one per scope and transport found, whether
                                       or not it can be used */
    size_t verdicts;
} dlc_transport_choice;

/* Gives the settings of one transport, for its prediction. The callee owns them. */
typedef dlc_status dlc_settings_of(void *context, const dlc_feature *feature,
                                   const dlc_settings **settings);

/* The seconds that it takes to reduce the buckets of an iteration, `bytes` together. */
typedef double dlc_reduction_cost(const dlc_transport_prediction *prediction,
                                  double bytes);

typedef struct dlc_choose_args {
    const dlc_registry *registry;
    const char *wanted; /* "auto", "A", "A+B", "A+B+C" */
    const char *device; /* the name of the ranks' device */
    /* As for dlc_transport_ops.predict, but for settings and links. */
    const dlc_transport_args *group;
    /* The graph of the ranks' machines and their domains in it; both NULL: only the
     * machines of the ranks are known. */
    const dlc_topo *topo;
    const dlc_domains *domains;
    const dlc_transport_finding *finding; /* of transports that were tried */
    size_t findings;
    double bytes;                 /* that an iteration reduces; 0: not known */
    int any_order;                /* as in dlc_comm_args */
    dlc_reduction_cost *cost;     /* NULL: one reduction of all bytes */
    dlc_settings_of *settings_of; /* NULL: no settings */
    void *context;                /* of settings_of */
} dlc_choose_args;

/* Chooses the transports of a group.
 *
 * With `wanted` "auto", every transport predicts for all ranks at once, and for every
 * level of domains. The levels and transports that are predicted to reduce the job's
 * gradients fastest win; the first of several that are equal, and the fewest levels.
 * Otherwise `wanted` names one transport for all ranks, or several: "A+B" is A inside
 * the nodes and B between them (A alone for one node, B alone if every node has one
 * rank), "A+B+C" is C between racks.
 *
 * DLC_ERR_PLUGIN: there is no such transport, or it cannot be used.
 * DLC_ERR_CONFIG: it (or, with "auto", every transport) cannot connect these ranks; the
 * detail says why. `choice` holds the verdicts in that case, too. */
dlc_status dlc_transport_choose(const dlc_choose_args *args,
                                dlc_transport_choice *choice);

/* Appends the verdicts as lines to read, the choice first:
 *     transport: shm: shared memory, 2 ranks on one node
 *         predicted 1.2 ms to reduce 1.7 MB; next best: tcp, 9.1 ms
 *         not tcp: slower, 9.1 ms against 1.2 ms: TCP over loopback
 *         not rdma: rank 1 has no adapter                                       */
void dlc_transport_choice_text(const dlc_transport_choice *choice, dlc_text *text);

/* Appends "shm" or "shm+tcp". */
void dlc_transport_choice_name(const dlc_transport_choice *choice, dlc_text *text);

/* "", " inside the nodes", " between the nodes", ... */
void dlc_comm_scope_text(dlc_comm_scope scope, char text[48]);

void dlc_transport_choice_free(dlc_transport_choice *choice);

/* ---- Scopes (scopes.c), for choose.c --------------------------------------------- */

/* What the transports of a scope are asked with: its groups of ranks, and the slowest
 * link in each. */

/* The ranks of a choice, and how fast each reaches the network. */
typedef struct dlc_scopes {
    const dlc_choose_args *args;
    int32_t ranks;
    dlc_rank_info *rank_info; /* owned */
    double *network;          /* owned; bytes a second of each rank's adapter; of ranks
                                 that share one, together */
    double *latency;          /* owned; seconds of a message through it */
    int32_t *sharers;         /* owned; how many ranks share it */
    int32_t *rack_nodes;      /* owned; how many machines are in its rack */
    /* Per level: each rank's place in its domain (owned), the number of domains, and
     * the ranks in a domain. */
    int32_t *number[DLC_DOMAIN_LEVELS];
    int32_t domains[DLC_DOMAIN_LEVELS], size[DLC_DOMAIN_LEVELS];
    unsigned uneven;      /* a bit per level on which domains differ in size */
    int32_t *members;     /* owned; scratch: the ranks of a group */
    dlc_rank_info *group; /* owned; scratch: their infos */
} dlc_scopes;

/* `args` must stay valid until close. */
dlc_status dlc_scopes_open(const dlc_choose_args *args, dlc_scopes *scopes);
void dlc_scopes_close(dlc_scopes *scopes); /* {0} is allowed */

/* The levels that a communicator may have below DLC_DOMAIN_JOB, ascending: those that
 * group the ranks, each otherwise than the one before, and that keep the order of
 * reductions. Returns how many. */
int32_t dlc_scopes_levels(const dlc_scopes *scopes,
                          dlc_domain_level level[DLC_DOMAIN_LEVELS]);

/* Whether a level joins domains of the one below (DLC_SCOPE_RANKS: ranks), but not all
 * of them. */
int dlc_scopes_has_level(const dlc_scopes *scopes, int32_t below,
                         dlc_domain_level level);

/* The part of a buffer that each rank of a scope's groups reduces. */
double dlc_scopes_fraction(const dlc_scopes *scopes, dlc_comm_scope scope);

/* The arguments of predict for the next group of a scope that has several ranks. *at: a
 * rank from which to go on, 0 at first. Returns 0 if there is none. They are valid
 * until the next call. */
int dlc_scopes_next(dlc_scopes *scopes, dlc_comm_scope scope, int32_t *at,
                    dlc_transport_args *group);

#endif
