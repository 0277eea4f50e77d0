/* Runs passes in a session and reads the times of their operations. */
#include "time_measure.h"

#include "base/clock.h"
#include "base/memory.h"
#include "time_update.h"
#include "train/iterate.h"

/* Measuring ends after the largest number of passes, or after the time and the
 * smallest. */
enum { PASSES_FEWEST = 5, PASSES_MOST = 50, WARM_UP_FEWEST = 2, WARM_UP_MOST = 5 };
static const double max_seconds = 10, max_warm_up_seconds = 2;

typedef struct measuring {
    dlc_session *session;
    dlc_time_update *update;
    dlc_upload upload;
    int64_t iteration;
} measuring;

dlc_status dlc_time_pass(const dlc_session *session, dlc_upload *upload,
                         int64_t iteration, uint64_t *start) {
    int64_t batch;
    DLC_TRY(dlc_upload_next(upload, &batch));
    DLC_TRY(dlc_net_sync(session->net));
    *start = dlc_now_ns();
    DLC_TRY(dlc_net_forward(session->net, iteration, 0));
    return dlc_net_backward(session->net, 1, NULL, NULL);
}

/* Measures one pass with its update, in `seconds` (rows * TIME_PARTS). */
static dlc_status one_pass(measuring *m, double *seconds, double *whole) {
    uint64_t start;
    DLC_TRY(dlc_job_check(m->session->job));
    DLC_TRY(dlc_time_pass(m->session, &m->upload, m->iteration, &start));
    DLC_TRY(dlc_time_update_run(m->update, m->iteration, seconds));
    *whole = dlc_since(start);
    m->iteration++;
    return DLC_OK;
}

static dlc_status warm_up(measuring *m, size_t rows) {
    double whole, *nowhere = dlc_alloc(rows * TIME_PARTS, sizeof *nowhere);
    dlc_status status = nowhere ? DLC_OK : DLC_ERR_NOMEM;
    uint64_t start = dlc_now_ns();
    for (int done = 0; status == DLC_OK && done < WARM_UP_MOST; done++) {
        if (done >= WARM_UP_FEWEST && dlc_since(start) > max_warm_up_seconds)
            break;
        status = one_pass(m, nowhere, &whole);
    }
    dlc_free(nowhere);
    return status;
}

static int is_enough(size_t done, int passes, double seconds) {
    if (passes)
        return done >= (size_t)passes;
    return done >= PASSES_MOST || (done >= PASSES_FEWEST && seconds >= max_seconds);
}

static dlc_status measure_pass(measuring *m, dlc_time_samples *samples) {
    double *seconds = dlc_time_samples_add(samples);
    if (!seconds)
        return DLC_ERR_NOMEM;
    DLC_TRY(one_pass(m, seconds, &samples->whole[samples->passes - 1]));
    for (size_t i = 0; i < samples->rows; i++)
        dlc_net_seconds(m->session->net, (int32_t)i, seconds + i * TIME_PARTS);
    return DLC_OK;
}

static dlc_status measure(measuring *m, int passes, dlc_time_samples *samples) {
    dlc_session *session = m->session;
    DLC_TRY(dlc_upload_open(&m->upload));
    DLC_TRY(warm_up(m, samples->rows));
    dlc_net_time(session->net, 1);
    uint64_t start = dlc_now_ns();
    while (!is_enough(samples->passes, passes, dlc_since(start))) {
        if (samples->passes && dlc_job_requests(session->job) & DLC_JOB_STOP)
            break;
        DLC_TRY(measure_pass(m, samples));
    }
    dlc_net_time(session->net, 0);
    return DLC_OK;
}

static dlc_status read_rows(const dlc_session *session, dlc_time_measured *measured) {
    measured->samples.rows = (size_t)dlc_net_rows(session->net);
    measured->row = dlc_alloc(measured->samples.rows, sizeof *measured->row);
    measured->update = dlc_alloc(measured->samples.rows, sizeof *measured->update);
    if (!measured->row || !measured->update)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < measured->samples.rows; i++)
        DLC_TRY(dlc_net_row_at(session->net, (int32_t)i, &measured->row[i]));
    return DLC_OK;
}

dlc_status dlc_time_measure(dlc_session *session, int passes,
                            dlc_time_measured *measured) {
    measuring m = {.session = session, .upload = dlc_iterate_upload(session)};
    size_t rows;
    DLC_TRY(read_rows(session, measured));
    rows = measured->samples.rows;
    DLC_TRY(dlc_time_update_open(session, measured->row, rows, &m.update));
    for (size_t i = 0; i < rows; i++)
        measured->update[i] = dlc_time_update_work(m.update, i);
    dlc_status status = measure(&m, passes, &measured->samples);
    dlc_upload_close(&m.upload);
    dlc_time_update_close(m.update);
    return status;
}

void dlc_time_measured_free(dlc_time_measured *measured) {
    dlc_free(measured->row);
    dlc_free(measured->update);
    dlc_time_samples_free(&measured->samples);
    *measured = (dlc_time_measured){.row = NULL};
}

dlc_status dlc_time_feed(const dlc_session *session, double *images) {
    enum { READY_MOST = 4, BATCHES = 3 };
    const double seconds = 0.5, most_seconds = 5;
    dlc_batch batch;
    int64_t done = 0;
    uint64_t begin = dlc_now_ns();
    for (int i = 0; i < READY_MOST && dlc_since(begin) < most_seconds; i++)
        DLC_TRY(dlc_feed_next(session->feed, &batch));
    begin = dlc_now_ns();
    for (int i = 0; i < BATCHES || dlc_since(begin) < seconds; i++) {
        if (i && dlc_since(begin) > most_seconds)
            break;
        DLC_TRY(dlc_feed_next(session->feed, &batch));
        done += batch.samples;
    }
    *images = (double)done / dlc_since(begin);
    return DLC_OK;
}
