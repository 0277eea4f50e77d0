/* See schedule.h. */
#include "train/schedule.h"

#include <string.h>

#include "base/log.h"
#include "comm/pace.h"

/* "yes", "no", or where it is "auto" what was found best. */
static int choose(const dlc_session *session, const char *name, int best) {
    const char *text = dlc_settings_get_string(session->setup->transport_settings,
                                               name);
    return strcmp(text, "auto") == 0 ? best : strcmp(text, "yes") == 0;
}

/* Forward and backward are rarely shorter than four updates: an exchange that is can be
 * hidden behind backward alone. */
static int is_slow(const dlc_pace *pace) {
    return pace->bandwidth < pace->update / 4;
}

static void announce(const dlc_pace *pace, const dlc_schedule *schedule) {
    const char *how = schedule->shards ? "each rank updates a shard of the weights"
                      : schedule->late ? "forward goes ahead of what it does not need"
                                       : "each rank updates all weights";
    dlc_info("exchange: %.1f us, then %.2f GB/s: buckets of %.2f MB; %s",
             pace->latency * 1e6, pace->bandwidth / 1e9, (double)schedule->bucket / 1e6,
             how);
}

dlc_status dlc_schedule_make(const dlc_session *session, dlc_schedule *schedule) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    dlc_comm *comm = session->connection.comm;
    dlc_schedule made = {.bucket = SIZE_MAX};
    dlc_pace pace;

    *schedule = made; /* alone there is nothing to overlap: one pass over memory */
    if (session->ranks == 1)
        return DLC_OK;
    DLC_TRY(dlc_pace_measure(comm, session->device_ops, session->device,
                             arenas->gradients, arenas->count, &pace));
    made.bucket = (size_t)dlc_settings_get_int(session->setup->run, "bucket");
    if (made.bucket == 0)
        made.bucket = dlc_pace_bucket(&pace, arenas->count * sizeof(float));
    /* Gradients that may overflow are looked at whole, before any update. */
    int whole = session->loss_scale.base != NULL;
    made.shards = !whole && session->needs.shards && dlc_comm_has_shards(comm) &&
                  choose(session, "shards", dlc_pace_shards(&pace, session->ranks));
    made.late = !whole && session->needs.late && !made.shards &&
                choose(session, "ahead", is_slow(&pace));
    if (session->rank == 0)
        announce(&pace, &made);
    *schedule = made;
    return DLC_OK;
}
