/* The only rank of a job: whether it gets on, and how it is made to stop. The rules are
 * those of watch.c, but one that computes keeps nobody waiting: it is named in a
 * warning and goes on until it is asked to stop. A rank that has never said what it
 * does is left alone. */
#include "job/alone.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "job/rank.h"

void dlc_alone_begin(dlc_alone *alone, dlc_doing *doing, double deadline) {
    uint64_t now = dlc_now_ns();
    *alone = (dlc_alone){.doing = doing,
                         .deadline = deadline,
                         .looked = now,
                         .moved = now,
                         .worked = now};
}

int dlc_alone_stop(dlc_alone *alone, int signal) {
    if (!alone->stop_signal) {
        alone->stop_signal = signal;
        alone->stop_time = dlc_now_ns();
        return 1;
    }
    if (dlc_since(alone->stop_time) >= DLC_STOP_AGAIN_S)
        _exit(128 + signal); /* asked for twice: like being killed by it */
    return 0;
}

/* One more look; after a time in which the process itself was stopped, everything
 * counts from now. */
static void take_pulse(dlc_alone *alone, uint64_t now) {
    int slept = now - alone->looked > 4 * (uint64_t)DLC_BEAT_NS;
    uint64_t steps = alone->pulse.steps;
    alone->looked = now;
    alone->pulse = dlc_pulse_take(getpid(), alone->doing, &alone->last);
    if (alone->pulse.steps != steps || slept)
        alone->moved = now;
    if (alone->pulse.worked || slept)
        alone->worked = now;
    if (alone->pulse.disk)
        alone->disk = now;
}

static void end_late_stop(const dlc_alone *alone, const char *doing) {
    double late = dlc_since(alone->stop_time);
    if (late <= alone->deadline || dlc_since(alone->moved) <= alone->deadline ||
        (alone->disk && dlc_since(alone->disk) <= alone->deadline))
        return;
    dlc_warn(
        "asked to stop %.0f s ago, pid %d does not get on%s ([parallel] hang_timeout = %g): "
        "it is ended",
        late, (int)getpid(), doing, alone->deadline);
    _exit(128 + alone->stop_signal);
}

static void warn_of_slow(dlc_alone *alone, double still, const char *doing) {
    if (alone->warned == alone->moved)
        return;
    alone->warned = alone->moved;
    dlc_warn(
        "pid %d has computed for %.0f s%s without getting on ([parallel] hang_timeout = %g)",
        (int)getpid(), still, doing, alone->deadline);
}

int dlc_alone_look(dlc_alone *alone, char *text, size_t room) {
    uint64_t now = dlc_now_ns();
    char doing[DLC_DOING_TEXT];
    if (now - alone->looked < DLC_BEAT_NS)
        return 0;
    take_pulse(alone, now);
    if (alone->end_at && now >= alone->end_at)
        _exit(dlc_exit_code(DLC_ERR_PEER));
    if (!(alone->deadline > 0) || !alone->pulse.steps || alone->end_at)
        return 0;
    dlc_words_text(&alone->pulse.words, doing);
    if (alone->stop_signal)
        end_late_stop(alone, doing);
    double still = dlc_since(alone->moved);
    if (still <= alone->deadline)
        return 0;
    if (dlc_since(alone->worked) <= alone->deadline) {
        warn_of_slow(alone, still, doing);
        return 0;
    }
    snprintf(text, room,
             "pid %d hangs: no progress since %.1f s%s ([parallel] hang_timeout = %g)",
             (int)getpid(), still, doing, alone->deadline);
    alone->end_at = now + DLC_GRACE_NS;
    return 1;
}
