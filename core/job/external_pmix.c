/* Runs a rank that PMIx connects to the others. The rank itself is PMIx's client, since
 * another library in it may need PMIx, too: it is forked first, and hub and agents
 * learn from their ranks where they find each other. */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "job/external_rank.h"
#include "job/pmix_client.h"

static dlc_status identify(void *context, int control, int *rank, int *ranks) {
    const dlc_external_rank *self = context;
    return dlc_pmix_join(control, self->external->ranks, self->launch->options->ranks,
                         rank, ranks);
}

static void leave(void *context) {
    (void)context;
    dlc_pmix_leave();
}

/* Reads a frame of this kind from the rank, and its payload (at most `room` bytes) with
 * a NUL appended. DLC_ERR_CANCELLED: the rank has ended, and has reported why. */
static dlc_status read_from_rank(dlc_external_rank *self, dlc_frame_kind kind,
                                 dlc_frame *frame, char *payload, size_t room) {
    int fd = self->child.control;
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

static dlc_status publish_hub(dlc_external_rank *self, uint32_t local_ranks) {
    dlc_text text = {0};
    dlc_status status = dlc_external_rank_publish(self, (int)local_ranks, &text);
    dlc_frame frame = {.kind = DLC_FRAME_PMIX_ADDRESS, .bytes = text.length};
    if (status == DLC_OK)
        status = dlc_frame_send(self->child.control, &frame, text.bytes);
    dlc_text_free(&text);
    if (status == DLC_OK)
        status = dlc_external_rank_open_hub(self);
    if (status == DLC_OK)
        dlc_hub_attach_child(&self->hub, 0, &self->child, self->launch->activity);
    return status;
}

static dlc_status find_hub(dlc_external_rank *self) {
    char text[DLC_PMIX_ADDRESS_MAX];
    dlc_frame frame = {.kind = 0};
    DLC_TRY(read_from_rank(self, DLC_FRAME_PMIX_ADDRESS, &frame, text, sizeof text));
    return dlc_external_rank_find_published(self, text);
}

/* Connects hub and agents by what the rank learns from PMIx. Signals end this process
 * in the meantime, and its rank with it. */
static dlc_status rendezvous(dlc_external_rank *self) {
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
        status = self->rank ? find_hub(self) : publish_hub(self, identity.local_ranks);
    }
    sigprocmask(SIG_BLOCK, &self->launch->signals, NULL);
    return status;
}

/* Waits for a rank that has not joined; one that ended by itself has reported why. */
static dlc_status end_before_join(dlc_external_rank *self, dlc_status status,
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

dlc_status dlc_external_run_by_pmix(dlc_external_rank *self, int *exit_code) {
    dlc_launch_block_signals(self->launch);
    dlc_spawn spawn = dlc_external_rank_spawn(self);
    spawn.identify = identify;
    spawn.at_exit = leave;
    dlc_status status = dlc_spawn_rank(self->launch, &spawn, &self->child);
    if (status == DLC_OK)
        status = rendezvous(self);
    if (status != DLC_OK)
        status = end_before_join(self, status, exit_code);
    else if (self->rank == 0)
        status = dlc_external_rank_run_hub(self, exit_code);
    else
        status = dlc_external_rank_run_agent(self, exit_code);
    dlc_launch_restore_signals(self->launch);
    return status;
}
