/* The report of `dlcore topo`: the graph, and for every pair of ends the route between
 * them, the transports' verdicts, and what was measured. */
#ifndef DLC_TOOLS_TOPO_REPORT_H
#define DLC_TOOLS_TOPO_REPORT_H

#include "base/json.h"
#include "bench_group.h"
#include "comm/choose.h"
#include "topology/graph.h"
#include "topology/route.h"

typedef struct topo_measured {
    int done;
    double us;         /* one-way latency of a message of 8 bytes */
    double gbs;        /* one-way bandwidth of a large message; 10^9 bytes per second */
    int intact;        /* every byte arrived as it was sent */
    char uses[128];    /* the transport's description of itself */
    char problem[256]; /* "": none */
} topo_measured;

typedef struct topo_pair {
    int32_t a, b; /* indices of the ends */
    dlc_topo_route route;
    dlc_transport_choice choice; /* owned */
    char *problem; /* owned; why no transport connects them; NULL: one does */
    topo_measured measured;
} topo_pair;

/* Start with {0}; release with topo_report_free. */
typedef struct topo_report {
    const char *source; /* a file, or NULL: this machine */
    dlc_topo topo;      /* owned */
    int32_t *end; /* owned; nodes of the graph: the ranks, or the GPUs of a file */
    dlc_rank_info *rank_info; /* owned; one per end */
    size_t ends;
    dlc_domains domains;         /* owned; of the ends */
    dlc_transport_choice choice; /* owned; for all ends: what a job would use */
    char *problem;   /* owned; why no transport connects all; NULL: one does */
    topo_pair *pair; /* owned; any two ends */
    size_t pairs;
    int measured; /* whether measuring was requested */
} topo_report;

enum { TOPO_MAX_ENDS = 256 };

/* Takes the graph's ranks as ends, or its GPUs if it has no ranks, at most `most` of
 * them (0: all), and makes their rank info. */
dlc_status topo_report_ends(topo_report *report, size_t most, const char *accelerator);
/* Finds the domains of the ends, chooses levels and transports for all of them, judges
 * the routes, and asks the transports for every pair. `ops` is the device table
 * that the transports get. */
dlc_status topo_report_judge(topo_report *report, const dlc_bench_plan *plan,
                             const dlc_device_ops *ops);
/* The settings of a transport: those of the command line if it was requested by name,
 * else its defaults. Free *made with dlc_settings_free after use; what it contains from
 * an earlier call is freed. */
dlc_status topo_settings_of(const dlc_bench_plan *plan, const dlc_feature *feature,
                            dlc_settings **made, const dlc_settings **settings);
void topo_report_free(topo_report *report);

/* The nodes of the matrix: the rows (ends and all other GPUs), and the additional
 * columns (adapters). Both return how many; `nodes` has room for TOPO_MAX_ENDS. */
size_t topo_report_rows(const topo_report *report, int32_t *nodes);
size_t topo_report_adapters(const topo_report *report, int32_t *nodes);

/* The formats of the report. */
void topo_ascii(const topo_report *report, dlc_text *text);
void topo_json(const topo_report *report, dlc_json *json);
dlc_status topo_svg(const topo_report *report, dlc_text *svg);

#endif
