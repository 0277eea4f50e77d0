/* What `dlcore topo` finds out and tells: the graph, and for every pair of ends the way
 * between them, the transports asked, and what was measured. */
#ifndef DLC_TOOLS_TOPO_REPORT_H
#define DLC_TOOLS_TOPO_REPORT_H

#include "base/json.h"
#include "bench_group.h"
#include "comm/choose.h"
#include "topo/graph.h"
#include "topo/route.h"

typedef struct topo_measured {
    int done;
    double us;         /* one way, of a message of 8 bytes */
    double gbs;        /* one way, of a large one; 10^9 bytes a second */
    int intact;        /* every byte arrived as it was sent */
    char uses[128];    /* what the transport says of itself */
    char problem[256]; /* "": there was none */
} topo_measured;

typedef struct topo_pair {
    int32_t a, b; /* numbers among the ends */
    dlc_topo_route route;
    dlc_choice choice; /* own */
    char *problem;     /* own; why no transport joins them; NULL: one does */
    topo_measured measured;
} topo_pair;

/* Start with {0}; release with topo_report_free. */
typedef struct topo_report {
    const char *source; /* a file, or NULL: this machine */
    dlc_topo topo;      /* own */
    int32_t *end;       /* own; nodes of the graph: the ranks, or the GPUs of a file */
    dlc_place *place;   /* own; one an end */
    size_t ends;
    topo_pair *pair; /* own; every two ends */
    size_t pairs;
    int measured; /* was it asked for */
} topo_report;

enum { TOPO_ENDS_MOST = 256 };

/* Takes the graph's ranks as ends, or else its GPUs, at most `most` of them (0: all),
 * and makes up places for them. */
dlc_status topo_report_ends(topo_report *report, size_t most, const char *accelerator);
/* Asks the transports about every pair. `ops`: the device table that they are shown. */
dlc_status topo_report_judge(topo_report *report, const dlc_bench_plan *plan,
                             const dlc_device_ops *ops);
/* The settings of a transport: those given on the command line if it is the one that
 * was asked for by name, else its defaults. *made: what to free with dlc_settings_free
 * after use; what it holds from a call before is freed. */
dlc_status topo_settings_of(const dlc_bench_plan *plan, const dlc_feature *feature,
                            dlc_settings **made, const dlc_settings **settings);
void topo_report_free(topo_report *report);

/* Nodes that the matrix has rows for (ends, and GPUs that are none), and columns for
 * besides (adapters). Returns how many; `nodes` has room for all of the graph's. */
size_t topo_report_rows(const topo_report *report, int32_t *nodes);
size_t topo_report_adapters(const topo_report *report, int32_t *nodes);

void topo_ascii(const topo_report *report, dlc_text *text);
void topo_json(const topo_report *report, dlc_json *json);
dlc_status topo_svg(const topo_report *report, dlc_text *svg);

#endif
