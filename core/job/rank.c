/* See job.h and rank.h.
 *
 * Signals are blocked in every thread of a rank; its control thread takes them
 * from a signalfd, so no handler ever interrupts anything. The same thread reads
 * what the hub sends. It sleeps in poll(), and computing goes on undisturbed. */
#include "job/rank.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "job/alone.h"
#include "job/frame.h"
#include "job/place.h"

struct dlc_job {
    int rank, ranks, threads;
    dlc_place *places;
    dlc_thread_places threads_go; /* own */
    int bound, aside;
    dlc_core_set before; /* dlc_job_aside: where its caller was */
    dlc_doing *doing;
    int control, signals, wake; /* descriptors; wake ends the thread */
    int has_thread;
    pthread_t thread;
    pthread_mutex_t sending; /* whole frames on `control` */
    _Atomic unsigned requests;

    /* The control thread's own: is the rank looked after? */
    double deadline;
    uint64_t looks, looked_at, woke;

    dlc_alone alone; /* the only rank of a job; the control thread's own */

    /* Written once, before `lost` is. */
    char news[1024];
    int told; /* by the hub, which has said it */
    _Atomic int lost;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t arrived;
    int ended, has_result;
    void *result;
    size_t result_bytes;
};

void dlc_rank_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
}

unsigned dlc_signal_request(int signal) {
    return signal == SIGHUP    ? DLC_JOB_CHECKPOINT
           : signal == SIGUSR1 ? DLC_JOB_CHANGE
                               : 0;
}

/* ---- The control thread ---------------------------------------------------- */

static void lose(dlc_job *job, dlc_status status, const char *news, int told) {
    if (atomic_load_explicit(&job->lost, memory_order_relaxed))
        return; /* what came first is the cause */
    snprintf(job->news, sizeof job->news, "%s", news);
    job->told = told;
    atomic_store_explicit(&job->lost, status, memory_order_release);
    pthread_mutex_lock(&job->lock);
    job->ended = 1;
    pthread_cond_broadcast(&job->arrived);
    pthread_mutex_unlock(&job->lock);
}

static void tell_lost(dlc_job *job, dlc_status status, const char *news) {
    lose(job, status, news, 0);
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

static dlc_status read_frame(dlc_job *job) {
    dlc_frame frame;
    DLC_TRY(dlc_frame_read(job->control, &frame, sizeof frame));
    dlc_payload payload = {0};
    dlc_status status = dlc_frame_read_payload(job->control, frame.bytes, &payload);
    if (status == DLC_OK && frame.kind == DLC_FRAME_RESULT) {
        take_result(job, payload.bytes, frame.bytes);
        return DLC_OK;
    }
    if (status == DLC_OK && frame.kind == DLC_FRAME_NEWS)
        lose(job, frame.number, payload.bytes, 1);
    if (status == DLC_OK && frame.kind == DLC_FRAME_REQUEST)
        atomic_fetch_or(&job->requests, (unsigned)frame.number);
    dlc_payload_free(&payload);
    return status;
}

static dlc_status send_frame(dlc_job *job, const dlc_frame *frame,
                             const void *payload) {
    pthread_mutex_lock(&job->sending);
    dlc_status status = dlc_frame_send(job->control, frame, payload);
    pthread_mutex_unlock(&job->sending);
    /* A launcher that is gone is found by reading; else nobody would ever say it. */
    if (status == DLC_ERR_IO) {
        tell_lost(job, status, dlc_detail());
        (void)shutdown(job->control, SHUT_RDWR);
    }
    return status;
}

/* The only rank of a job: what the hub does otherwise. */
static void signal_alone(dlc_job *job, int signal) {
    if (dlc_signal_request(signal)) {
        atomic_fetch_or(&job->requests, dlc_signal_request(signal));
    } else if (dlc_alone_stop(&job->alone, signal)) {
        atomic_fetch_or(&job->requests, DLC_JOB_STOP);
    }
}

static void read_signal(dlc_job *job) {
    struct signalfd_siginfo info;
    if (read(job->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    int signal = (int)info.ssi_signo;
    if (job->control < 0) {
        signal_alone(job, signal);
        return;
    }
    dlc_frame frame = {.kind = DLC_FRAME_SIGNAL, .number = signal};
    send_frame(job, &frame, NULL); /* where it fails, the news follows */
}

static void channel_broke(dlc_job *job, dlc_status status) {
    tell_lost(job, status,
              status == DLC_ERR_PEER ? "the launcher is gone" : dlc_detail());
}

/* The parent looks twice a second, unless it was stopped: then no news come, though the
 * others may be gone long since. */
static void look_for_parent(dlc_job *job) {
    uint64_t now = dlc_now_ns();
    uint64_t looks = atomic_load_explicit(&job->doing->looks, memory_order_relaxed);
    int slept = now - job->woke > 4 * (uint64_t)DLC_BEAT_NS; /* was stopped as well */
    job->woke = now;
    if (looks != job->looks || slept) {
        job->looks = looks;
        job->looked_at = now;
    } else if (dlc_since(job->looked_at) > job->deadline + DLC_GRACE_NS / 1e9) {
        tell_lost(job, DLC_ERR_PEER,
                  "the process that watches over this rank stands still, so the other "
                  "ranks go on without it, or have ended");
    }
}

/* The same for the only rank of a job, which nobody else looks at. */
static void look_at_self(dlc_job *job) {
    char text[sizeof job->news];
    if (!dlc_alone_look(&job->alone, text, sizeof text))
        return;
    dlc_error("%s", text);
    tell_lost(job, DLC_ERR_PEER, text);
}

static void *control_thread(void *argument) {
    dlc_job *job = argument;
    int turn_ms = job->deadline > 0 ? (int)(DLC_BEAT_NS / 1000000u) : -1;
    struct pollfd polled[3] = {{.fd = job->wake, .events = POLLIN},
                               {.fd = job->signals, .events = POLLIN},
                               {.fd = job->control, .events = POLLIN}};
    for (;;) {
        if (poll(polled, 3, turn_ms) < 0) {
            if (errno == EINTR)
                continue;
            tell_lost(job, DLC_ERR_INTERNAL, "the control thread cannot poll");
            return NULL;
        }
        if (polled[0].revents)
            return NULL;
        if (polled[1].revents)
            read_signal(job);
        if (job->deadline > 0 && job->control < 0)
            look_at_self(job);
        else if (job->deadline > 0)
            look_for_parent(job);
        dlc_status status = polled[2].revents ? read_frame(job) : DLC_OK;
        if (status != DLC_OK) {
            channel_broke(job, status);
            polled[2].fd = -1;
        }
    }
}

/* ---- Opening and closing --------------------------------------------------- */

static dlc_status start_thread(dlc_job *job) {
    sigset_t set;
    dlc_rank_signals(&set);
    job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    job->wake = eventfd(0, EFD_CLOEXEC);
    if (job->signals < 0 || job->wake < 0)
        return dlc_fail(DLC_ERR_IO, "rank %d cannot listen for signals: %s", job->rank,
                        strerror(errno));
    int rc = pthread_create(&job->thread, NULL, control_thread, job);
    if (rc)
        return dlc_fail(DLC_ERR_NOMEM, "rank %d cannot start its control thread: %s",
                        job->rank, strerror(rc));
    job->has_thread = 1;
    pthread_setname_np(job->thread, "dlc-control");
    return DLC_OK;
}

/* Its cores, as those of its machine share them out. */
static dlc_status settle(dlc_job *job, const dlc_rank_args *args,
                         const dlc_card *cards) {
    int index, count;
    dlc_core_set share;
    dlc_cards_share(cards, job->ranks, job->rank, &index, &count);
    DLC_TRY(dlc_cores_share(args->cores, index, count, &share));
    job->threads = args->threads ? args->threads : share.threads;
    DLC_TRY(dlc_cores_place(args->cores, index, count, job->threads, &job->threads_go));
    job->bound = !args->unbound;
    if (job->bound && job->control >= 0 && dlc_cores_bind(&share) != DLC_OK)
        dlc_warn("rank %d: %s; it runs wherever the kernel puts it", job->rank,
                 dlc_detail());
    return DLC_OK;
}

/* Where everybody is. The first exchange is for finding one's cores; what they are
 * near to is known after it. */
static dlc_status meet(dlc_job *job, const dlc_rank_args *args) {
    size_t ranks = (size_t)job->ranks;
    dlc_card *cards = dlc_alloc(ranks + 1, sizeof *cards);
    dlc_card *mine = cards ? cards + ranks : NULL;
    dlc_status status = cards ? dlc_card_make(args, mine) : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_job_allgather(job, mine, sizeof *mine, cards);
    if (status == DLC_OK) {
        dlc_cards_number(cards, job->ranks);
        status = settle(job, args, cards);
    }
    if (status == DLC_OK) {
        dlc_place *place = &cards[job->rank].place;
        dlc_cores_near(dlc_job_cpus(job), job->threads, &place->package, &place->numa);
        place->device_index = dlc_cards_device(cards, args);
        status = dlc_job_allgather(job, place, sizeof *place, job->places);
    }
    dlc_free(cards);
    return status;
}

/* Of the only rank the caller says it. */
static void cannot_start(dlc_job *job, dlc_status status) {
    if (job->control >= 0 && !dlc_job_fails(job, status, dlc_detail()))
        dlc_error("rank %d cannot start: %s", job->rank, dlc_detail());
}

dlc_status dlc_rank_open(const dlc_rank_args *args, dlc_job **job) {
    dlc_job *made = dlc_alloc(1, sizeof *made);
    if (!made) {
        if (args->control >= 0)
            close(args->control);
        return DLC_ERR_NOMEM;
    }
    made->rank = args->rank;
    made->ranks = args->ranks;
    made->doing = args->doing;
    made->control = args->control;
    made->deadline = args->deadline;
    dlc_alone_begin(&made->alone, args->doing, args->deadline);
    made->signals = made->wake = -1;
    pthread_mutex_init(&made->sending, NULL);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->arrived, NULL);
    made->places = dlc_alloc((size_t)args->ranks, sizeof *made->places);
    dlc_status status = made->places ? meet(made, args) : DLC_ERR_NOMEM;
    dlc_job_aside(made, 1);
    if (status == DLC_OK)
        status = start_thread(made);
    dlc_job_aside(made, 0);
    if (status != DLC_OK) {
        cannot_start(made, status);
        dlc_rank_close(made);
        return status;
    }
    *job = made;
    return DLC_OK;
}

int dlc_rank_close(dlc_job *job) {
    if (job->has_thread) {
        uint64_t one = 1;
        while (write(job->wake, &one, sizeof one) < 0 && errno == EINTR)
            continue;
        pthread_join(job->thread, NULL);
    }
    int descriptors[] = {job->control, job->signals, job->wake};
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    pthread_cond_destroy(&job->arrived);
    pthread_mutex_destroy(&job->lock);
    pthread_mutex_destroy(&job->sending);
    dlc_free(job->result);
    dlc_free(job->places);
    dlc_thread_places_free(&job->threads_go);
    int stop_signal = job->alone.stop_signal;
    dlc_free(job);
    return stop_signal;
}

/* ---- What a rank asks ------------------------------------------------------- */

int dlc_job_rank(const dlc_job *job) {
    return job->rank;
}

int dlc_job_ranks(const dlc_job *job) {
    return job->ranks;
}

int dlc_job_threads(const dlc_job *job) {
    return job->threads;
}

const int32_t *dlc_job_cpus(const dlc_job *job) {
    return job->bound ? job->threads_go.compute : NULL;
}

void dlc_job_aside(dlc_job *job, int on) {
    if (on)
        job->aside = job->bound && dlc_cores_bound(&job->before) == DLC_OK &&
                     dlc_cores_bind(&job->threads_go.beside) == DLC_OK;
    else if (job->aside)
        (void)dlc_cores_bind(&job->before);
}

const dlc_place *dlc_job_place(const dlc_job *job, int r) {
    return r >= 0 && r < job->ranks ? &job->places[r] : NULL;
}

/* Lost counts don't matter: that it changes is all that is looked at. */
static void bump(_Atomic uint64_t *counter) {
    uint64_t count = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, count + 1, memory_order_relaxed);
}

dlc_status dlc_job_check(void *job) {
    dlc_job *mine = job;
    bump(&mine->doing->checks);
    int lost = atomic_load_explicit(&mine->lost, memory_order_acquire);
    return lost ? dlc_fail(lost, "%s", mine->news) : DLC_OK;
}

int dlc_job_fails(dlc_job *job, dlc_status status, const char *why) {
    int lost = atomic_load_explicit(&job->lost, memory_order_acquire);
    dlc_frame frame = {
        .kind = DLC_FRAME_FAILED, .number = status, .bytes = strlen(why)};
    if (job->control < 0 || (lost && !job->told))
        return 0;
    if (lost && (status == DLC_ERR_PEER || strstr(why, job->news)))
        return 1;
    if (frame.bytes >= DLC_FAILURE_TEXT)
        frame.bytes = DLC_FAILURE_TEXT - 1;
    return send_frame(job, &frame, why) == DLC_OK;
}

unsigned dlc_job_requests(dlc_job *job) {
    return atomic_exchange(&job->requests, 0);
}

static void copy_words(char *to, size_t room, const char *words) {
    size_t i = 0;
    for (; i < room - 1 && words[i]; i++)
        to[i] = words[i];
    to[i] = '\0';
}

void dlc_job_doing(dlc_job *job, const char *phase, const char *name, uint64_t bytes) {
    dlc_words *words = &job->doing->words;
    copy_words(words->phase, sizeof words->phase, phase ? phase : "");
    copy_words(words->name, sizeof words->name, phase && name ? name : "");
    words->bytes = bytes;
    bump(&job->doing->steps);
}

void dlc_job_exchanging(dlc_job *job, const char *name, uint64_t bytes) {
    dlc_words *words = &job->doing->words;
    copy_words(words->exchanged, sizeof words->exchanged, name ? name : "");
    words->exchanged_bytes = bytes;
    bump(&job->doing->steps);
}

/* ---- Collectives ------------------------------------------------------------ */

/* Before the control thread runs. */
static void read_until_result(dlc_job *job) {
    while (!job->has_result && !job->ended) {
        dlc_status status = read_frame(job);
        if (status != DLC_OK)
            channel_broke(job, status);
    }
}

/* Sends this rank's part and waits for the result of `bytes` bytes. */
static dlc_status collect(dlc_job *job, const dlc_frame *frame, const void *mine,
                          void *result, size_t bytes) {
    DLC_TRY(dlc_job_check(job));
    dlc_status sent = send_frame(job, frame, mine);
    if (!job->has_thread)
        read_until_result(job);
    pthread_mutex_lock(&job->lock);
    /* Where sending failed, the control thread finds out and says why. */
    while (!job->has_result && !job->ended)
        pthread_cond_wait(&job->arrived, &job->lock);
    int got = job->has_result;
    if (got && job->result_bytes == bytes && bytes)
        memcpy(result, job->result, bytes);
    int right = job->result_bytes == bytes;
    dlc_free(job->result);
    job->result = NULL;
    job->has_result = 0;
    pthread_mutex_unlock(&job->lock);
    if (!got) {
        DLC_TRY(dlc_job_check(job));
        return sent;
    }
    return right ? DLC_OK
                 : dlc_fail(DLC_ERR_INTERNAL,
                            "rank %d got a result of the wrong size from the hub",
                            job->rank);
}

dlc_status dlc_job_allgather(void *job, const void *mine, size_t bytes, void *all) {
    dlc_job *self = job;
    if (self->control < 0) {
        if (bytes)
            memmove(all, mine, bytes);
        return DLC_OK;
    }
    dlc_frame frame = {.kind = DLC_FRAME_ALLGATHER, .size = bytes, .bytes = bytes};
    return collect(self, &frame, mine, all, bytes * (size_t)self->ranks);
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
    return collect(job, &frame, data, data, bytes);
}

dlc_status dlc_job_barrier(dlc_job *job) {
    return dlc_job_allgather(job, NULL, 0, NULL);
}
