/* The steps that all kinds of external launch take. */
#include "job/external_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/agent.h"
#include "job/connect.h"
#include "job/environment.h"

void dlc_external_rank_close(void *context) {
    dlc_external_rank *self = context;
    dlc_acceptor_close(&self->acceptor);
    dlc_hub_close(&self->hub);
    if (self->hub_fd >= 0)
        close(self->hub_fd);
}

dlc_spawn dlc_external_rank_spawn(dlc_external_rank *self) {
    return (dlc_spawn){.rank = self->rank,
                       .ranks = self->ranks,
                       .local_rank = self->external->local_rank,
                       .activity = self->launch->activity,
                       .watch_parent = 1,
                       .in_child = dlc_external_rank_close,
                       .context = self};
}

/* ---- Rank 0: the hub ----------------------------------------------------------- */

static dlc_status refuse_without_secret(const char *where) {
    return dlc_fail(
        DLC_ERR_CONFIG,
        "rank 0 would listen at %s: except on loopback, ranks need a secret; "
        "set DLCORE_SECRET or DLCORE_SECRET_FILE, the same for all of them",
        where);
}

/* All ranks would have to be on this machine, and they are not. */
static dlc_status refuse_hidden(const char *host, const dlc_address *address) {
    char text[DLC_ADDRESS_TEXT];
    dlc_address_text(address, text);
    return dlc_fail(DLC_ERR_CONFIG,
                    "rank 0 is to listen at %s, which is %s on its machine (see "
                    "/etc/hosts), where ranks on other machines do not reach it: set "
                    "DLCORE_SECRET or DLCORE_SECRET_FILE, the same for all ranks, and "
                    "it listens at all its addresses",
                    host, text);
}

/* Listens at one of these addresses; *bound is that one. */
static dlc_status listen_at(dlc_external_rank *self, const char *host,
                            const dlc_address *list, int count, dlc_address *bound) {
    int listener;
    DLC_TRY(dlc_address_listen(host, list, count, &listener, bound));
    dlc_acceptor_open(&self->acceptor, listener, &self->secret);
    dlc_address_text(bound, self->hub_address);
    return DLC_OK;
}

dlc_status dlc_external_rank_listen_at(dlc_external_rank *self, const char *host) {
    dlc_address list[DLC_ADDRESSES_MAX], bound;
    dlc_retry retry = dlc_retry_start(self->rank, self->timeout);
    dlc_status status;
    int count;
    /* A cluster's DNS may get to know even a machine's own name only after its start.
     */
    do
        status = dlc_address_resolve(host, self->external->port, list, &count);
    while (status != DLC_OK && dlc_retry_again(&retry, host));
    DLC_TRY(status);
    int local_ranks = self->external->local_ranks;
    int hidden = local_ranks < self->ranks &&
                 dlc_address_hides_machine(host, list, count);
    if (hidden && self->secret.length)
        return dlc_external_rank_listen_anywhere(self);
    if (hidden && local_ranks >= 0)
        return refuse_hidden(host, &list[0]);
    DLC_TRY(listen_at(self, host, list, count, &bound));
    return self->secret.length || dlc_address_is_loopback(&bound)
               ? DLC_OK
               : refuse_without_secret(self->hub_address);
}

static dlc_status listen_anywhere(dlc_external_rank *self, uint16_t *port) {
    int listener;
    *port = self->external->port;
    DLC_TRY(dlc_address_listen_all(&listener, port));
    dlc_acceptor_open(&self->acceptor, listener, &self->secret);
    snprintf(self->hub_address, sizeof self->hub_address, "port %u", (unsigned)*port);
    return DLC_OK;
}

dlc_status dlc_external_rank_listen_anywhere(dlc_external_rank *self) {
    uint16_t port;
    if (!self->secret.length)
        return refuse_without_secret("every address of its machine");
    return listen_anywhere(self, &port);
}

dlc_status dlc_external_rank_open_hub(dlc_external_rank *self) {
    DLC_TRY(dlc_hub_open(self->launch, self->ranks, &self->hub));
    self->hub.rendezvous_timeout = self->timeout;
    self->hub.parent = self->launch->parent;
    self->hub.remotes = self->ranks > 1;
    for (int r = 1; r < self->ranks; r++)
        self->hub.peer[r].remote = self->hub.peer[r].running = 1;
    self->hub.listen_address = self->hub_address;
    if (self->hub.remotes)
        dlc_hub_open_acceptor(&self->hub, &self->acceptor);
    return DLC_OK;
}

dlc_status dlc_external_rank_run_hub(dlc_external_rank *self, int *exit_code) {
    dlc_status status = dlc_hub_listen_for_signals(self->launch, &self->hub);
    if (status == DLC_OK)
        status = dlc_hub_run(&self->hub, exit_code);
    if (status != DLC_OK)
        dlc_hub_kill(&self->hub);
    return status;
}

/* ---- Other ranks: the agent ---------------------------------------------------- */

dlc_status dlc_external_rank_find_hub(dlc_external_rank *self, const char *host,
                                      const dlc_address *list, int count) {
    dlc_connect_args args = {.host = host,
                             .port = self->external->port,
                             .list = list,
                             .count = count,
                             .secret = &self->secret,
                             .rank = self->rank,
                             .ranks = self->ranks,
                             .timeout = self->timeout};
    return dlc_connect(&args, &self->hub_fd, self->hub_address);
}

dlc_status dlc_external_rank_run_agent(dlc_external_rank *self, int *exit_code) {
    dlc_agent_args args = {.rank = self->rank,
                           .child = self->child.pid,
                           .parent = self->launch->parent,
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

/* ---- What rank 0 publishes: "SECRET,127.0.0.1:4711,[fd88::1]:4711" ----------------
 */

static dlc_status write_published(const dlc_external_rank *self,
                                  const dlc_address *list, int count, dlc_text *text) {
    dlc_text_append(text, (const char *)self->secret.bytes, self->secret.length);
    for (int i = 0; i < count; i++) {
        char host[DLC_ADDRESS_TEXT];
        dlc_address_text(&list[i], host);
        dlc_text_add(text, ",%s", host);
    }
    return dlc_text_status(text);
}

dlc_status dlc_external_rank_publish(dlc_external_rank *self, int local_ranks,
                                     dlc_text *text) {
    dlc_address list[DLC_ADDRESSES_MAX], bound;
    const char *host = dlc_environment_text("DLCORE_ADDR");
    int count;
    uint16_t port;
    DLC_TRY(dlc_secret_make(&self->secret));
    int is_spread = local_ranks < self->ranks;
    int anywhere = host ? strcmp(host, "*") == 0 : is_spread;
    host = host && !anywhere ? host : "127.0.0.1";
    DLC_TRY(dlc_address_resolve(host, self->external->port, list, &count));
    if (anywhere || (is_spread && dlc_address_hides_machine(host, list, count))) {
        DLC_TRY(listen_anywhere(self, &port));
        DLC_TRY(dlc_address_list_own(port, list, &count));
        return write_published(self, list, count, text);
    }
    DLC_TRY(listen_at(self, host, list, count, &bound));
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

dlc_status dlc_external_rank_find_published(dlc_external_rank *self, char *text) {
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
    return dlc_external_rank_find_hub(self, NULL, list, count);
}
