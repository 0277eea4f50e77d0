/* Arithmetic of the mesh: a stage's ranks follow each other, tensor group by tensor
 * group. */
#include "setup/mesh.h"

#include "base/slice.h"

static int32_t at_least_1(int32_t size) {
    return size > 1 ? size : 1;
}

/* ---- Making ---------------------------------------------------------------------- */

static int32_t sum_of_stages(const dlc_mesh_sizes *sizes) {
    int32_t sum = 0;
    for (int32_t s = 0; s < sizes->pipeline; s++)
        sum += sizes->stage_ranks[s];
    return sum;
}

int32_t dlc_mesh_least_ranks(const dlc_mesh_sizes *sizes) {
    return sizes->stage_ranks ? sum_of_stages(sizes)
                              : at_least_1(sizes->data) * at_least_1(sizes->tensor) *
                                    at_least_1(sizes->pipeline);
}

/* The ranks that every stage can be divided by. */
static int32_t divisor_of_stages(const dlc_mesh *mesh) {
    int32_t divisor = 0;
    for (int32_t s = 0; s < mesh->pipeline; s++)
        divisor = (int32_t)dlc_common_divisor(dlc_mesh_stage_ranks(mesh, s), divisor);
    return divisor;
}

static dlc_status check_stages(const dlc_mesh_sizes *sizes, const dlc_mesh *mesh) {
    if (sizes->stage_ranks && sum_of_stages(sizes) != mesh->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "pipeline_ranks names %d ranks, but there are %d; their sum "
                        "must be the number of ranks",
                        (int)sum_of_stages(sizes), (int)mesh->ranks);
    if (!sizes->stage_ranks && mesh->ranks % mesh->pipeline != 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%d ranks cannot be split among %d stages; use a multiple of "
                        "%d ranks, other stages, or pipeline_ranks",
                        (int)mesh->ranks, (int)mesh->pipeline, (int)mesh->pipeline);
    return DLC_OK;
}

static dlc_status check_groups(const dlc_mesh_sizes *sizes, const dlc_mesh *mesh) {
    for (int32_t s = 0; s < mesh->pipeline; s++) {
        int32_t ranks = dlc_mesh_stage_ranks(mesh, s);
        if (ranks % mesh->tensor != 0)
            return dlc_fail(DLC_ERR_CONFIG,
                            "the %d ranks of a stage cannot be split into tensor "
                            "groups of %d ranks",
                            (int)ranks, (int)mesh->tensor);
        if (sizes->data && sizes->data * mesh->tensor != ranks)
            return dlc_fail(DLC_ERR_CONFIG,
                            "data %d x tensor %d makes %d ranks of a stage, but it has "
                            "%d; their product with pipeline must be the number of "
                            "ranks",
                            (int)sizes->data, (int)mesh->tensor,
                            (int)(sizes->data * mesh->tensor), (int)ranks);
    }
    return DLC_OK;
}

dlc_status dlc_mesh_make(const dlc_mesh_sizes *sizes, int32_t ranks, int wants_tensor,
                         dlc_mesh *mesh) {
    int32_t inside = at_least_1(sizes->data) * at_least_1(sizes->tensor);
    dlc_mesh made = {.ranks = ranks,
                     .pipeline = sizes->pipeline,
                     .tensor = at_least_1(sizes->tensor),
                     .stage_ranks = sizes->stage_ranks};
    if (!sizes->pipeline)
        made.pipeline = at_least_1(ranks / inside);
    DLC_TRY(check_stages(sizes, &made));
    if (sizes->pipeline && !sizes->tensor && wants_tensor)
        made.tensor = at_least_1(divisor_of_stages(&made) / at_least_1(sizes->data));
    DLC_TRY(check_groups(sizes, &made));
    *mesh = made;
    return DLC_OK;
}

/* ---- Ranks ----------------------------------------------------------------------- */

int32_t dlc_mesh_stage_ranks(const dlc_mesh *mesh, int32_t stage) {
    return mesh->stage_ranks ? mesh->stage_ranks[stage] : mesh->ranks / mesh->pipeline;
}

int32_t dlc_mesh_stage_first(const dlc_mesh *mesh, int32_t stage) {
    int32_t first = 0;
    for (int32_t s = 0; s < stage; s++)
        first += dlc_mesh_stage_ranks(mesh, s);
    return first;
}

int32_t dlc_mesh_data(const dlc_mesh *mesh) {
    int32_t most = 0;
    for (int32_t s = 0; s < mesh->pipeline; s++)
        if (dlc_mesh_stage_ranks(mesh, s) > most)
            most = dlc_mesh_stage_ranks(mesh, s);
    return most / mesh->tensor;
}

dlc_mesh_place dlc_mesh_place_of(const dlc_mesh *mesh, int32_t rank) {
    dlc_mesh_place place = {0};
    for (; rank >= dlc_mesh_stage_ranks(mesh, place.stage); place.stage++)
        rank -= dlc_mesh_stage_ranks(mesh, place.stage);
    place.data = rank / mesh->tensor;
    place.tensor = rank % mesh->tensor;
    return place;
}

/* ---- Groups ---------------------------------------------------------------------- */

dlc_mesh_group dlc_mesh_stage_group(const dlc_mesh *mesh, int32_t rank) {
    int32_t stage = dlc_mesh_place_of(mesh, rank).stage;
    return (dlc_mesh_group){.first = dlc_mesh_stage_first(mesh, stage),
                            .stride = 1,
                            .ranks = dlc_mesh_stage_ranks(mesh, stage)};
}

dlc_mesh_group dlc_mesh_tensor_group(const dlc_mesh *mesh, int32_t rank) {
    return (dlc_mesh_group){.first = rank - dlc_mesh_place_of(mesh, rank).tensor,
                            .stride = 1,
                            .ranks = mesh->tensor};
}

dlc_mesh_group dlc_mesh_data_group(const dlc_mesh *mesh, int32_t rank) {
    dlc_mesh_group stage = dlc_mesh_stage_group(mesh, rank);
    return (dlc_mesh_group){.first = stage.first + dlc_mesh_place_of(mesh, rank).tensor,
                            .stride = mesh->tensor,
                            .ranks = stage.ranks / mesh->tensor};
}

dlc_mesh_group dlc_mesh_column(const dlc_mesh *mesh, int32_t rank) {
    int32_t each = dlc_mesh_data(mesh) * mesh->tensor;
    if (each * mesh->pipeline != mesh->ranks)
        return (dlc_mesh_group){.ranks = 0};
    return (dlc_mesh_group){.first = rank - dlc_mesh_stage_group(mesh, rank).first,
                            .stride = each,
                            .ranks = mesh->pipeline};
}

/* ---- Samples --------------------------------------------------------------------- */

/* Where the samples of the first `ranks` ranks of a stage end. */
static int64_t end_of(const dlc_mesh *mesh, dlc_mesh_group stage, int64_t samples,
                      int32_t ranks) {
    double sum = 0, before = 0;
    int64_t end = 0;
    if (!mesh->proportion)
        return samples * ranks / stage.ranks;
    for (int32_t r = 0; r < stage.ranks; r++)
        sum += mesh->proportion[stage.first + r];
    for (int32_t r = 0; r < ranks; r++) {
        int64_t most = samples - (stage.ranks - 1 - r);
        before += mesh->proportion[stage.first + r];
        int64_t next = (int64_t)((double)samples * before / sum + 0.5);
        end = next > end ? next : end + 1;
        end = end < most ? end : most;
    }
    return end;
}

void dlc_mesh_samples(const dlc_mesh *mesh, int32_t rank, int64_t samples,
                      int64_t *begin, int64_t *count) {
    dlc_mesh_group stage = dlc_mesh_stage_group(mesh, rank);
    int32_t before = rank - stage.first;
    *begin = end_of(mesh, stage, samples, before);
    *count = end_of(mesh, stage, samples, before + 1) - *begin;
}

void dlc_mesh_print(const dlc_mesh *mesh, int32_t stage, dlc_text *text) {
    int32_t first = dlc_mesh_stage_first(mesh, stage);
    int32_t end = first + dlc_mesh_stage_ranks(mesh, stage);
    for (int32_t r = first; r < end; r++) {
        int32_t place = (r - first) % mesh->tensor;
        dlc_text_add(text, "%s%s%d%s", r > first ? " " : "",
                     place == 0 && mesh->tensor > 1 ? "(" : "", (int)r,
                     place == mesh->tensor - 1 && mesh->tensor > 1 ? ")" : "");
    }
}
