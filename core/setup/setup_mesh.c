/* Checks the settings of the mesh, and makes it. */
#include "setup/mesh_settings.h"
#include "setup/setup_checks.h"
#include "setup/stage_cut.h"

static dlc_status parse_mesh(dlc_setup *setup) {
    dlc_stage_cut cut = {0};
    DLC_TRY(dlc_stage_cut_parse(setup, &cut));
    dlc_status status = dlc_mesh_settings_parse(
        setup->parallel_settings, cut.stages, &setup->mesh_sizes, &setup->stage_ranks);
    dlc_stage_cut_free(&cut);
    return status;
}

void dlc_setup_check_mesh(dlc_setup *setup, dlc_problems *problems) {
    const dlc_settings *parallel = setup->parallel_settings;
    if (!setup->graph || problems->errors)
        return;
    dlc_status status = parse_mesh(setup);
    if (status != DLC_OK)
        dlc_problems_add_detail(
            problems, setup->config,
            dlc_settings_line(parallel, dlc_mesh_settings_key(parallel)), "parallel",
            status);
    else if (!dlc_settings_is_set(parallel, "ranks") && setup->ranks == 1)
        setup->ranks = dlc_mesh_least_ranks(&setup->mesh_sizes);
    if (setup->mesh_sizes.pipeline == 1 &&
        dlc_settings_get_int(parallel, "micro_batches") > 0)
        dlc_problems_warn(problems, setup->config,
                          dlc_settings_line(parallel, "micro_batches"),
                          "[parallel] micro_batches is ignored: there are no pipeline "
                          "stages");
}

static int wants_tensor(const dlc_setup *setup) {
    int wants = 0;
    for (int32_t i = 0; i < setup->graph->layers; i++)
        wants |= setup->graph->layer[i].parallel != DLC_PARALLEL_DATA;
    return wants && !setup->data_parallel_only;
}

int dlc_setup_divides_net(const dlc_setup *setup) {
    return setup->mesh_sizes.pipeline != 1 || setup->mesh_sizes.tensor > 1 ||
           wants_tensor(setup);
}

dlc_status dlc_setup_make_mesh(const dlc_setup *setup, int32_t ranks, dlc_mesh *mesh) {
    static const dlc_mesh_sizes alone = {.data = 1, .tensor = 1, .pipeline = 1};
    const dlc_settings *parallel = setup->parallel_settings;
    dlc_status status = dlc_mesh_make(ranks == 1 ? &alone : &setup->mesh_sizes, ranks,
                                      wants_tensor(setup), mesh);
    if (status == DLC_OK) {
        if (ranks > 1 && setup->batch_split.proportions == ranks)
            mesh->proportion = setup->batch_split.proportion;
        return DLC_OK;
    }
    const char *where = dlc_settings_where(parallel, dlc_mesh_settings_key(parallel));
    return dlc_fail(status, "%s: %s", where, dlc_detail());
}
