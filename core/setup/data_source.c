/* Opens a data source, checks what it describes, and computes its digest. */
#include "setup/data_source.h"

#include <xxhash.h>

#include "base/memory.h"
#include "plugin/answers.h"

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
    return dlc_answer_check_data(data->feature, &data->info);
}

dlc_status dlc_data_source_identify(dlc_data_setup *data) {
    enum { SAMPLES = 16 };
    const dlc_data_ops *ops = data->feature->ops;
    size_t element = data->info.dtype == DLC_U8 ? 1 : sizeof(float);
    size_t bytes = SAMPLES * (size_t)dlc_shape_count(&data->info.shape) * element;
    int64_t index[SAMPLES];
    int32_t labels[SAMPLES] = {0};
    for (int64_t i = 0; i < SAMPLES; i++)
        index[i] = i * (data->info.samples - 1) / (SAMPLES - 1);
    char *samples = dlc_alloc(bytes, 1);
    dlc_status status = samples
                            ? ops->read(data->source, SAMPLES, index, samples, labels)
                            : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        data->digest = XXH64(samples, bytes, XXH64(labels, sizeof labels, 0));
    dlc_free(samples);
    return status;
}

void dlc_data_source_close(dlc_data_setup *data) {
    if (!data->source)
        return;
    const dlc_data_ops *ops = data->feature->ops;
    ops->close(data->source);
    data->source = NULL;
}
