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

static void announce(const dlc_session *session, const double *speed, int changed) {
    const dlc_shares *shares = &session->setup->shares;
    dlc_text list = {0};
    if (session->rank != 0)
        return;
    dlc_shares_print(shares, &list);
    for (int32_t r = 0; r < shares->ranks - shares->servers; r++)
        dlc_info("rank %" PRId32 ": %.0f samples/s, share %" PRId64, r, speed[r],
                 shares->count[r]);
    dlc_info("%s shares; to repeat this run: --set run.shares=%s",
             changed ? "new" : "as before are the", dlc_text_string(&list));
    dlc_json event = dlc_log_event_begin("shares");
    dlc_json_int(&event, "iteration", session->iteration);
    dlc_json_string(&event, "shares", dlc_text_string(&list));
    dlc_json_array(&event, "samples_per_s");
    for (int32_t r = 0; r < shares->ranks - shares->servers; r++)
        dlc_json_number(&event, NULL, speed[r]);
    dlc_json_end_array(&event);
    dlc_log_event_end(&event);
    dlc_text_free(&list);
}

/* All ranks have the same numbers, and decide alike. */
static int is_worth_it(const dlc_shares *shares, const double *speed,
                       const int64_t *count) {
    return dlc_shares_seconds(shares, speed, shares->count) >
           worth * dlc_shares_seconds(shares, speed, count);
}

static dlc_status balance(dlc_session *session, const double *speed, int *changed) {
    dlc_shares *shares = &session->setup->shares;
    int64_t *count = dlc_alloc((size_t)shares->ranks, sizeof *count);
    if (!count)
        return DLC_ERR_NOMEM;
    dlc_shares_balance(shares, speed, count);
    *changed = is_worth_it(shares, speed, count);
    if (*changed)
        dlc_shares_take(shares, count);
    dlc_free(count);
    return DLC_OK;
}

dlc_status dlc_speed_balance(dlc_session *session, double mine, int *changed) {
    double *speed = dlc_alloc((size_t)session->ranks, sizeof *speed);
    if (!speed)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_allgather(session->job, &mine, sizeof mine, speed);
    if (status == DLC_OK)
        status = balance(session, speed, changed);
    if (status == DLC_OK)
        announce(session, speed, *changed);
    dlc_free(speed);
    return status;
}

dlc_status dlc_speed_share(dlc_session *session, dlc_net *net, int64_t batch) {
    samples made = {0};
    double seconds = 0;
    int changed;
    if (!net) {
        DLC_TRY(dlc_job_barrier(session->job));
        return dlc_speed_balance(session, 0, &changed);
    }
    dlc_status status = make_samples(session, batch, &made);
    if (status == DLC_OK)
        status = dlc_net_set_input(net, made.data, made.labels);
    if (status == DLC_OK)
        status = measure(session, net, &seconds);
    dlc_free(made.data);
    dlc_free(made.labels);
    DLC_TRY(status);
    return dlc_speed_balance(session, (double)batch / seconds, &changed);
}
