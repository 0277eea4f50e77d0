/* Runs the rank of an external launch: forks it, and is its hub if it is rank 0, else
 * its agent. They find each other at an address that all of them know, through PMI, or
 * through PMIx (external_pmix.c). */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "job/environment.h"
#include "job/external_rank.h"
#include "job/pmi_client.h"

#define RENDEZVOUS_S 60

/* ---- At an address that all of them know ---------------------------------------- */

static dlc_status meet_at_address(dlc_external_rank *self) {
    const dlc_external *external = self->external;
    const char *override = dlc_environment_text("DLCORE_ADDR");
    DLC_TRY(dlc_secret_read(&self->secret));
    if (self->rank > 0)
        return dlc_external_rank_find_hub(self, external->host, NULL, 0);
    if (self->ranks == 1)
        return DLC_OK;
    int anywhere = override ? strcmp(override, "*") == 0 : external->anywhere;
    return anywhere ? dlc_external_rank_listen_anywhere(self)
                    : dlc_external_rank_listen_at(self,
                                                  override ? override : external->host);
}

/* ---- Through PMI ----------------------------------------------------------------- */

#define KEY "dlcore.hub"

static dlc_status publish_by_pmi(dlc_external_rank *self, dlc_pmi *pmi) {
    dlc_text text = {0};
    dlc_status status = dlc_external_rank_publish(self, self->external->local_ranks,
                                                  &text);
    if (status == DLC_OK)
        status = dlc_pmi_put(pmi, KEY, text.bytes);
    dlc_text_free(&text);
    return status;
}

/* Gives what rank 0 has published; "" on rank 0 itself. */
static dlc_status trade_through(dlc_external_rank *self, dlc_pmi *pmi,
                                char text[DLC_PMI_LINE_MAX]) {
    char *value = text;
    text[0] = '\0';
    if (self->rank == 0)
        DLC_TRY(publish_by_pmi(self, pmi));
    DLC_TRY(dlc_pmi_barrier(pmi));
    if (self->rank > 0) {
        DLC_TRY(dlc_pmi_get(pmi, KEY, &value));
        (void)snprintf(text, DLC_PMI_LINE_MAX, "%s", value);
    }
    return dlc_pmi_finalize(pmi);
}

static dlc_status meet_by_pmi(dlc_external_rank *self) {
    char text[DLC_PMI_LINE_MAX];
    dlc_pmi pmi;
    dlc_status status = dlc_pmi_open(self->timeout, &pmi);
    if (status == DLC_OK)
        status = trade_through(self, &pmi, text);
    dlc_pmi_close(&pmi);
    if (status == DLC_OK && self->rank > 0)
        status = dlc_external_rank_find_published(self, text);
    return status;
}

/* ---- Both ------------------------------------------------------------------------ */

static dlc_status run_as_agent(dlc_external_rank *self, int *exit_code) {
    dlc_spawn spawn = dlc_external_rank_spawn(self);
    DLC_TRY(dlc_spawn_rank(self->launch, &spawn, &self->child));
    return dlc_external_rank_run_agent(self, exit_code);
}

static dlc_status run_as_hub(dlc_external_rank *self, int *exit_code) {
    dlc_spawn spawn = dlc_external_rank_spawn(self);
    dlc_status status = dlc_hub_start_rank(self->launch, &self->hub, &spawn);
    if (status == DLC_OK)
        return dlc_external_rank_run_hub(self, exit_code);
    dlc_hub_kill(&self->hub);
    return status;
}

static dlc_status run_after(dlc_external_rank *self,
                            dlc_status (*meet)(dlc_external_rank *self),
                            int *exit_code) {
    DLC_TRY(meet(self));
    if (self->rank == 0)
        DLC_TRY(dlc_external_rank_open_hub(self));
    dlc_launch_block_signals(self->launch);
    dlc_status status = self->rank > 0 ? run_as_agent(self, exit_code)
                                       : run_as_hub(self, exit_code);
    dlc_launch_restore_signals(self->launch);
    return status;
}

static dlc_status run_rank(dlc_external_rank *self, int *exit_code) {
    switch (self->external->kind) {
    case DLC_EXTERNAL_PMIX:
        return dlc_external_run_by_pmix(self, exit_code);
    case DLC_EXTERNAL_PMI:
        return run_after(self, meet_by_pmi, exit_code);
    default:
        return run_after(self, meet_at_address, exit_code);
    }
}

/* Who sets RANK by hand may start the process in the background, and leave. */
static int is_child_of_launcher(const dlc_external *external) {
    return external->kind != DLC_EXTERNAL_VARIABLES ||
           dlc_environment_text("TORCHELASTIC_RUN_ID");
}

dlc_status dlc_external_run(dlc_launch *launch, const dlc_external *external,
                            int *exit_code) {
    dlc_external_rank *self = dlc_alloc(1, sizeof *self);
    if (!self)
        return DLC_ERR_NOMEM;
    self->launch = launch;
    if (is_child_of_launcher(external)) {
        launch->parent = getppid();
        signal(SIGPIPE, SIG_IGN); /* without it there is time for a checkpoint */
    }
    self->external = external;
    self->rank = external->rank;
    self->ranks = external->ranks;
    self->timeout = launch->options->rendezvous_timeout > 0
                        ? launch->options->rendezvous_timeout
                        : RENDEZVOUS_S;
    self->hub_fd = self->hub.signals = -1;
    self->child = (dlc_child){.control = -1, .output = -1};
    dlc_acceptor_open(&self->acceptor, -1, &self->secret);
    dlc_status status = run_rank(self, exit_code);
    dlc_external_rank_close(self);
    if (self->child.control >= 0)
        close(self->child.control);
    dlc_free(self);
    return status;
}
