/* A process that others have started, as one rank of a job: see outside.h. With rank 0
 * in it, it is the hub, else an agent. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "job/address.h"
#include "job/agent.h"
#include "job/connect.h"
#include "job/outside.h"
#include "job/pmix.h"

#define RENDEZVOUS_S 60

typedef struct enlisted {
    dlc_launch *launch;
    const dlc_outside *outside;
    double patience;
    dlc_secret secret;
    int rank, ranks;
    int hub_fd;                      /* an agent's connection; -1: none */
    char hub_text[DLC_ADDRESS_TEXT]; /* where the hub is */
    dlc_hub hub;                     /* rank 0's; not open: peer is NULL */
    dlc_gate gate;
    dlc_child child;
} enlisted;

static void let_go(void *context) {
    enlisted *mine = context;
    dlc_gate_close(&mine->gate);
    dlc_hub_close(&mine->hub);
    if (mine->hub_fd >= 0)
        close(mine->hub_fd);
}

static dlc_spawn spawn_args(enlisted *mine) {
    return (dlc_spawn){.rank = mine->rank,
                       .ranks = mine->ranks,
                       .local_rank = mine->outside->local_rank,
                       .doing = mine->launch->doing,
                       .far = 1,
                       .forked = let_go,
                       .context = mine};
}

/* ---- Rank 0: the hub ----------------------------------------------------------- */

static dlc_status need_secret(const enlisted *mine, const dlc_address *address) {
    char text[DLC_ADDRESS_TEXT];
    if (mine->secret.length || dlc_address_is_loopback(address))
        return DLC_OK;
    dlc_address_text(address, text);
    return dlc_fail(DLC_ERR_CONFIG,
                    "rank 0 would listen at %s: away from loopback the ranks need a "
                    "secret; set DLCORE_SECRET or DLCORE_SECRET_FILE alike for all of "
                    "them",
                    text);
}

static dlc_status open_door(enlisted *mine, const char *host, uint16_t port) {
    dlc_address list[DLC_ADDRESSES_MAX], bound;
    int count, listener;
    DLC_TRY(dlc_address_find(host, port, list, &count));
    DLC_TRY(dlc_address_listen(host, list, count, &listener, &bound));
    dlc_gate_open(&mine->gate, listener, &mine->secret);
    dlc_address_text(&bound, mine->hub_text);
    return need_secret(mine, &bound);
}

/* A connection a rank, and those at the door. */
static void raise_limit(int ranks) {
    struct rlimit limit;
    rlim_t needed = (rlim_t)ranks + DLC_GATE_PENDING + 128;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
        return;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static dlc_status open_hub(enlisted *mine) {
    DLC_TRY(dlc_hub_open(mine->launch, mine->ranks, &mine->hub));
    mine->hub.rendezvous = mine->patience;
    mine->hub.remotes = mine->ranks > 1;
    for (int r = 1; r < mine->ranks; r++)
        mine->hub.peer[r].remote = mine->hub.peer[r].running = 1;
    mine->hub.where = mine->hub_text;
    raise_limit(mine->ranks);
    if (mine->hub.remotes)
        dlc_hub_open_gate(&mine->hub, &mine->gate);
    return DLC_OK;
}

static dlc_status run_hub(enlisted *mine, int *exit_code) {
    dlc_status status = dlc_hub_listen(mine->launch, &mine->hub);
    if (status == DLC_OK)
        status = dlc_hub_run(&mine->hub, exit_code);
    if (status != DLC_OK)
        dlc_hub_kill(&mine->hub);
    return status;
}

/* ---- All others: an agent ------------------------------------------------------ */

static dlc_status find_hub(enlisted *mine, const dlc_address *list, int count) {
    dlc_connect_args args = {.list = list,
                             .count = count,
                             .secret = &mine->secret,
                             .rank = mine->rank,
                             .ranks = mine->ranks,
                             .digest = mine->launch->options->digest,
                             .patience = mine->patience};
    return dlc_connect(&args, &mine->hub_fd, mine->hub_text);
}

/* Takes child and connection over. */
static dlc_status run_agent(enlisted *mine, int *exit_code) {
    dlc_agent_args args = {.rank = mine->rank,
                           .child = mine->child.pid,
                           .control = mine->child.control,
                           .hub = mine->hub_fd,
                           .hub_address = mine->hub_text,
                           .doing = mine->launch->doing,
                           .deadline = mine->launch->options->deadline,
                           .signals = &mine->launch->signals};
    mine->child = (dlc_child){.control = -1, .output = -1};
    mine->hub_fd = -1;
    return dlc_agent_run(&args, exit_code);
}

static dlc_status spawn_agent(enlisted *mine, int *exit_code) {
    dlc_spawn spawn = spawn_args(mine);
    DLC_TRY(dlc_spawn_rank(mine->launch, &spawn, &mine->child));
    return run_agent(mine, exit_code);
}

/* ---- By variables -------------------------------------------------------------- */

static dlc_status run_by_variables(enlisted *mine, int *exit_code) {
    const dlc_outside *outside = mine->outside;
    dlc_address list[DLC_ADDRESSES_MAX];
    const char *own = getenv("DLCORE_ADDR");
    dlc_status status;
    int count;
    mine->rank = outside->rank;
    mine->ranks = outside->ranks;
    DLC_TRY(dlc_secret_read(&mine->secret));
    if (mine->rank > 0) {
        DLC_TRY(dlc_address_find(outside->host, outside->port, list, &count));
        DLC_TRY(find_hub(mine, list, count));
        dlc_launch_take_signals(mine->launch);
        status = spawn_agent(mine, exit_code);
    } else {
        if (mine->ranks > 1)
            DLC_TRY(
                open_door(mine, own && own[0] ? own : outside->host, outside->port));
        DLC_TRY(open_hub(mine));
        dlc_launch_take_signals(mine->launch);
        dlc_spawn spawn = spawn_args(mine);
        status = dlc_hub_start_rank(mine->launch, &mine->hub, &spawn);
        if (status == DLC_OK)
            status = run_hub(mine, exit_code);
        else
            dlc_hub_kill(&mine->hub);
    }
    dlc_launch_give_signals_back(mine->launch);
    return status;
}

/* ---- By PMIx ------------------------------------------------------------------- */

static dlc_status find_by_pmix(void *context, int control, int *rank, int *ranks) {
    const enlisted *mine = context;
    return dlc_pmix_join(control, mine->outside->ranks, mine->launch->options->ranks,
                         rank, ranks);
}

static void leave_pmix(void *context) {
    (void)context;
    dlc_pmix_leave();
}

/* A frame of this kind from the rank, its payload (at most `room` bytes) ended with a
 * NUL. DLC_ERR_CANCELLED: the rank has ended, and said why. */
static dlc_status read_from_rank(enlisted *mine, dlc_frame_kind kind, dlc_frame *frame,
                                 char *payload, size_t room) {
    struct pollfd polled = {.fd = mine->child.control, .events = POLLIN};
    int rc;
    do
        rc = poll(&polled, 1, (int)(mine->patience * 1000));
    while (rc < 0 && errno == EINTR);
    if (rc <= 0)
        return dlc_fail(DLC_ERR_PEER,
                        "PMIx has not brought the ranks together within %g s ([parallel] "
                        "rendezvous)",
                        mine->patience);
    if (dlc_frame_read(polled.fd, frame, sizeof *frame) != DLC_OK)
        return DLC_ERR_CANCELLED;
    if (frame->kind != (uint32_t)kind || frame->bytes >= room)
        return dlc_fail(DLC_ERR_INTERNAL, "the rank sent its parent a strange message");
    payload[frame->bytes] = '\0';
    return dlc_frame_read(polled.fd, payload, frame->bytes);
}

/* "127.0.0.1 4711" a line, after the secret's. */
static void write_where(const enlisted *mine, const dlc_address *list, int count,
                        dlc_text *text) {
    dlc_text_add(text, "%.*s\n", (int)mine->secret.length,
                 (const char *)mine->secret.bytes);
    for (int i = 0; i < count; i++) {
        char host[DLC_ADDRESS_TEXT];
        dlc_address_text(&list[i], host);
        dlc_text_add(text, "%s\n", host);
    }
}

static dlc_status read_where(enlisted *mine, char *text,
                             dlc_address list[DLC_ADDRESSES_MAX], int *count) {
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    *count = 0;
    if (line && strlen(line) <= DLC_SECRET_MOST) {
        mine->secret.length = strlen(line);
        memcpy(mine->secret.bytes, line, mine->secret.length);
    }
    while ((line = strtok_r(NULL, "\n", &rest)) && *count < DLC_ADDRESSES_MAX) {
        char *colon = strrchr(line, ':'), *host = line;
        dlc_address found[DLC_ADDRESSES_MAX] = {{.length = 0}};
        int ways;
        if (!colon)
            continue;
        *colon = '\0';
        if (*host == '[') {
            host++;
            colon[-1] = '\0';
        }
        long port = strtol(colon + 1, NULL, 10);
        if (port > 0 && port <= UINT16_MAX &&
            dlc_address_find(host, (uint16_t)port, found, &ways) == DLC_OK)
            list[(*count)++] = found[0];
    }
    return *count && mine->secret.length
               ? DLC_OK
               : dlc_fail(DLC_ERR_INTERNAL,
                          "rank 0 gave no address of its own to PMIx");
}

/* Where the others may find this hub: on loopback where all are on this machine. */
static dlc_status open_doors(enlisted *mine, uint32_t local_ranks,
                             dlc_address list[DLC_ADDRESSES_MAX], int *count) {
    const char *own = getenv("DLCORE_ADDR");
    dlc_address bound;
    int listener;
    uint16_t port;
    if (!(own && own[0]) && local_ranks < (uint32_t)mine->ranks) {
        DLC_TRY(dlc_address_listen_all(&listener, &port));
        dlc_gate_open(&mine->gate, listener, &mine->secret);
        snprintf(mine->hub_text, sizeof mine->hub_text, "port %u", (unsigned)port);
        return dlc_address_own(port, list, count);
    }
    own = own && own[0] ? own : "127.0.0.1";
    DLC_TRY(dlc_address_find(own, mine->outside->port, list, count));
    DLC_TRY(dlc_address_listen(own, list, *count, &listener, &bound));
    dlc_gate_open(&mine->gate, listener, &mine->secret);
    dlc_address_text(&bound, mine->hub_text);
    list[0] = bound;
    *count = 1;
    return DLC_OK;
}

static dlc_status be_found(enlisted *mine, uint32_t local_ranks) {
    dlc_address list[DLC_ADDRESSES_MAX];
    dlc_text text = {0};
    int count;
    DLC_TRY(dlc_secret_make(&mine->secret));
    DLC_TRY(open_doors(mine, local_ranks, list, &count));
    write_where(mine, list, count, &text);
    dlc_frame frame = {.kind = DLC_FRAME_WHERE, .bytes = text.length};
    dlc_status status = dlc_text_status(&text);
    if (status == DLC_OK)
        status = dlc_frame_send(mine->child.control, &frame, text.bytes);
    dlc_text_free(&text);
    if (status == DLC_OK)
        status = open_hub(mine);
    if (status == DLC_OK)
        dlc_hub_adopt(&mine->hub, 0, &mine->child, mine->launch->doing);
    return status;
}

static dlc_status find_through_rank(enlisted *mine) {
    char where[DLC_WHERE_MOST];
    dlc_frame frame = {.kind = 0};
    dlc_address list[DLC_ADDRESSES_MAX];
    int count;
    DLC_TRY(read_from_rank(mine, DLC_FRAME_WHERE, &frame, where, sizeof where));
    DLC_TRY(read_where(mine, where, list, &count));
    return find_hub(mine, list, count);
}

/* Until hub and rank can find each other. Signals end this process meanwhile, and its
 * rank with it. */
static dlc_status meet_through_rank(enlisted *mine) {
    char payload[sizeof(dlc_pmix_who) + 1] = {0};
    dlc_pmix_who who;
    dlc_frame frame = {.kind = 0};
    sigprocmask(SIG_SETMASK, &mine->launch->mask_before, NULL);
    dlc_status status = read_from_rank(mine, DLC_FRAME_WHO, &frame, payload,
                                       sizeof payload);
    if (status == DLC_OK) {
        memcpy(&who, payload, sizeof who);
        mine->rank = frame.number;
        mine->ranks = (int)frame.size;
        status = mine->rank ? find_through_rank(mine) : be_found(mine, who.local_ranks);
    }
    sigprocmask(SIG_BLOCK, &mine->launch->signals, NULL);
    return status;
}

/* A rank that ended before it could join has said why. */
static dlc_status end_early(enlisted *mine, dlc_status status, int *exit_code) {
    int how = 0;
    if (mine->child.pid <= 0)
        return status;
    if (status != DLC_ERR_CANCELLED)
        kill(mine->child.pid, SIGKILL);
    while (waitpid(mine->child.pid, &how, 0) < 0 && errno == EINTR)
        continue;
    if (status != DLC_ERR_CANCELLED)
        return status;
    if (WIFSIGNALED(how))
        return dlc_fail(DLC_ERR_PEER, "rank %d was killed by signal %d while it joined",
                        mine->outside->rank, WTERMSIG(how));
    *exit_code = WEXITSTATUS(how) ? WEXITSTATUS(how) : 1;
    return DLC_OK;
}

static dlc_status run_by_pmix(enlisted *mine, int *exit_code) {
    mine->rank = mine->outside->rank;
    dlc_launch_take_signals(mine->launch);
    dlc_spawn spawn = spawn_args(mine);
    spawn.find = find_by_pmix;
    spawn.left = leave_pmix;
    dlc_status status = dlc_spawn_rank(mine->launch, &spawn, &mine->child);
    if (status == DLC_OK)
        status = meet_through_rank(mine);
    if (status != DLC_OK)
        status = end_early(mine, status, exit_code);
    else if (mine->rank == 0)
        status = run_hub(mine, exit_code);
    else
        status = run_agent(mine, exit_code);
    dlc_launch_give_signals_back(mine->launch);
    return status;
}

dlc_status dlc_outside_run(dlc_launch *launch, const dlc_outside *outside,
                           int *exit_code) {
    enlisted *mine = dlc_alloc(1, sizeof *mine);
    if (!mine)
        return DLC_ERR_NOMEM;
    mine->launch = launch;
    mine->outside = outside;
    mine->patience = launch->options->rendezvous > 0 ? launch->options->rendezvous
                                                     : RENDEZVOUS_S;
    mine->hub_fd = mine->hub.signals = -1;
    mine->child = (dlc_child){.control = -1, .output = -1};
    dlc_gate_open(&mine->gate, -1, &mine->secret);
    dlc_status status = outside->kind == DLC_OUTSIDE_PMIX
                            ? run_by_pmix(mine, exit_code)
                            : run_by_variables(mine, exit_code);
    let_go(mine);
    if (mine->child.control >= 0)
        close(mine->child.control);
    dlc_free(mine);
    return status;
}
