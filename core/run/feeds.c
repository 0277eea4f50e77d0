/* Derives the arguments of a session's feeds, and opens them. */
#include "run/feeds.h"

#include "parallel/pipeline/pipeline.h"
#include "session/loss_shares.h"
#include "setup/data_source.h"

/* Threads that convert samples. With a GPU the CPU cores are idle; more threads than
 * this would convert faster than one thread reads. */
static int32_t feed_threads(const dlc_session *session) {
    enum { MOST = 4 };
    int threads = session->queue ? dlc_job_threads(session->job) : 1;
    return threads < MOST ? threads : MOST;
}

/* Are samples uploaded as bytes, which the device converts to float32? That is a
 * quarter of the traffic, and a CPU converts too slowly for a GPU. Without an upload
 * queue, and in tests, batches are passed to the net as float32. */
static int feeds_bytes(const dlc_session *session, int test) {
    return dlc_session_async_queue(session) &&
           DLC_CAN(session->device_ops, normalize) && !test;
}

static dlc_feed_args feed_args(const dlc_session *session, dlc_phase phase) {
    const dlc_setup *setup = session->setup;
    int test = phase == DLC_PHASE_TEST;
    const dlc_data_setup *data = test ? &setup->test : &setup->train;
    dlc_feed_args args;
    dlc_data_source_feed(data, &args);
    args.seed = setup->seed;
    args.low_memory = dlc_settings_get_bool(setup->train_settings, "recompute");
    args.keep_bytes = feeds_bytes(session, test);
    args.device_ops = session->queue ? session->device_ops : NULL;
    args.device = session->device;
    args.test = test;
    args.rank = session->rank;
    args.ranks = session->ranks;
    if (!args.threads)
        args.threads = feed_threads(session);
    if (test) {
        args.count = (int32_t)data->batch;
        args.first = data->first;
        args.samples = data->count;
        if (data->needs_all)
            args.max_skipped = -1;
    } else {
        args.count = (int32_t)session->local_batch;
        args.batch = session->global_batch;
        args.offset = session->local_offset;
        args.ahead = dlc_loss_shares_ahead(session);
    }
    if (session->pipeline)
        dlc_pipeline_shape_feed(session->pipeline, &args);
    return args;
}

static dlc_status open_feed(dlc_session *session, dlc_phase phase, dlc_feed **feed) {
    dlc_feed_args args = feed_args(session, phase);
    return dlc_feed_open(&args, feed);
}

static int reads_batch(const dlc_session *session, dlc_phase phase) {
    return !session->pipeline || dlc_pipeline_reads_batch(session->pipeline, phase);
}

dlc_status dlc_feeds_open(dlc_session *session) {
    if (session->local_batch > 0 && reads_batch(session, DLC_PHASE_TRAIN))
        DLC_TRY(open_feed(session, DLC_PHASE_TRAIN, &session->feed));
    int tests = session->setup->test.source && reads_batch(session, DLC_PHASE_TEST);
    return tests ? dlc_feeds_open_test(session) : DLC_OK;
}

dlc_status dlc_feeds_open_test(dlc_session *session) {
    return open_feed(session, DLC_PHASE_TEST, &session->test_feed);
}

void dlc_feeds_close(dlc_session *session) {
    dlc_feed_close(session->test_feed);
    dlc_feed_close(session->feed);
}

dlc_status dlc_feeds_bytes(const dlc_session *session, dlc_phase phase, uint64_t *bytes,
                           uint64_t *batch) {
    dlc_feed_args args = feed_args(session, phase);
    return dlc_feed_bytes(&args, bytes, batch);
}
