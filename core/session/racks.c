/* Reads [transport] racks, and the place in the network that Slurm's topology plugin
 * gives each rank. */
#include "session/racks.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/nodes.h"

static const char *const SPACE = " ,\t";

/* ---- Numbers of machines ----------------------------------------------------- */

/* Whether the text has digits and separators only. */
static int are_counts(const char *racks) {
    return strspn(racks, "0123456789 ,\t") == strlen(racks);
}

/* Whether each rack has a machine. */
static int are_positive(const char *racks) {
    for (const char *at = racks + strspn(racks, SPACE); *at;) {
        char *rest = NULL;
        if (strtol(at, &rest, 10) < 1)
            return 0;
        at = rest + strspn(rest, SPACE);
    }
    return 1;
}

/* The rack of a machine, by the numbers of machines before it; -1: beyond the last. */
static int32_t rack_of_node(const char *racks, int32_t node) {
    int64_t end = 0;
    int32_t rack = 0;
    for (const char *at = racks + strspn(racks, SPACE); *at; rack++) {
        char *rest = NULL;
        end += strtol(at, &rest, 10);
        if (node < end)
            return rack;
        at = rest + strspn(rest, SPACE);
    }
    return -1;
}

static dlc_status by_counts(const dlc_job *job, const char *racks, int32_t *rack) {
    int32_t nodes = dlc_nodes_count(dlc_job_rank_info(job, 0), dlc_job_ranks(job));
    if (!are_positive(racks) || rack_of_node(racks, nodes - 1) < 0 ||
        rack_of_node(racks, nodes) >= 0)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "[transport] racks = %s: the numbers of machines must be 1 or more, and add "
            "up to the %d of this job",
            racks, (int)nodes);
    for (int r = 0; r < dlc_job_ranks(job); r++)
        rack[r] = rack_of_node(racks, dlc_job_rank_info(job, r)->node);
    return DLC_OK;
}

/* ---- Hosts ------------------------------------------------------------------- */

/* Whether one of the patterns before `end` matches. */
static int is_listed(const char *at, const char *end, const char *host) {
    char pattern[128];
    for (at += strspn(at, SPACE); at < end; at += strspn(at, SPACE)) {
        size_t length = strcspn(at, " ,\t/");
        (void)snprintf(pattern, sizeof pattern, "%.*s", (int)length, at);
        if (length > 0 && length < sizeof pattern && fnmatch(pattern, host, 0) == 0)
            return 1;
        at += length;
    }
    return 0;
}

static int32_t rack_of_host(const char *racks, const char *host) {
    int32_t rack = 0;
    for (const char *at = racks; at; rack++) {
        const char *end = strchr(at, '/');
        if (is_listed(at, end ? end : at + strlen(at), host))
            return rack;
        at = end ? end + 1 : NULL;
    }
    return -1;
}

static dlc_status by_hosts(const dlc_job *job, const char *racks, int32_t *rack) {
    for (int r = 0; r < dlc_job_ranks(job); r++) {
        const char *host = dlc_job_rank_info(job, r)->host;
        rack[r] = rack_of_host(racks, host);
        if (rack[r] < 0)
            return dlc_fail(DLC_ERR_CONFIG,
                            "[transport] racks = %s: host %s of rank %d is in none of "
                            "them",
                            racks, host, r);
    }
    return DLC_OK;
}

/* ---- Slurm ------------------------------------------------------------------- */

enum { ADDRESS = 256 };

/* "spine.leaf1.node3" without the node. */
static void read_switches(char address[ADDRESS]) {
    const char *given = getenv("SLURM_TOPOLOGY_ADDR");
    (void)snprintf(address, ADDRESS, "%s", given ? given : "");
    char *dot = strrchr(address, '.');
    *(dot ? dot : address) = '\0';
}

static dlc_status by_slurm(dlc_job *job, int32_t *rack, int *known) {
    int ranks = dlc_job_ranks(job);
    char mine[ADDRESS];
    char(*all)[ADDRESS] = dlc_alloc((size_t)ranks, ADDRESS);
    if (!all)
        return DLC_ERR_NOMEM;
    read_switches(mine);
    dlc_status status = dlc_job_all_gather(job, mine, ADDRESS, all);
    *known = 1;
    for (int r = 0; status == DLC_OK && r < ranks; r++) {
        all[r][ADDRESS - 1] = '\0';
        *known &= all[r][0] != '\0';
        rack[r] = 0;
        while (strcmp(all[rack[r]], all[r]) != 0)
            rack[r]++;
    }
    dlc_free(all);
    return status;
}

/* All ranks of a machine are in one rack, whatever was said of each. */
static void agree_on_machines(const dlc_job *job, int32_t *rack) {
    for (int r = 0; r < dlc_job_ranks(job); r++) {
        int first = 0;
        while (dlc_job_rank_info(job, first)->node != dlc_job_rank_info(job, r)->node)
            first++;
        rack[r] = rack[first];
    }
}

dlc_status dlc_racks_find(dlc_job *job, const char *racks, int32_t *rack, int *known) {
    *known = 1;
    if (racks[0] && are_counts(racks))
        DLC_TRY(by_counts(job, racks, rack));
    else if (racks[0])
        DLC_TRY(by_hosts(job, racks, rack));
    else
        DLC_TRY(by_slurm(job, rack, known));
    if (*known)
        agree_on_machines(job, rack);
    return DLC_OK;
}
