/* What is logged of the mesh and of a pipeline, and their parts of the JSON report. */
#include "parallel/pipeline/pipeline.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

/* ---- The mesh ---------------------------------------------------------------- */

/* The hosts of a stage's ranks, each once, if the job has several. */
static void add_hosts(const dlc_session *session, int32_t stage, dlc_text *text) {
    const char *before = dlc_job_rank_info(session->job, 0)->host;
    int32_t first = dlc_mesh_stage_first(&session->mesh, stage);
    int32_t end = first + dlc_mesh_stage_ranks(&session->mesh, stage);
    int several = 0;
    for (int32_t r = 1; r < session->ranks; r++)
        several |= strcmp(dlc_job_rank_info(session->job, r)->host, before) != 0;
    for (int32_t r = first; several && r < end; r++) {
        const char *host = dlc_job_rank_info(session->job, r)->host;
        if (r == first || strcmp(host, before) != 0)
            dlc_text_add(text, "%s%s", r == first ? " on " : ", ", host);
        before = host;
    }
}

void dlc_mesh_announce(const dlc_session *session) {
    const dlc_mesh *mesh = &session->mesh;
    if (mesh->pipeline * mesh->tensor == 1)
        return;
    dlc_info("mesh: pipeline %d x data %d x tensor %d%s", (int)mesh->pipeline,
             (int)dlc_mesh_data(mesh), (int)mesh->tensor,
             mesh->stage_ranks ? ", fewer in some stages" : "");
    for (int32_t s = 0; s < mesh->pipeline; s++) {
        dlc_text text = {0};
        dlc_mesh_print(mesh, s, &text);
        add_hosts(session, s, &text);
        dlc_info("    stage %d: ranks %s", (int)s + 1, dlc_text_string(&text));
        dlc_text_free(&text);
    }
}

void dlc_mesh_json(const dlc_mesh *mesh, dlc_json *json) {
    dlc_json_object(json, "mesh");
    dlc_json_int(json, "data", dlc_mesh_data(mesh));
    dlc_json_int(json, "tensor", mesh->tensor);
    dlc_json_int(json, "pipeline", mesh->pipeline);
    dlc_json_array(json, "pipeline_ranks");
    for (int32_t s = 0; s < mesh->pipeline; s++)
        dlc_json_int(json, NULL, dlc_mesh_stage_ranks(mesh, s));
    dlc_json_end_array(json);
    dlc_json_end_object(json);
}

/* ---- The pipeline ------------------------------------------------------------ */

void dlc_pipeline_announce(const dlc_pipeline *pipeline) {
    const dlc_session *session = pipeline->session;
    const dlc_mesh *mesh = &session->mesh;
    dlc_info("%d stages; the %" PRId64 " samples of a batch go through them as %d "
             "micro-batch%s of %" PRId64 ", so that equal stages would be idle for "
             "%.1f %% of the time (bubble)",
             (int)mesh->pipeline, session->global_batch, (int)pipeline->micro_batches,
             pipeline->micro_batches == 1 ? "" : "es", session->stage_samples.train,
             100 * dlc_work_order_bubble(mesh->pipeline, pipeline->micro_batches));
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
        100 * dlc_work_order_bubble(pipeline->stages.mesh.pipeline,
                                    pipeline->micro_batches),
        total->sent / (double)passes / 1e6);
    dlc_text_free(&text);
}

dlc_status dlc_pipeline_report(dlc_pipeline *pipeline) {
    const dlc_session *session = pipeline->session;
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

void dlc_pipeline_json(const dlc_pipeline *pipeline, dlc_json *json) {
    dlc_json_int(json, "micro_batches", pipeline ? pipeline->micro_batches : 1);
    dlc_json_array(json, "stage_bytes");
    for (int32_t s = 0; pipeline && s < pipeline->stages.mesh.pipeline; s++)
        dlc_json_int(json, NULL, (int64_t)pipeline->memory[s]);
    dlc_json_end_array(json);
    dlc_json_number(json, "bubble", pipeline ? pipeline->bubble : 0);
}

void dlc_pipeline_describe(const dlc_pipeline *pipeline, dlc_text *text,
                           dlc_json *json) {
    const dlc_stages *stages = &pipeline->stages;
    if (text)
        dlc_text_add(text, "stage %d of %d, micro-batches of %" PRId64 " samples",
                     (int)stages->stage + 1, (int)stages->mesh.pipeline,
                     pipeline->micro_batch_size);
    if (json) {
        dlc_json_int(json, "stage", stages->stage);
        dlc_json_int(json, "micro_batch", pipeline->micro_batch_size);
    }
}
