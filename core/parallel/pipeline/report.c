/* What a pipeline logs, and its part of the JSON report. */
#include "parallel/pipeline/pipeline.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

void dlc_pipeline_announce(const dlc_axis *axis) {
    const dlc_session *session = axis->session;
    const dlc_pipeline *pipeline = axis->state;
    if (session->rank != 0)
        return;
    const dlc_mesh *mesh = &session->mesh;
    dlc_info("%d stages; the %" PRId64 " samples of a batch go through them as %d "
             "micro-batch%s of %" PRId64 ", so that equal stages would be idle for "
             "%.1f %% of the time (bubble)",
             (int)mesh->pipeline, session->global_batch, (int)pipeline->micro_batches,
             pipeline->micro_batches == 1 ? "" : "es", session->stage_samples.train,
             100 * dlc_schedule_1f1b_bubble(mesh->pipeline, pipeline->micro_batches));
    dlc_text text = {0};
    for (int32_t s = 0; s < mesh->pipeline; s++)
        dlc_text_add(&text, "%s%.1f MB", s ? ", " : "",
                     (double)pipeline->memory[s] / 1e6);
    dlc_info(
        "memory for micro-batches in flight, by stage: %s; more micro-batches of this "
        "size need no more",
        dlc_text_string(&text));
    dlc_text_free(&text);
}

/* The mean busy time over the ranks of a stage, in percent of `all`. */
static void add_busy(const dlc_pipeline *pipeline, const dlc_pipeline_times *times,
                     double all, int32_t stage, dlc_text *text) {
    const dlc_mesh *mesh = &pipeline->stages.mesh;
    int32_t first = dlc_mesh_stage_first(mesh, stage);
    int32_t ranks = dlc_mesh_stage_ranks(mesh, stage);
    double sum = 0;
    for (int32_t r = first; r < first + ranks; r++)
        sum += times[r].busy;
    dlc_text_add(text, "%s%.0f %%", stage ? ", " : "", 100 * sum / ranks / all);
}

static void log_times(const dlc_pipeline *pipeline, const dlc_pipeline_times *times,
                      const dlc_pipeline_times *total) {
    int64_t passes = pipeline->passes > DLC_PIPELINE_WARM_UP
                         ? pipeline->passes - DLC_PIPELINE_WARM_UP
                         : pipeline->passes;
    dlc_text text = {0};
    for (int32_t s = 0; s < pipeline->stages.mesh.pipeline; s++)
        add_busy(pipeline, times, total->elapsed, s, &text);
    dlc_info(
        "pipeline: stages were busy for %s of the time; %.1f %% were bubbles "
        "(%.1f %% with equal stages and messages that take no time); %.2f MB per pass "
        "were sent between stages",
        dlc_text_string(&text), 100 * pipeline->bubble,
        100 * dlc_schedule_1f1b_bubble(pipeline->stages.mesh.pipeline,
                                       pipeline->micro_batches),
        total->sent / (double)passes / 1e6);
    dlc_text_free(&text);
}

dlc_status dlc_pipeline_report(dlc_axis *axis, double *images_per_s) {
    const dlc_session *session = axis->session;
    dlc_pipeline *pipeline = axis->state;
    (void)images_per_s;
    dlc_pipeline_times *times = dlc_alloc((size_t)session->ranks, sizeof *times);
    if (!times)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &pipeline->times,
                                           sizeof *times, times);
    dlc_pipeline_times total = {0};
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++) {
        total.busy += times[r].busy;
        total.sent += times[r].sent;
        total.elapsed = times[r].elapsed > total.elapsed ? times[r].elapsed
                                                         : total.elapsed;
    }
    if (status == DLC_OK && total.elapsed > 0) {
        pipeline->bubble = 1 - total.busy / (total.elapsed * session->ranks);
        if (session->rank == 0)
            log_times(pipeline, times, &total);
    }
    dlc_free(times);
    return status;
}

void dlc_pipeline_json(const dlc_axis *axis, dlc_json *json) {
    const dlc_pipeline *pipeline = axis->state;
    dlc_json_int(json, "micro_batches", pipeline ? pipeline->micro_batches : 1);
    dlc_json_array(json, "stage_bytes");
    for (int32_t s = 0; pipeline && s < pipeline->stages.mesh.pipeline; s++)
        dlc_json_int(json, NULL, (int64_t)pipeline->memory[s]);
    dlc_json_end_array(json);
    dlc_json_number(json, "bubble", pipeline ? pipeline->bubble : 0);
}

void dlc_pipeline_part(const dlc_axis *axis, dlc_rank_part *part) {
    const dlc_pipeline *pipeline = axis->state;
    part->ranks = dlc_mesh_stage_ranks(&pipeline->stages.mesh, pipeline->stages.stage);
    part->samples = pipeline->micro_batch_size;
    if (part->text)
        dlc_text_add(part->text, "stage %d of %d, micro-batches of %" PRId64 " samples",
                     (int)pipeline->stages.stage + 1,
                     (int)pipeline->stages.mesh.pipeline, pipeline->micro_batch_size);
    if (part->json) {
        dlc_json_int(part->json, "stage", pipeline->stages.stage);
        dlc_json_int(part->json, "micro_batch", pipeline->micro_batch_size);
    }
}
