/* Runs the rank of an external launch: forks it, and is its hub if it is rank 0, else
 * its agent. Hub and agents find each other by variables or through PMIx. */
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
#include "job/external.h"
#include "job/launch.h"
#include "job/pmix_client.h"

#define RENDEZVOUS_S 60

typedef struct external_rank {
    dlc_launch *launch;
    const dlc_external *external;
    double timeout;
    dlc_secret secret;
    int rank, ranks;
    int hub_fd;                         /* an agent's connection; -1: none */
    char hub_address[DLC_ADDRESS_TEXT]; /* the hub's address, for messages */
    dlc_hub hub;                        /* rank 0's; not open: peer is NULL */
    dlc_acceptor acceptor;
    dlc_child child;
} external_rank;

static void close_inherited(void *context) {
    external_rank *self = context;
    dlc_acceptor_close(&self->acceptor);
    dlc_hub_close(&self->hub);
    if (self->hub_fd >= 0)
        close(self->hub_fd);
}

static dlc_spawn spawn_args(external_rank *self) {
    return (dlc_spawn){.rank = self->rank,
                       .ranks = self->ranks,
                       .local_rank = self->external->local_rank,
                       .activity = self->launch->activity,
                       .watch_parent = 1,
                       .in_child = close_inherited,
                       .context = self};
}

/* ---- Rank 0: the hub ----------------------------------------------------------- */

static dlc_status need_secret(const external_rank *self, const dlc_address *address) {
    char text[DLC_ADDRESS_TEXT];
    if (self->secret.length || dlc_address_is_loopback(address))
        return DLC_OK;
    dlc_address_text(address, text);
    return dlc_fail(
        DLC_ERR_CONFIG,
        "rank 0 would listen at %s: except on loopback, ranks need a secret; "
        "set DLCORE_SECRET or DLCORE_SECRET_FILE, the same for all of them",
        text);
}

static dlc_status listen_by_variables(external_rank *self, const char *host,
                                      uint16_t port) {
    dlc_address list[DLC_ADDRESSES_MAX], bound;
    int count, listener;
    DLC_TRY(dlc_address_resolve(host, port, list, &count));
    DLC_TRY(dlc_address_listen(host, list, count, &listener, &bound));
    dlc_acceptor_open(&self->acceptor, listener, &self->secret);
    dlc_address_text(&bound, self->hub_address);
    return need_secret(self, &bound);
}

/* Raises the limit of open files: a connection for each rank, and the pending ones. */
static void raise_limit(int ranks) {
    struct rlimit limit;
    rlim_t needed = (rlim_t)ranks + DLC_ACCEPTOR_PENDING + 128;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
        return;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static dlc_status open_hub(external_rank *self) {
    DLC_TRY(dlc_hub_open(self->launch, self->ranks, &self->hub));
    self->hub.rendezvous_timeout = self->timeout;
    self->hub.remotes = self->ranks > 1;
    for (int r = 1; r < self->ranks; r++)
        self->hub.peer[r].remote = self->hub.peer[r].running = 1;
    self->hub.listen_address = self->hub_address;
    raise_limit(self->ranks);
    if (self->hub.remotes)
        dlc_hub_open_acceptor(&self->hub, &self->acceptor);
    return DLC_OK;
}

static dlc_status run_hub(external_rank *self, int *exit_code) {
    dlc_status status = dlc_hub_listen_for_signals(self->launch, &self->hub);
    if (status == DLC_OK)
        status = dlc_hub_run(&self->hub, exit_code);
    if (status != DLC_OK)
        dlc_hub_kill(&self->hub);
    return status;
}

/* ---- Other ranks: the agent ---------------------------------------------------- */

static dlc_status find_hub(external_rank *self, const dlc_address *list, int count) {
    dlc_connect_args args = {.list = list,
                             .count = count,
                             .secret = &self->secret,
                             .rank = self->rank,
                             .ranks = self->ranks,
                             .digest = self->launch->options->digest,
                             .timeout = self->timeout};
    return dlc_connect(&args, &self->hub_fd, self->hub_address);
}

/* Takes over the child and the connection. */
static dlc_status run_agent(external_rank *self, int *exit_code) {
    dlc_agent_args args = {.rank = self->rank,
                           .child = self->child.pid,
                           .control = self->child.control,
                           .hub = self->hub_fd,
                           .hub_address = self->hub_address,
                           .activity = self->launch->activity,
                           .hang_timeout = self->launch->options->hang_timeout,
                           .signals = &self->launch->signals};
    self->child = (dlc_child){.control = -1, .output = -1};
    self->hub_fd = -1;
    return dlc_agent_run(&args, exit_code);
}

static dlc_status spawn_agent(external_rank *self, int *exit_code) {
    dlc_spawn spawn = spawn_args(self);
    DLC_TRY(dlc_spawn_rank(self->launch, &spawn, &self->child));
    return run_agent(self, exit_code);
}

/* ---- With variables ------------------------------------------------------------ */

static dlc_status run_by_variables(external_rank *self, int *exit_code) {
    const dlc_external *external = self->external;
    dlc_address list[DLC_ADDRESSES_MAX];
    const char *override = getenv("DLCORE_ADDR");
    dlc_status status;
    int count;
    self->rank = external->rank;
    self->ranks = external->ranks;
    DLC_TRY(dlc_secret_read(&self->secret));
    if (self->rank > 0) {
        DLC_TRY(dlc_address_resolve(external->host, external->port, list, &count));
        DLC_TRY(find_hub(self, list, count));
        dlc_launch_block_signals(self->launch);
        status = spawn_agent(self, exit_code);
    } else {
        if (self->ranks > 1)
            DLC_TRY(listen_by_variables(
                self, override && override[0] ? override : external->host,
                external->port));
        DLC_TRY(open_hub(self));
        dlc_launch_block_signals(self->launch);
        dlc_spawn spawn = spawn_args(self);
        status = dlc_hub_start_rank(self->launch, &self->hub, &spawn);
        if (status == DLC_OK)
            status = run_hub(self, exit_code);
        else
            dlc_hub_kill(&self->hub);
    }
    dlc_launch_restore_signals(self->launch);
    return status;
}

/* ---- With PMIx ----------------------------------------------------------------- */

static dlc_status identify_by_pmix(void *context, int control, int *rank, int *ranks) {
    const external_rank *self = context;
    return dlc_pmix_join(control, self->external->ranks, self->launch->options->ranks,
                         rank, ranks);
}

static void leave_pmix(void *context) {
    (void)context;
    dlc_pmix_leave();
}

/* Reads a frame of this kind from the rank, and its payload (at most `room` bytes) with
 * a NUL appended. DLC_ERR_CANCELLED: the rank has ended, and has reported why. */
static dlc_status read_from_rank(external_rank *self, dlc_frame_kind kind,
                                 dlc_frame *frame, char *payload, size_t room) {
    struct pollfd polled = {.fd = self->child.control, .events = POLLIN};
    int rc;
    do
        rc = poll(&polled, 1, (int)(self->timeout * 1000));
    while (rc < 0 && errno == EINTR);
    if (rc <= 0)
        return dlc_fail(
            DLC_ERR_PEER,
            "the ranks have not found each other through PMIx within %g s ([parallel] "
            "rendezvous_timeout)",
            self->timeout);
    if (dlc_frame_read(polled.fd, frame, sizeof *frame) != DLC_OK)
        return DLC_ERR_CANCELLED;
    if (frame->kind != (uint32_t)kind || frame->bytes >= room)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the rank sent its parent an unexpected message");
    payload[frame->bytes] = '\0';
    return dlc_frame_read(polled.fd, payload, frame->bytes);
}

/* Writes the secret, then the addresses ("127.0.0.1:4711"), one on each line. */
static void write_addresses(const external_rank *self, const dlc_address *list,
                            int count, dlc_text *text) {
    dlc_text_add(text, "%.*s\n", (int)self->secret.length,
                 (const char *)self->secret.bytes);
    for (int i = 0; i < count; i++) {
        char host[DLC_ADDRESS_TEXT];
        dlc_address_text(&list[i], host);
        dlc_text_add(text, "%s\n", host);
    }
}

static dlc_status read_addresses(external_rank *self, char *text,
                                 dlc_address list[DLC_ADDRESSES_MAX], int *count) {
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    *count = 0;
    if (line && strlen(line) <= DLC_SECRET_MAX) {
        self->secret.length = strlen(line);
        memcpy(self->secret.bytes, line, self->secret.length);
    }
    while ((line = strtok_r(NULL, "\n", &rest)) && *count < DLC_ADDRESSES_MAX) {
        char *colon = strrchr(line, ':'), *host = line;
        dlc_address resolved[DLC_ADDRESSES_MAX] = {{.length = 0}};
        int count_found;
        if (!colon)
            continue;
        *colon = '\0';
        if (*host == '[') {
            host++;
            colon[-1] = '\0';
        }
        long port = strtol(colon + 1, NULL, 10);
        if (port > 0 && port <= UINT16_MAX &&
            dlc_address_resolve(host, (uint16_t)port, resolved, &count_found) == DLC_OK)
            list[(*count)++] = resolved[0];
    }
    return *count && self->secret.length
               ? DLC_OK
               : dlc_fail(DLC_ERR_INTERNAL,
                          "rank 0 has published no address through PMIx");
}

/* Listens where the other ranks can reach this hub: on loopback if all of them are on
 * this machine. */
static dlc_status listen_for_pmix(external_rank *self, uint32_t local_ranks,
                                  dlc_address list[DLC_ADDRESSES_MAX], int *count) {
    const char *override = getenv("DLCORE_ADDR");
    dlc_address bound;
    int listener;
    uint16_t port;
    if (!(override && override[0]) && local_ranks < (uint32_t)self->ranks) {
        DLC_TRY(dlc_address_listen_all(&listener, &port));
        dlc_acceptor_open(&self->acceptor, listener, &self->secret);
        snprintf(self->hub_address, sizeof self->hub_address, "port %u",
                 (unsigned)port);
        return dlc_address_list_own(port, list, count);
    }
    override = override && override[0] ? override : "127.0.0.1";
    DLC_TRY(dlc_address_resolve(override, self->external->port, list, count));
    DLC_TRY(dlc_address_listen(override, list, *count, &listener, &bound));
    dlc_acceptor_open(&self->acceptor, listener, &self->secret);
    dlc_address_text(&bound, self->hub_address);
    list[0] = bound;
    *count = 1;
    return DLC_OK;
}

static dlc_status publish_hub(external_rank *self, uint32_t local_ranks) {
    dlc_address list[DLC_ADDRESSES_MAX];
    dlc_text text = {0};
    int count;
    DLC_TRY(dlc_secret_make(&self->secret));
    DLC_TRY(listen_for_pmix(self, local_ranks, list, &count));
    write_addresses(self, list, count, &text);
    dlc_frame frame = {.kind = DLC_FRAME_PMIX_ADDRESS, .bytes = text.length};
    dlc_status status = dlc_text_status(&text);
    if (status == DLC_OK)
        status = dlc_frame_send(self->child.control, &frame, text.bytes);
    dlc_text_free(&text);
    if (status == DLC_OK)
        status = open_hub(self);
    if (status == DLC_OK)
        dlc_hub_attach_child(&self->hub, 0, &self->child, self->launch->activity);
    return status;
}

static dlc_status find_hub_by_pmix(external_rank *self) {
    char text[DLC_PMIX_ADDRESS_MAX];
    dlc_frame frame = {.kind = 0};
    dlc_address list[DLC_ADDRESSES_MAX];
    int count;
    DLC_TRY(read_from_rank(self, DLC_FRAME_PMIX_ADDRESS, &frame, text, sizeof text));
    DLC_TRY(read_addresses(self, text, list, &count));
    return find_hub(self, list, count);
}

/* Connects hub and agents by what the rank learns from PMIx. Signals end this process
 * in the meantime, and its rank with it. */
static dlc_status rendezvous_by_pmix(external_rank *self) {
    char payload[sizeof(dlc_pmix_identity) + 1] = {0};
    dlc_pmix_identity identity;
    dlc_frame frame = {.kind = 0};
    sigprocmask(SIG_SETMASK, &self->launch->mask_before, NULL);
    dlc_status status = read_from_rank(self, DLC_FRAME_PMIX_IDENTITY, &frame, payload,
                                       sizeof payload);
    if (status == DLC_OK) {
        memcpy(&identity, payload, sizeof identity);
        self->rank = frame.number;
        self->ranks = (int)frame.size;
        status = self->rank ? find_hub_by_pmix(self)
                            : publish_hub(self, identity.local_ranks);
    }
    sigprocmask(SIG_BLOCK, &self->launch->signals, NULL);
    return status;
}

/* Waits for a rank that has not joined; one that ended by itself has reported why. */
static dlc_status end_before_join(external_rank *self, dlc_status status,
                                  int *exit_code) {
    int how = 0;
    if (self->child.pid <= 0)
        return status;
    if (status != DLC_ERR_CANCELLED)
        kill(self->child.pid, SIGKILL);
    while (waitpid(self->child.pid, &how, 0) < 0 && errno == EINTR)
        continue;
    if (status != DLC_ERR_CANCELLED)
        return status;
    if (WIFSIGNALED(how))
        return dlc_fail(DLC_ERR_PEER, "rank %d was killed by signal %d while joining",
                        self->external->rank, WTERMSIG(how));
    *exit_code = WEXITSTATUS(how) ? WEXITSTATUS(how) : 1;
    return DLC_OK;
}

static dlc_status run_by_pmix(external_rank *self, int *exit_code) {
    self->rank = self->external->rank;
    dlc_launch_block_signals(self->launch);
    dlc_spawn spawn = spawn_args(self);
    spawn.identify = identify_by_pmix;
    spawn.at_exit = leave_pmix;
    dlc_status status = dlc_spawn_rank(self->launch, &spawn, &self->child);
    if (status == DLC_OK)
        status = rendezvous_by_pmix(self);
    if (status != DLC_OK)
        status = end_before_join(self, status, exit_code);
    else if (self->rank == 0)
        status = run_hub(self, exit_code);
    else
        status = run_agent(self, exit_code);
    dlc_launch_restore_signals(self->launch);
    return status;
}

dlc_status dlc_external_run(dlc_launch *launch, const dlc_external *external,
                            int *exit_code) {
    external_rank *self = dlc_alloc(1, sizeof *self);
    if (!self)
        return DLC_ERR_NOMEM;
    self->launch = launch;
    self->external = external;
    self->timeout = launch->options->rendezvous_timeout > 0
                        ? launch->options->rendezvous_timeout
                        : RENDEZVOUS_S;
    self->hub_fd = self->hub.signals = -1;
    self->child = (dlc_child){.control = -1, .output = -1};
    dlc_acceptor_open(&self->acceptor, -1, &self->secret);
    dlc_status status = external->kind == DLC_EXTERNAL_PMIX
                            ? run_by_pmix(self, exit_code)
                            : run_by_variables(self, exit_code);
    close_inherited(self);
    if (self->child.control >= 0)
        close(self->child.control);
    dlc_free(self);
    return status;
}
