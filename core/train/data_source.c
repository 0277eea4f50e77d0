/* See data_source.h. */
#include "train/data_source.h"

dlc_status dlc_data_source_open(const dlc_setup *setup, dlc_data_setup *data,
                                const dlc_data_info *classes) {
    if (!data->present || data->source)
        return DLC_OK;
    const dlc_data_ops *ops = data->feature->ops;
    dlc_data_args args = {
        .size = sizeof args, .settings = data->settings, .seed = setup->seed};
    if (classes) {
        args.class_names = classes->class_names;
        args.classes = classes->classes;
    }
    DLC_TRY(ops->open(&args, &data->source));
    data->info = (dlc_data_info){.size = sizeof data->info};
    DLC_TRY(ops->describe(data->source, &data->info));
    if (data->info.samples < 1 || data->info.shape.rank < 1 ||
        data->info.shape.rank >= DLC_MAX_DIMS)
        return dlc_fail(DLC_ERR_DATA,
                        "%s: the source '%s' has no samples of a shape "
                        "that a net can read",
                        dlc_settings_where(data->settings, "source"),
                        data->feature->name);
    return DLC_OK;
}

void dlc_data_source_close(dlc_data_setup *data) {
    if (!data->source)
        return;
    const dlc_data_ops *ops = data->feature->ops;
    ops->close(data->source);
    data->source = NULL;
}
