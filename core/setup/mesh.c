/* Arithmetic of the mesh: rank = (stage * data + data coordinate) * tensor + tensor
 * coordinate. */
#include "setup/mesh.h"

dlc_status dlc_mesh_make(int32_t ranks, int32_t pipeline, int32_t tensor,
                         dlc_mesh *mesh) {
    if (pipeline < 1 || ranks % pipeline != 0)
        return dlc_fail(DLC_ERR_CONFIG, "%d ranks cannot be split among %d stages",
                        (int)ranks, (int)pipeline);
    int32_t each = ranks / pipeline;
    if (tensor == 0)
        tensor = each;
    if (tensor < 0 || each % tensor != 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "the %d ranks of a stage cannot be split into tensor groups of "
                        "%d ranks",
                        (int)each, (int)tensor);
    *mesh = (dlc_mesh){.pipeline = pipeline, .data = each / tensor, .tensor = tensor};
    return DLC_OK;
}

dlc_mesh_place dlc_mesh_place_of(const dlc_mesh *mesh, int32_t rank) {
    return (dlc_mesh_place){.stage = rank / mesh->tensor / mesh->data,
                            .data = rank / mesh->tensor % mesh->data,
                            .tensor = rank % mesh->tensor};
}

int32_t dlc_mesh_rank_at(const dlc_mesh *mesh, const dlc_mesh_place *place) {
    return (place->stage * mesh->data + place->data) * mesh->tensor + place->tensor;
}

dlc_mesh_group dlc_mesh_stage_group(const dlc_mesh *mesh, int32_t rank) {
    int32_t ranks = mesh->data * mesh->tensor;
    return (dlc_mesh_group){.first = rank - rank % ranks, .stride = 1, .ranks = ranks};
}

dlc_mesh_group dlc_mesh_tensor_group(const dlc_mesh *mesh, int32_t rank) {
    return (dlc_mesh_group){
        .first = rank - rank % mesh->tensor, .stride = 1, .ranks = mesh->tensor};
}

dlc_mesh_group dlc_mesh_data_group(const dlc_mesh *mesh, int32_t rank) {
    return (dlc_mesh_group){.first = dlc_mesh_stage_group(mesh, rank).first +
                                     rank % mesh->tensor,
                            .stride = mesh->tensor,
                            .ranks = mesh->data};
}
