/* Exchanges messages between all pairs of machines, and gathers how long they took. */
#include "comm/machine_links.h"

#include <math.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/tags.h"
#include "comm/team.h"
#include "plugin/device_objects.h"

/* The first message of a pair may have to connect, and lets both begin at about the
 * same time. Of the others the fastest counts: others wait for a core. */
enum { FIRST = 64, BYTES = 256 << 10, TIMES = 4 };
#define PATIENCE_NS UINT64_C(60000000000)

typedef struct measuring {
    const dlc_comm_args *how;
    dlc_comm *comm;
    dlc_machine_links *links;
    dlc_team *team;   /* between the machines */
    int32_t *members; /* owned; the ranks of it */
    int32_t *leader;  /* owned; the position in it of each machine's first rank */
    double *seconds;  /* owned; with each machine; 0: not measured here */
    double *all;      /* owned; `seconds` of all ranks */
} measuring;

/* ---- Who takes part -------------------------------------------------------------- */

/* Whether this rank is the one of its machine: in the team of rank 0. */
static int leads_machine(measuring *m) {
    const dlc_rank_info *info = m->how->rank_info;
    m->team = dlc_comm_team(m->comm, m->how->levels - 1, m->members);
    for (int32_t i = 0; i < m->links->machines; i++)
        m->leader[i] = -1;
    if (!m->team)
        return 0;
    int has_first = 0;
    for (int32_t i = m->team->args.ranks; i-- > 0;) {
        m->leader[info[m->members[i]].node] = i;
        has_first |= m->members[i] == 0;
    }
    return has_first && m->leader[info[m->how->rank].node] == m->team->args.rank;
}

/* The partner of a machine in a round of a tournament of all pairs; may be the machine
 * itself, or `machines`, if their number is odd: then it has none. */
static int32_t partner_of(int32_t machine, int32_t machines, int32_t round) {
    int32_t even = machines + machines % 2, turning = even - 1;
    if (machine == turning)
        return round * (even / 2) % turning;
    int32_t partner = (round + turning - machine) % turning;
    return partner == machine ? turning : partner;
}

/* ---- Messages -------------------------------------------------------------------- */

static dlc_status exchange_messages(const measuring *m, int32_t with, size_t bytes) {
    const dlc_transport_ops *ops = m->team->ops;
    dlc_endpoint *endpoint = m->team->endpoint;
    char *sent = m->links->memory.base, *received = sent + BYTES;
    dlc_tag tag = dlc_tag_of(DLC_TAG_MACHINE_LINKS, 0);
    dlc_request *request[2] = {NULL, NULL};
    DLC_TRY(ops->recv(endpoint, with, tag, received, bytes, &request[0]));
    DLC_TRY(ops->send(endpoint, with, tag, sent, bytes, &request[1]));
    DLC_TRY(ops->wait(endpoint, request[0]));
    return ops->wait(endpoint, request[1]);
}

static dlc_status time_pair(const measuring *m, int32_t machine) {
    int32_t with = m->leader[machine];
    double *best = &m->seconds[machine];
    if (with < 0)
        return DLC_OK;
    DLC_TRY(exchange_messages(m, with, FIRST));
    for (int i = 0; i < TIMES; i++) {
        uint64_t since = dlc_now_ns();
        DLC_TRY(exchange_messages(m, with, BYTES));
        double seconds = fmax(dlc_since(since), 1e-9);
        *best = i > 0 ? fmin(*best, seconds) : seconds;
    }
    return DLC_OK;
}

static dlc_status time_all(const measuring *m) {
    int32_t machines = m->links->machines, own = m->how->rank_info[m->how->rank].node;
    for (int32_t round = 0; round < machines - 1 + machines % 2; round++) {
        int32_t partner = partner_of(own, machines, round);
        if (partner < machines)
            DLC_TRY(time_pair(m, partner));
    }
    return DLC_OK;
}

/* ---- Gathering ------------------------------------------------------------------- */

/* A pair takes as long as the longer of its two. */
static dlc_status gather_times(const measuring *m) {
    size_t machines = (size_t)m->links->machines;
    DLC_TRY(dlc_comm_oob_all_gather(m->comm, m->seconds, machines * sizeof(double),
                                    m->all));
    double *bandwidth = m->links->bandwidth;
    for (size_t r = 0; r < (size_t)m->how->ranks; r++)
        for (size_t b = 0; b < machines; b++) {
            size_t a = (size_t)m->how->rank_info[r].node;
            double seconds = m->all[r * machines + b];
            if (!(seconds > 0))
                continue;
            double its = BYTES / seconds, *there = &bandwidth[a * machines + b];
            double *back = &bandwidth[b * machines + a];
            *there = *back = *there > 0 ? fmin(*there, its) : its;
        }
    return DLC_OK;
}

static int is_complete(const dlc_machine_links *links) {
    for (int32_t b = 1; b < links->machines; b++)
        for (int32_t a = 0; a < b; a++)
            if (!(links->bandwidth[a * links->machines + b] > 0))
                return 0;
    return 1;
}

static dlc_status measure_links(measuring *m, dlc_device *device) {
    dlc_machine_links *links = m->links;
    const dlc_device_ops *ops = m->how->device_ops;
    dlc_status status = DLC_OK;
    if (leads_machine(m)) {
        DLC_TRY(dlc_device_alloc(ops, device, 2 * (size_t)BYTES, 0, &links->memory));
        DLC_TRY(ops->fill(device, NULL, links->memory.base, 0, 2 * (size_t)BYTES));
        dlc_comm_set_deadline(m->comm, dlc_now_ns() + PATIENCE_NS);
        status = time_all(m);
        dlc_comm_set_deadline(m->comm, 0);
    }
    DLC_TRY(status);
    DLC_TRY(gather_times(m));
    if (!is_complete(links))
        links->machines = 0;
    return DLC_OK;
}

dlc_status dlc_machine_links_measure(const dlc_comm_args *how, dlc_device *device,
                                     dlc_comm *comm, dlc_machine_links *links) {
    size_t ranks = (size_t)how->ranks;
    size_t machines = (size_t)dlc_nodes_count(how->rank_info, how->ranks);
    if (machines < DLC_MACHINE_LINKS_LEAST || machines > DLC_MACHINE_LINKS_MOST)
        return DLC_OK;
    links->machines = (int32_t)machines;
    links->bandwidth = dlc_alloc(machines * machines, sizeof *links->bandwidth);
    measuring m = {.how = how,
                   .comm = comm,
                   .links = links,
                   .members = dlc_alloc(ranks, sizeof *m.members),
                   .leader = dlc_alloc(machines, sizeof *m.leader),
                   .seconds = dlc_alloc(machines, sizeof *m.seconds),
                   .all = dlc_alloc(ranks * machines, sizeof *m.all)};
    int complete = links->bandwidth && m.members && m.leader && m.seconds && m.all;
    dlc_status status = complete ? measure_links(&m, device) : DLC_ERR_NOMEM;
    dlc_free(m.all);
    dlc_free(m.seconds);
    dlc_free(m.leader);
    dlc_free(m.members);
    return status;
}

void dlc_machine_links_free(dlc_machine_links *links, const dlc_comm_args *how,
                            dlc_device *device) {
    dlc_device_free(how->device_ops, device, &links->memory);
    dlc_free(links->bandwidth);
    *links = (dlc_machine_links){.machines = 0};
}
