/* The control thread of a rank, the collectives of the control channel, and what a rank
 * tells the hub.
 *
 * Signals are blocked in every thread of a rank; the control thread reads them from a
 * signalfd, so no handler ever interrupts anything. The same thread reads what the hub
 * sends. It sleeps in poll() and does not disturb the compute threads. */
#include "job/rank/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "job/supervise.h"

/* What a request to stop does: dlc_job_stop_at_once. */
enum { STOP_SILENTLY, STOP_AT_ONCE, STOP_LATER };

/* ---- The control thread --------------------------------------------------------- */

static void abort_rank(dlc_job *job, dlc_status status, const char *reason,
                       int reported) {
    if (atomic_load_explicit(&job->lost, memory_order_relaxed))
        return; /* only the first cause counts */
    snprintf(job->abort_reason, sizeof job->abort_reason, "%s", reason);
    job->reported = reported;
    atomic_store_explicit(&job->lost, status, memory_order_release);
    pthread_mutex_lock(&job->lock);
    job->ended = 1;
    pthread_cond_broadcast(&job->arrived);
    pthread_mutex_unlock(&job->lock);
}

static void abort_unreported(dlc_job *job, dlc_status status, const char *reason) {
    abort_rank(job, status, reason, 0);
}

/* Takes what a signal asks for. Whoever has nothing to save ends when it next checks.
 */
static void take_request(dlc_job *job, unsigned requests) {
    atomic_fetch_or(&job->requests, requests);
    if (!(requests & DLC_JOB_STOP))
        return;
    if (atomic_load(&job->stops) == STOP_AT_ONCE) {
        atomic_store(&job->stopped, 1);
        abort_rank(job, DLC_ERR_PEER, "stopped by a signal", 1);
    } else if (atomic_load(&job->stops) == STOP_LATER && job->rank == 0) {
        dlc_info("stopping after this iteration; again to end now");
    }
}

static void take_result(dlc_job *job, void *result, size_t bytes) {
    pthread_mutex_lock(&job->lock);
    dlc_free(job->result);
    job->result = result;
    job->result_bytes = bytes;
    job->has_result = 1;
    pthread_cond_broadcast(&job->arrived);
    pthread_mutex_unlock(&job->lock);
}

/* Keeps the first of those that concern the same call. */
static void take_withdrawal(dlc_job *job, const dlc_frame *frame, const char *reason) {
    if (atomic_load(&job->withdrawn_at) == frame->size + 1)
        return;
    pthread_mutex_lock(&job->lock);
    job->withdrawn = frame->number;
    snprintf(job->withdrawal, sizeof job->withdrawal, "%s", reason);
    pthread_mutex_unlock(&job->lock);
    atomic_store(&job->withdrawn_at, frame->size + 1);
}

static dlc_status read_frame(dlc_job *job) {
    dlc_frame frame;
    DLC_TRY(dlc_frame_read(job->control, &frame, sizeof frame));
    dlc_payload payload = {0};
    dlc_status status = dlc_frame_read_payload(job->control, frame.bytes, &payload);
    if (status == DLC_OK && frame.kind == DLC_FRAME_RESULT) {
        take_result(job, payload.bytes, frame.bytes);
        return DLC_OK;
    }
    if (status == DLC_OK && frame.kind == DLC_FRAME_ABORT)
        abort_rank(job, frame.number, payload.bytes, 1);
    if (status == DLC_OK && frame.kind == DLC_FRAME_WITHDRAWN)
        take_withdrawal(job, &frame, payload.bytes ? payload.bytes : "");
    if (status == DLC_OK && frame.kind == DLC_FRAME_REQUEST)
        take_request(job, (unsigned)frame.number);
    dlc_payload_free(&payload);
    return status;
}

dlc_status dlc_rank_control_send(dlc_job *job, const dlc_frame *frame,
                                 const void *payload) {
    pthread_mutex_lock(&job->sending);
    dlc_status status = dlc_frame_send(job->control, frame, payload);
    pthread_mutex_unlock(&job->sending);
    /* A launcher that is gone is detected by reading; any other error only here. */
    if (status == DLC_ERR_IO) {
        abort_unreported(job, status, dlc_detail());
        (void)shutdown(job->control, SHUT_RDWR);
    }
    return status;
}

/* Handles a signal to the only rank of a job, as the hub does for several. */
static void signal_single(dlc_job *job, int signal) {
    if (dlc_signal_request(signal)) {
        take_request(job, dlc_signal_request(signal));
    } else if (dlc_self_watchdog_stop(&job->watchdog, signal)) {
        take_request(job, DLC_JOB_STOP);
    }
}

static void read_signal(dlc_job *job) {
    int signal = dlc_signals_next(job->signals);
    dlc_frame frame = {.kind = DLC_FRAME_SIGNAL, .number = signal};
    if (signal && job->control >= 0)
        (void)dlc_rank_control_send(job, &frame, NULL);
    else if (signal)
        signal_single(job, signal);
}

static void channel_broke(dlc_job *job, dlc_status status) {
    abort_unreported(job, status,
                     status == DLC_ERR_PEER ? "the launcher is gone" : dlc_detail());
}

/* The parent takes a heartbeat twice a second, unless it was stopped: then this rank
 * would not hear that the others have ended. */
static void check_parent(dlc_job *job) {
    uint64_t now = dlc_awake_ns(); /* this process may have been stopped as well */
    uint64_t ticks = atomic_load_explicit(&job->activity->parent_ticks,
                                          memory_order_relaxed);
    if (ticks != job->parent_ticks) {
        job->parent_ticks = ticks;
        job->last_tick = now;
    } else if ((double)(now - job->last_tick) >
               job->hang_timeout * 1e9 + DLC_GRACE_NS) {
        abort_unreported(
            job, DLC_ERR_PEER,
            "the parent process of this rank does not respond, so the other ranks "
            "have ended or go on without it");
    }
}

/* Checks the only rank of a job, which no other process watches. */
static void check_self(dlc_job *job) {
    char text[sizeof job->abort_reason];
    if (!dlc_self_watchdog_check(&job->watchdog, text, sizeof text))
        return;
    dlc_error("%s", text);
    abort_unreported(job, DLC_ERR_PEER, text);
}

static void *control_thread(void *argument) {
    dlc_job *job = argument;
    int timeout_ms = job->hang_timeout > 0 ? (int)(DLC_HEARTBEAT_NS / 1000000u) : -1;
    struct pollfd polled[3] = {{.fd = job->wakeup, .events = POLLIN},
                               {.fd = job->signals, .events = POLLIN},
                               {.fd = job->control, .events = POLLIN}};
    for (;;) {
        if (poll(polled, 3, timeout_ms) < 0) {
            if (errno == EINTR)
                continue;
            abort_unreported(job, DLC_ERR_INTERNAL, "the control thread cannot poll");
            return NULL;
        }
        if (polled[0].revents)
            return NULL;
        if (polled[1].revents)
            read_signal(job);
        if (job->hang_timeout > 0 && job->control < 0)
            check_self(job);
        else if (job->hang_timeout > 0)
            check_parent(job);
        dlc_status status = polled[2].revents ? read_frame(job) : DLC_OK;
        if (status != DLC_OK) {
            channel_broke(job, status);
            polled[2].fd = -1;
        }
    }
}

/* ---- Opening and closing -------------------------------------------------------- */

void dlc_rank_control_open(dlc_job *job, int control, double hang_timeout) {
    job->main = pthread_self();
    job->control = control;
    job->hang_timeout = hang_timeout;
    job->last_tick = dlc_awake_ns();
    dlc_self_watchdog_begin(&job->watchdog, job->activity, hang_timeout);
    job->signals = job->wakeup = -1;
    pthread_mutex_init(&job->sending, NULL);
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->arrived, NULL);
}

dlc_status dlc_rank_control_start(dlc_job *job) {
    sigset_t set;
    dlc_rank_signals(&set);
    DLC_TRY(dlc_signals_open(&set, "a rank", &job->signals));
    job->wakeup = eventfd(0, EFD_CLOEXEC);
    if (job->wakeup < 0)
        return dlc_fail(DLC_ERR_IO, "rank %d cannot make an eventfd: %s", job->rank,
                        strerror(errno));
    int rc = pthread_create(&job->thread, NULL, control_thread, job);
    if (rc)
        return dlc_fail(DLC_ERR_NOMEM, "rank %d cannot start its control thread: %s",
                        job->rank, strerror(rc));
    job->has_thread = 1;
    pthread_setname_np(job->thread, "dlc-control");
    return DLC_OK;
}

void dlc_rank_control_close(dlc_job *job) {
    if (job->has_thread) {
        uint64_t one = 1;
        while (write(job->wakeup, &one, sizeof one) < 0 && errno == EINTR)
            continue;
        pthread_join(job->thread, NULL);
    }
    dlc_close(&job->control);
    dlc_close(&job->signals);
    dlc_close(&job->wakeup);
    pthread_cond_destroy(&job->arrived);
    pthread_mutex_destroy(&job->lock);
    pthread_mutex_destroy(&job->sending);
    dlc_free(job->result);
}

/* ---- What a rank asks and reports ------------------------------------------------ */

/* Whether the job has failed. */
static dlc_status check_lost(const dlc_job *job) {
    int lost = atomic_load_explicit(&job->lost, memory_order_acquire);
    return lost ? dlc_fail(lost, "%s", job->abort_reason) : DLC_OK;
}

dlc_status dlc_job_withdrawal(dlc_job *job) {
    if (!atomic_load(&job->withdrawn_at))
        return DLC_OK;
    pthread_mutex_lock(&job->lock);
    dlc_status status = dlc_fail(job->withdrawn, "%s", job->withdrawal);
    pthread_mutex_unlock(&job->lock);
    return status;
}

dlc_status dlc_job_check(void *job) {
    dlc_job *mine = job;
    dlc_activity_count(&mine->activity->checks);
    if (pthread_equal(pthread_self(), mine->main))
        dlc_activity_count(&mine->activity->waits);
    DLC_TRY(check_lost(mine));
    return atomic_load(&mine->withdrawn_at) == atomic_load(&mine->calls) + 1
               ? dlc_job_withdrawal(mine)
               : DLC_OK;
}

/* Sends the hub the reason for a failure, cut to DLC_FAILURE_TEXT. */
static dlc_status send_reason(dlc_job *job, dlc_frame frame, const char *why) {
    size_t bytes = strlen(why);
    frame.bytes = bytes < DLC_FAILURE_TEXT ? bytes : DLC_FAILURE_TEXT - 1;
    return dlc_rank_control_send(job, &frame, why);
}

int dlc_job_report_failure(dlc_job *job, dlc_status status, const char *why) {
    const dlc_frame frame = {.kind = DLC_FRAME_FAILED, .number = status};
    int lost = atomic_load_explicit(&job->lost, memory_order_acquire);
    if (job->control < 0 || (lost && !job->reported))
        return 0;
    if (lost && (status == DLC_ERR_PEER || strstr(why, job->abort_reason)))
        return 1;
    return send_reason(job, frame, why) == DLC_OK;
}

void dlc_job_withdraw(dlc_job *job, dlc_status status, const char *why) {
    const dlc_frame frame = {.kind = DLC_FRAME_WITHDRAWN,
                             .number = status,
                             .size = atomic_load(&job->calls)};
    if (job->control >= 0)
        (void)send_reason(job, frame, why);
}

unsigned dlc_job_requests(dlc_job *job) {
    return atomic_exchange(&job->requests, 0);
}

void dlc_job_stop_at_once(dlc_job *job, int on) {
    atomic_store(&job->stops, on ? STOP_AT_ONCE : STOP_LATER);
    if (on && atomic_load(&job->requests) & DLC_JOB_STOP)
        take_request(job, DLC_JOB_STOP);
}

int dlc_job_was_stopped(const dlc_job *job) {
    return atomic_load(&job->stopped);
}

/* ---- Collectives ---------------------------------------------------------------- */

/* Reads the channel in the calling thread, before the control thread runs. */
static void read_until_result(dlc_job *job) {
    while (!job->has_result && !job->ended) {
        dlc_status status = read_frame(job);
        if (status != DLC_OK)
            channel_broke(job, status);
    }
}

/* Sends this rank's contribution and waits for the result of `bytes` bytes. */
static dlc_status call_collective(dlc_job *job, const dlc_frame *frame,
                                  const void *mine, void *result, size_t bytes) {
    DLC_TRY(check_lost(job));
    dlc_status sent = dlc_rank_control_send(job, frame, mine);
    if (!job->has_thread)
        read_until_result(job);
    pthread_mutex_lock(&job->lock);
    /* If sending failed, the control thread detects it and sets `ended`. */
    while (!job->has_result && !job->ended)
        pthread_cond_wait(&job->arrived, &job->lock);
    int got = job->has_result;
    atomic_fetch_add(&job->calls, (unsigned)got);
    if (got && job->result_bytes == bytes && bytes)
        memcpy(result, job->result, bytes);
    int right = job->result_bytes == bytes;
    dlc_free(job->result);
    job->result = NULL;
    job->has_result = 0;
    pthread_mutex_unlock(&job->lock);
    if (!got) {
        DLC_TRY(check_lost(job));
        return sent;
    }
    return right ? DLC_OK
                 : dlc_fail(DLC_ERR_INTERNAL,
                            "rank %d got a result of the wrong size from the hub",
                            job->rank);
}

dlc_status dlc_job_all_gather(void *job, const void *mine, size_t bytes, void *all) {
    dlc_job *self = job;
    if (self->control < 0) {
        if (bytes)
            memmove(all, mine, bytes);
        return DLC_OK;
    }
    dlc_frame frame = {.kind = DLC_FRAME_ALL_GATHER, .size = bytes, .bytes = bytes};
    return call_collective(self, &frame, mine, all, bytes * (size_t)self->ranks);
}

dlc_status dlc_job_broadcast(dlc_job *job, int root, void *data, size_t bytes) {
    if (root < 0 || root >= job->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "broadcast from rank %d, but there are %d ranks", root,
                        job->ranks);
    if (job->control < 0)
        return DLC_OK;
    dlc_frame frame = {.kind = DLC_FRAME_BROADCAST,
                       .number = root,
                       .size = bytes,
                       .bytes = root == job->rank ? bytes : 0};
    return call_collective(job, &frame, data, data, bytes);
}

dlc_status dlc_job_barrier(dlc_job *job) {
    return dlc_job_all_gather(job, NULL, 0, NULL);
}
