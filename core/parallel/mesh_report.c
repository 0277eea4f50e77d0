/* Describes the mesh. */
#include "parallel/mesh_report.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "session/session.h"

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

static dlc_status plan(dlc_axis *axis) {
    axis->in_use = 1;
    return DLC_OK;
}

static void announce(const dlc_axis *axis) {
    const dlc_session *session = axis->session;
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

static void write_json(const dlc_axis *axis, dlc_json *json) {
    const dlc_mesh *mesh = &axis->session->mesh;
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

const dlc_axis_ops dlc_mesh_axis = {
    .name = "mesh", .plan = plan, .announce = announce, .json = write_json};
