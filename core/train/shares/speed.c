/* See speed.h. */
#include "train/shares/speed.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

/* What a new share must save of the time of an iteration to be worth it: nets of equal
 * shares are alike, and what is measured is never exact. */
static const double worth = 1.1;

/* ---- Measuring ------------------------------------------------------------------- */

enum { WARM_UP = 2, STRETCHES = 5, LONG_ENOUGH_MS = 120 };

typedef struct samples {
    float *data;
    int32_t *labels;
} samples;

/* Numbers like an image's, all of class 0. */
static dlc_status make_samples(const dlc_session *session, int64_t batch,
                               samples *made) {
    dlc_shape sample;
    DLC_TRY(dlc_setup_sample_shape(&session->setup->train, &sample));
    size_t count = (size_t)batch * (size_t)dlc_shape_count(&sample);
    made->data = dlc_alloc(count, sizeof *made->data);
    made->labels = dlc_alloc((size_t)batch, sizeof *made->labels);
    if (!made->data || !made->labels)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < count; i++)
        made->data[i] = (float)(i % 251) / 251.0f;
    return DLC_OK;
}

static dlc_status pass(const dlc_session *session, dlc_net *net) {
    DLC_TRY(dlc_job_check(session->job));
    DLC_TRY(dlc_net_forward(net, 0, 0));
    DLC_TRY(dlc_net_backward(net, 1, NULL, NULL));
    return dlc_net_sync(net);
}

/* Seconds of a pass, over so many of them that hiccups and time slices are part of
 * it. */
static dlc_status stretch(const dlc_session *session, dlc_net *net, double *seconds) {
    uint64_t start = dlc_now_ns();
    double spent = 0;
    int passes = 0;
    do {
        DLC_TRY(pass(session, net));
        passes++;
        spent = dlc_since(start);
    } while (spent * 1e3 < LONG_ENOUGH_MS);
    *seconds = spent / passes;
    return DLC_OK;
}

static int by_size(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static dlc_status measure(const dlc_session *session, dlc_net *net, double *seconds) {
    double all[STRETCHES];
    for (int i = 0; i < WARM_UP; i++)
        DLC_TRY(pass(session, net));
    DLC_TRY(dlc_job_barrier(session->job));
    for (int i = 0; i < STRETCHES; i++)
        DLC_TRY(stretch(session, net, &all[i]));
    qsort(all, STRETCHES, sizeof *all, by_size);
    *seconds = all[STRETCHES / 2];
    return DLC_OK;
}

/* ---- Sharing out ----------------------------------------------------------------- */

static void log_event(const dlc_session *session, const char *list,
                      const dlc_rank_pace *pace) {
    const dlc_shares *shares = &session->setup->shares;
    int32_t workers = shares->ranks - shares->servers;
    dlc_json event = dlc_log_event_begin("shares");
    dlc_json_int(&event, "iteration", session->iteration);
    dlc_json_string(&event, "shares", list);
    dlc_json_array(&event, "samples_per_s");
    for (int32_t r = 0; r < workers; r++)
        dlc_json_number(&event, NULL, pace[r].speed);
    dlc_json_end_array(&event);
    dlc_json_array(&event, "fixed_s");
    for (int32_t r = 0; r < workers; r++)
        dlc_json_number(&event, NULL, pace[r].fixed);
    dlc_json_end_array(&event);
    dlc_log_event_end(&event);
}

static void say_pace(int32_t rank, const dlc_rank_pace *pace, int64_t share) {
    dlc_text fixed = {0};
    if (pace->fixed > 0)
        dlc_text_add(&fixed, " and %.1f ms beside", pace->fixed * 1e3);
    dlc_info("rank %" PRId32 ": %.0f samples/s%s, share %" PRId64, rank, pace->speed,
             dlc_text_string(&fixed), share);
    dlc_text_free(&fixed);
}

/* Who looks often says no more than what is new. */
static void announce(const dlc_session *session, const dlc_rank_pace *pace,
                     int changed) {
    const dlc_shares *shares = &session->setup->shares;
    dlc_text list = {0};
    if (session->rank != 0 || (shares->open && !changed))
        return;
    dlc_shares_print(shares, &list);
    for (int32_t r = 0; r < shares->ranks - shares->servers; r++)
        say_pace(r, &pace[r], shares->count[r]);
    dlc_info("%s shares; to repeat this run: --set parallel.batch_split=%s",
             changed ? "new" : "as before are the", dlc_text_string(&list));
    log_event(session, dlc_text_string(&list), pace);
    dlc_text_free(&list);
}

/* All ranks have the same numbers, and decide alike. */
static int is_worth_it(const dlc_shares *shares, const dlc_rank_pace *pace,
                       const int64_t *count) {
    return dlc_shares_seconds(shares, pace, shares->count) >
           worth * dlc_shares_seconds(shares, pace, count);
}

/* `seconds`: of an iteration, on the rank that took longest. */
static dlc_status balance(dlc_session *session, const dlc_rank_pace *pace,
                          double seconds, int *changed) {
    dlc_shares *shares = &session->setup->shares;
    *changed = dlc_shares_prove(shares, seconds);
    if (*changed && session->rank == 0)
        dlc_info("with these shares iterations take longer than before, %.1f ms: back "
                 "to those",
                 seconds * 1e3);
    if (*changed || dlc_shares_are_held(shares, seconds))
        return DLC_OK;
    int64_t *count = dlc_alloc((size_t)shares->ranks, sizeof *count);
    if (!count)
        return DLC_ERR_NOMEM;
    dlc_shares_balance(shares, pace, count);
    *changed = is_worth_it(shares, pace, count);
    if (*changed)
        dlc_shares_take(shares, count, seconds);
    dlc_free(count);
    return DLC_OK;
}

/* What the ranks tell each other. */
typedef struct report {
    dlc_rank_pace pace;
    double seconds;
} report;

static dlc_status exchange(const dlc_session *session, const report *mine,
                           dlc_rank_pace *pace, double *seconds) {
    report *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_allgather(session->job, mine, sizeof *mine, all);
    *seconds = 0;
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++) {
        pace[r] = all[r].pace;
        *seconds = fmax(*seconds, all[r].seconds);
    }
    dlc_free(all);
    return status;
}

dlc_status dlc_speed_balance(dlc_session *session, dlc_rank_pace mine, double seconds,
                             int *changed) {
    dlc_rank_pace *pace = dlc_alloc((size_t)session->ranks, sizeof *pace);
    if (!pace)
        return DLC_ERR_NOMEM;
    dlc_status status = exchange(session, &(report){mine, seconds}, pace, &seconds);
    if (status == DLC_OK)
        status = balance(session, pace, seconds, changed);
    if (status == DLC_OK)
        announce(session, pace, *changed);
    dlc_free(pace);
    return status;
}

dlc_status dlc_speed_share(dlc_session *session, dlc_net *net, int64_t batch) {
    samples made = {0};
    double seconds = 0;
    int changed;
    if (!net) {
        DLC_TRY(dlc_job_barrier(session->job));
        return dlc_speed_balance(session, (dlc_rank_pace){0}, 0, &changed);
    }
    dlc_status status = make_samples(session, batch, &made);
    if (status == DLC_OK)
        status = dlc_net_set_input(net, made.data, made.labels);
    if (status == DLC_OK)
        status = measure(session, net, &seconds);
    dlc_free(made.data);
    dlc_free(made.labels);
    DLC_TRY(status);
    dlc_rank_pace mine = {.speed = (double)batch / seconds};
    return dlc_speed_balance(session, mine, 0, &changed);
}
