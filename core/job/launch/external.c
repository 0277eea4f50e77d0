/* Runs the rank of an external launch. Hub and agents find each other at an address
 * that all of them know, through PMI, or through PMIx.
 *
 * With PMIx the rank itself is the client, since another library in it may need PMIx,
 * too: it is forked first, and hub and agents learn from their ranks where they find
 * each other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "job/hub/agent.h"
#include "job/launch/launch.h"
#include "job/launch/pmi.h"

#define RENDEZVOUS_S 60

/* ---- Rank 0: the hub ------------------------------------------------------------- */

static dlc_status refuse_without_secret(const char *where) {
    return dlc_fail(DLC_ERR_CONFIG,
                    "rank 0 would listen at %s: except on loopback, ranks need a "
                    "secret; " DLC_SET_SECRET,
                    where);
}

/* All ranks would have to be on this machine, and they are not. */
static dlc_status refuse_hidden(const char *host, const dlc_address *address) {
    char text[DLC_ADDRESS_TEXT];
    dlc_address_text(address, text);
    return dlc_fail(
        DLC_ERR_CONFIG,
        "rank 0 is to listen at %s, which is %s on its machine (see "
        "/etc/hosts), where ranks on other machines do not reach it: " DLC_SET_SECRET
        ", and it listens at all its addresses",
        host, text);
}

/* Listens at one of these addresses; *bound is that one. */
static dlc_status listen_at_one(dlc_launch *self, const char *host,
                                const dlc_address *list, int count,
                                dlc_address *bound) {
    int listener;
    DLC_TRY(dlc_address_listen(host, list, count, &listener, bound));
    dlc_acceptor_open(&self->acceptor, listener, &self->secret);
    dlc_address_text(bound, self->hub_address);
    return DLC_OK;
}

static dlc_status listen_anywhere(dlc_launch *self, uint16_t *port) {
    int listener;
    *port = self->external.port;
    if (!self->secret.length)
        return refuse_without_secret("every address of its machine");
    DLC_TRY(dlc_address_listen_all(&listener, port));
    dlc_acceptor_open(&self->acceptor, listener, &self->secret);
    snprintf(self->hub_address, sizeof self->hub_address, "port %u", (unsigned)*port);
    return DLC_OK;
}

/* Listens at this host's address; at all addresses of this machine where others could
 * not reach that one. */
static dlc_status listen_at_host(dlc_launch *self, const char *host) {
    dlc_address list[DLC_ADDRESSES_MAX], bound;
    dlc_retry retry = dlc_retry_start(self->rank, self->timeout);
    dlc_status status;
    uint16_t port;
    int count;
    /* A cluster's DNS may get to know even a machine's own name only after its start.
     */
    do
        status = dlc_address_resolve(host, self->external.port, list, &count);
    while (status != DLC_OK && dlc_retry_again(&retry, host));
    DLC_TRY(status);
    int local_ranks = self->external.local_ranks;
    int hidden = local_ranks < self->ranks &&
                 dlc_address_hides_machine(host, list, count);
    if (hidden && self->secret.length)
        return listen_anywhere(self, &port);
    if (hidden && local_ranks >= 0)
        return refuse_hidden(host, &list[0]);
    DLC_TRY(listen_at_one(self, host, list, count, &bound));
    return self->secret.length || dlc_address_is_loopback(&bound)
               ? DLC_OK
               : refuse_without_secret(self->hub_address);
}

static dlc_status open_hub(dlc_launch *self, dlc_rank_process *child) {
    dlc_hub *hub = &self->hub;
    DLC_TRY(dlc_hub_open(self->ranks, self->options->hang_timeout, hub));
    hub->rendezvous_timeout = self->timeout;
    hub->parent = self->parent;
    hub->listen_address = self->hub_address;
    hub->remotes = self->ranks > 1;
    for (int r = 1; r < self->ranks; r++)
        hub->peer[r].remote = hub->peer[r].running = 1;
    if (hub->remotes)
        dlc_hub_open_acceptor(hub, &self->acceptor);
    dlc_hub_attach_child(hub, 0, child, self->activity);
    return DLC_OK;
}

static dlc_status run_as_hub(dlc_launch *self, int *exit_code) {
    dlc_status status = dlc_launch_run_hub(self, exit_code);
    if (status != DLC_OK)
        dlc_hub_kill(&self->hub);
    return status;
}

/* ---- Other ranks: the agent ------------------------------------------------------ */

/* Connects to the hub at that host, or (NULL) at one of its addresses. */
static dlc_status find_hub(dlc_launch *self, const char *host, const dlc_address *list,
                           int count) {
    dlc_connect_args args = {.host = host,
                             .port = self->external.port,
                             .list = list,
                             .count = count,
                             .secret = &self->secret,
                             .rank = self->rank,
                             .ranks = self->ranks,
                             .timeout = self->timeout};
    return dlc_connect(&args, &self->hub_fd, self->hub_address);
}

static dlc_status run_as_agent(dlc_launch *self, const dlc_rank_process *child,
                               int *exit_code) {
    dlc_agent agent = {.rank = self->rank,
                       .child = child->pid,
                       .parent = self->parent,
                       .to_rank = {.fd = child->control},
                       .to_hub = {.fd = self->hub_fd},
                       .hub_address = self->hub_address,
                       .activity = self->activity,
                       .hang_timeout = self->options->hang_timeout};
    self->hub_fd = -1;
    return dlc_agent_run(&agent, &self->signals, exit_code);
}

/* ---- At an address that all of them know ----------------------------------------- */

static dlc_status meet_at_address(dlc_launch *self) {
    const char *override = dlc_environment_text("DLCORE_ADDR");
    uint16_t port;
    DLC_TRY(dlc_secret_read(&self->secret));
    if (self->rank > 0)
        return find_hub(self, self->external.host, NULL, 0);
    if (self->ranks == 1)
        return DLC_OK;
    int anywhere = override ? strcmp(override, "*") == 0 : self->external.anywhere;
    return anywhere ? listen_anywhere(self, &port)
                    : listen_at_host(self, override ? override : self->external.host);
}

/* ---- What rank 0 publishes: "SECRET,127.0.0.1:4711,[fd88::1]:4711" ----------------
 */

static dlc_status write_published(const dlc_launch *self, const dlc_address *list,
                                  int count, dlc_text *text) {
    dlc_text_append(text, (const char *)self->secret.bytes, self->secret.length);
    for (int i = 0; i < count; i++) {
        char host[DLC_ADDRESS_TEXT];
        dlc_address_text(&list[i], host);
        dlc_text_add(text, ",%s", host);
    }
    return dlc_text_status(text);
}

/* Makes a secret, listens where the other ranks can reach this hub (on loopback if all
 * of them are on this machine, `local_ranks` being those that are) and gives both as a
 * text without blanks, to be published. */
static dlc_status listen_to_publish(dlc_launch *self, int local_ranks, dlc_text *text) {
    dlc_address list[DLC_ADDRESSES_MAX], bound;
    const char *host = dlc_environment_text("DLCORE_ADDR");
    int count;
    uint16_t port;
    DLC_TRY(dlc_secret_make(&self->secret));
    int is_spread = local_ranks < self->ranks;
    int anywhere = host ? strcmp(host, "*") == 0 : is_spread;
    host = host && !anywhere ? host : "127.0.0.1";
    DLC_TRY(dlc_address_resolve(host, self->external.port, list, &count));
    if (anywhere || (is_spread && dlc_address_hides_machine(host, list, count))) {
        DLC_TRY(listen_anywhere(self, &port));
        DLC_TRY(dlc_address_list_own(port, list, &count));
        return write_published(self, list, count, text);
    }
    DLC_TRY(listen_at_one(self, host, list, count, &bound));
    return write_published(self, &bound, 1, text);
}

/* Adds the address that `text`, "HOST:PORT" or "[HOST]:PORT", names, if it does. */
static void read_address(char *text, dlc_address list[DLC_ADDRESSES_MAX], int *count) {
    dlc_address resolved[DLC_ADDRESSES_MAX] = {{.length = 0}};
    char *colon = strrchr(text, ':'), *host = text;
    int found;
    if (!colon)
        return;
    *colon = '\0';
    if (*host == '[') {
        host++;
        colon[-1] = '\0';
    }
    long port = strtol(colon + 1, NULL, 10);
    if (port > 0 && port <= UINT16_MAX &&
        dlc_address_resolve(host, (uint16_t)port, resolved, &found) == DLC_OK)
        list[(*count)++] = resolved[0];
}

/* Takes secret and addresses from a published text, which it cuts into pieces, and
 * connects. */
static dlc_status find_published_hub(dlc_launch *self, char *text) {
    dlc_address list[DLC_ADDRESSES_MAX];
    int count = 0;
    char *rest = NULL, *part = strtok_r(text, ",", &rest);
    if (part && strlen(part) <= DLC_SECRET_MAX) {
        self->secret.length = strlen(part);
        memcpy(self->secret.bytes, part, self->secret.length);
    }
    while (count < DLC_ADDRESSES_MAX && (part = strtok_r(NULL, ",", &rest)))
        read_address(part, list, &count);
    if (!count || !self->secret.length)
        return dlc_fail(DLC_ERR_INTERNAL, "rank 0 has published no address");
    return find_hub(self, NULL, list, count);
}

/* ---- Through PMI ----------------------------------------------------------------- */

static dlc_status publish_by_pmi(dlc_launch *self, dlc_pmi *pmi) {
    dlc_text text = {0};
    dlc_status status = listen_to_publish(self, self->external.local_ranks, &text);
    if (status == DLC_OK)
        status = dlc_pmi_put(pmi, DLC_PMI_KEY, text.bytes);
    dlc_text_free(&text);
    return status;
}

/* Gives what rank 0 has published; "" on rank 0 itself. */
static dlc_status trade_through(dlc_launch *self, dlc_pmi *pmi,
                                char text[DLC_PMI_LINE_MAX]) {
    char *value = text;
    text[0] = '\0';
    if (self->rank == 0)
        DLC_TRY(publish_by_pmi(self, pmi));
    DLC_TRY(dlc_pmi_barrier(pmi));
    if (self->rank > 0) {
        DLC_TRY(dlc_pmi_get(pmi, DLC_PMI_KEY, &value));
        (void)snprintf(text, DLC_PMI_LINE_MAX, "%s", value);
    }
    return dlc_pmi_finalize(pmi);
}

static dlc_status meet_by_pmi(dlc_launch *self) {
    char text[DLC_PMI_LINE_MAX];
    dlc_pmi pmi;
    dlc_status status = dlc_pmi_open(self->timeout, &pmi);
    if (status == DLC_OK)
        status = trade_through(self, &pmi, text);
    dlc_pmi_close(&pmi);
    if (status == DLC_OK && self->rank > 0)
        status = find_published_hub(self, text);
    return status;
}

/* ---- Through PMIx: the other end of dlc_pmix_join ---------------------------------
 */

/* Reads a frame of this kind from the rank, and its payload (at most `room` bytes) with
 * a NUL appended. DLC_ERR_CANCELLED: the rank has ended, and has reported why. */
static dlc_status read_from_rank(const dlc_launch *self, int fd, dlc_frame_kind kind,
                                 dlc_frame *frame, char *payload, size_t room) {
    uint64_t until = dlc_awake_ns() + (uint64_t)(self->timeout * 1e9);
    if (dlc_wait_readable(fd, until) <= 0)
        return dlc_fail(
            DLC_ERR_PEER,
            "the ranks have not found each other through PMIx within %g s ([parallel] "
            "rendezvous_timeout)",
            self->timeout);
    if (dlc_frame_read(fd, frame, sizeof *frame) != DLC_OK)
        return DLC_ERR_CANCELLED;
    if (frame->kind != (uint32_t)kind || frame->bytes >= room)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the rank sent its parent an unexpected message");
    payload[frame->bytes] = '\0';
    return dlc_frame_read(fd, payload, frame->bytes);
}

static dlc_status publish_by_pmix(dlc_launch *self, int control, int local_ranks) {
    dlc_text text = {0};
    dlc_status status = listen_to_publish(self, local_ranks, &text);
    dlc_frame frame = {.kind = DLC_FRAME_PMIX_ADDRESS, .bytes = text.length};
    if (status == DLC_OK)
        status = dlc_frame_send(control, &frame, text.bytes);
    dlc_text_free(&text);
    return status;
}

static dlc_status trade_with_rank(dlc_launch *self, int control) {
    char payload[DLC_PMIX_ADDRESS_MAX] = {0};
    dlc_pmix_identity identity;
    dlc_frame frame = {.kind = 0};
    DLC_TRY(read_from_rank(self, control, DLC_FRAME_PMIX_IDENTITY, &frame, payload,
                           sizeof identity + 1));
    memcpy(&identity, payload, sizeof identity);
    self->rank = frame.number;
    self->ranks = (int)frame.size;
    if (self->rank == 0)
        return publish_by_pmix(self, control, (int)identity.local_ranks);
    DLC_TRY(read_from_rank(self, control, DLC_FRAME_PMIX_ADDRESS, &frame, payload,
                           sizeof payload));
    return find_published_hub(self, payload);
}

/* Signals end this process in the meantime, and its rank with it. */
static dlc_status meet_by_pmix(dlc_launch *self, const dlc_rank_process *child) {
    sigprocmask(SIG_SETMASK, &self->mask_before, NULL);
    dlc_status status = trade_with_rank(self, child->control);
    sigprocmask(SIG_BLOCK, &self->signals, NULL);
    return status;
}

/* ---- All kinds ------------------------------------------------------------------- */

/* Ends a rank that has not joined; one that ended by itself has reported why. */
static dlc_status end_before_join(const dlc_launch *self, dlc_status status,
                                  dlc_rank_process *child, int *exit_code) {
    if (status != DLC_ERR_CANCELLED)
        kill(child->pid, SIGKILL);
    dlc_ending how = dlc_process_wait(child->pid);
    dlc_close(&child->control);
    if (status != DLC_ERR_CANCELLED)
        return status;
    if (how.by_signal)
        return dlc_fail(DLC_ERR_PEER, "rank %d was killed by signal %d while joining",
                        self->external.rank, how.number);
    *exit_code = how.number ? how.number : 1;
    return DLC_OK;
}

static dlc_status fork_and_run(dlc_launch *self, int *exit_code) {
    dlc_rank_process child;
    dlc_status status = DLC_OK;
    DLC_TRY(dlc_launch_fork(self, self->rank, &child));
    if (self->external.kind == DLC_EXTERNAL_PMIX)
        status = meet_by_pmix(self, &child);
    if (status == DLC_OK && self->rank == 0)
        status = open_hub(self, &child);
    if (status != DLC_OK)
        return end_before_join(self, status, &child, exit_code);
    return self->rank == 0 ? run_as_hub(self, exit_code)
                           : run_as_agent(self, &child, exit_code);
}

/* Who sets RANK by hand may start the process in the background, and leave. */
static int is_child_of_launcher(const dlc_external *external) {
    return external->kind != DLC_EXTERNAL_VARIABLES ||
           dlc_environment_text("TORCHELASTIC_RUN_ID");
}

dlc_status dlc_launch_run_external(dlc_launch *self, int *exit_code) {
    const dlc_external *external = &self->external;
    double timeout = self->options->rendezvous_timeout;
    if (is_child_of_launcher(external)) {
        self->parent = getppid();
        signal(SIGPIPE, SIG_IGN); /* without it there is time for a checkpoint */
    }
    self->rank = external->rank;
    self->ranks = external->ranks;
    self->timeout = timeout > 0 ? timeout : RENDEZVOUS_S;
    if (external->kind == DLC_EXTERNAL_PMI)
        DLC_TRY(meet_by_pmi(self));
    else if (external->kind != DLC_EXTERNAL_PMIX)
        DLC_TRY(meet_at_address(self));
    dlc_launch_block_signals(self);
    dlc_status status = fork_and_run(self, exit_code);
    dlc_launch_restore_signals(self);
    return status;
}
