/* Runs a test: sums each metric over this rank's batches, then over the ranks. */
#include "train/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/tensor/tensor_parallel.h"
#include "run/test_output.h"
#include "session/averages.h"
#include "session/ema.h"

/* Lists the net's metrics, which have their names even if this rank has no samples. */
static dlc_status list_net_metrics(dlc_session *session, dlc_evaluation *evaluation) {
    evaluation->metrics = dlc_net_metrics(session->test_net);
    if (evaluation->metrics > DLC_MAX_METRICS)
        evaluation->metrics = DLC_MAX_METRICS;
    for (int32_t j = 0; j < evaluation->metrics; j++) {
        dlc_metric *metric = &evaluation->metric[j];
        DLC_TRY(dlc_net_metric(session->test_net, j, metric));
        metric->sum = metric->count = 0;
    }
    return DLC_OK;
}

/* Hands out the output of one batch. The ranks split the samples as the feed does. */
static dlc_status hand_out(const dlc_session *session,
                           const dlc_evaluation_reader *reader, const dlc_batch *from) {
    int64_t begin = dlc_feed_test_samples(session->test_feed) * session->rank /
                    session->ranks;
    dlc_evaluation_batch batch = {.first = begin +
                                           from->iteration * session->setup->test.batch,
                                  .samples = from->samples,
                                  .labels = from->labels,
                                  .each = session->output.values,
                                  .field = from->field};
    DLC_TRY(dlc_test_output_read(session, &batch.values));
    return reader->take(reader->context, &batch);
}

/* Adds the metrics of one batch. */
static dlc_status test_whole_batch(dlc_session *session,
                                   const dlc_evaluation_reader *reader,
                                   dlc_evaluation *evaluation) {
    dlc_batch batch;
    DLC_TRY(dlc_job_check(session->job));
    DLC_TRY(dlc_feed_next(session->test_feed, &batch));
    DLC_TRY(dlc_net_set_batch(session->test_net, batch.field));
    DLC_TRY(dlc_net_forward(session->test_net, session->iteration, 0));
    DLC_TRY(dlc_net_sync(session->test_net));
    if (reader)
        DLC_TRY(hand_out(session, reader, &batch));
    for (int32_t j = 0; j < evaluation->metrics; j++) {
        dlc_metric metric;
        DLC_TRY(dlc_net_metric(session->test_net, j, &metric));
        evaluation->metric[j].sum += metric.sum;
        evaluation->metric[j].count += metric.count;
    }
    return DLC_OK;
}

/* Makes a batch of samples that count in no metric the input of the test net. */
static dlc_status set_padding(dlc_session *session, void *value[DLC_NET_FIELDS]) {
    const dlc_net_fields *fields = dlc_net_batch_fields(session->test_net);
    const void *batch[DLC_NET_FIELDS];
    size_t samples = (size_t)session->setup->test.batch;
    for (int32_t i = 0; i < fields->count; i++) {
        const dlc_net_field *field = &fields->field[i];
        size_t bytes = samples * dlc_net_field_bytes(field);
        batch[i] = value[i] = dlc_alloc(bytes, 1);
        if (!value[i])
            return DLC_ERR_NOMEM;
        if (field->is_label)
            memset(value[i], 0xff, bytes);
    }
    return dlc_net_set_batch(session->test_net, batch);
}

/* Runs passes of the test net on samples without labels. */
static dlc_status pad_passes(dlc_session *session, int64_t passes) {
    void *value[DLC_NET_FIELDS] = {NULL};
    dlc_status status = set_padding(session, value);
    for (; status == DLC_OK && passes > 0; passes--)
        status = dlc_net_forward(session->test_net, session->iteration, 0);
    if (status == DLC_OK)
        status = dlc_net_sync(session->test_net);
    for (int32_t i = 0; i < DLC_NET_FIELDS; i++)
        dlc_free(value[i]);
    return status;
}

/* Sums each metric over this rank's part of the test set. */
static dlc_status sum_batches(dlc_session *session, const dlc_evaluation_reader *reader,
                              dlc_evaluation *evaluation) {
    if (session->pipeline)
        return dlc_pipeline_test(session->pipeline, evaluation);
    int64_t batches = dlc_feed_batches(session->test_feed), passes = batches;
    DLC_TRY(list_net_metrics(session, evaluation));
    if (session->tensor)
        DLC_TRY(dlc_tensor_parallel_count_test_passes(session->tensor, &passes));
    DLC_TRY(dlc_feed_seek(session->test_feed, 0));
    for (int64_t i = 0; i < batches; i++)
        DLC_TRY(test_whole_batch(session, reader, evaluation));
    return passes > batches ? pad_passes(session, passes - batches) : DLC_OK;
}

typedef struct partial_sum {
    double sum[DLC_MAX_METRICS], count[DLC_MAX_METRICS];
} partial_sum;

/* Adds up the ranks' sums, in rank order. */
static dlc_status sum_ranks(dlc_session *session, dlc_evaluation *evaluation) {
    partial_sum mine = {{0}, {0}};
    for (int32_t j = 0; j < evaluation->metrics; j++) {
        mine.sum[j] = evaluation->metric[j].sum;
        mine.count[j] = evaluation->metric[j].count;
    }
    partial_sum *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &mine, sizeof mine, all);
    for (int32_t j = 0; status == DLC_OK && j < evaluation->metrics; j++) {
        dlc_metric *metric = &evaluation->metric[j];
        metric->sum = metric->count = 0;
        for (int32_t r = 0; r < session->ranks; r++) {
            metric->sum += all[r].sum[j];
            metric->count += all[r].count[j];
        }
    }
    dlc_free(all);
    return status;
}

static void summarize(dlc_evaluation *evaluation) {
    int32_t accuracies = 0;
    double loss = 0;
    evaluation->loss = evaluation->accuracy = (double)NAN;
    for (int32_t j = 0; j < evaluation->metrics; j++) {
        const dlc_metric *metric = &evaluation->metric[j];
        if (!metric->is_loss && !accuracies++)
            evaluation->accuracy = dlc_metric_mean(metric);
        if (!metric->is_loss)
            continue;
        evaluation->is_one_loss = !evaluation->losses++ && metric->weight == 1;
        if (metric->count > 0)
            evaluation->loss = loss += metric->weight * dlc_metric_mean(metric);
    }
}

dlc_status dlc_evaluate(dlc_session *session, const dlc_evaluation_reader *reader,
                        dlc_evaluation *evaluation) {
    uint64_t start = dlc_now_ns();
    *evaluation = (dlc_evaluation){.metrics = 0};
    dlc_memory own;
    DLC_TRY(dlc_session_ema_test_begin(session));
    dlc_status status = dlc_averages_begin(session, &own);
    if (status == DLC_OK)
        status = sum_batches(session, reader, evaluation);
    if (status == DLC_OK)
        status = dlc_session_ema_test_end(session);
    dlc_status ended = dlc_averages_end(session, &own);
    DLC_TRY(status == DLC_OK ? ended : status);
    DLC_TRY(sum_ranks(session, evaluation));
    summarize(evaluation);
    evaluation->seconds = dlc_since(start);
    return DLC_OK;
}
