/* Opens a data source, checks what it describes, and computes its digest. */
#include "setup/data_source.h"

#include <xxhash.h>

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
    DLC_TRY(dlc_samples_describe(ops, data->source, &data->samples));
    data->info = data->samples.info;
    return dlc_answer_check_data(data->feature, &data->info,
                                 dlc_samples_are_encoded(&data->samples));
}

/* Adds one sample to the digest. */
static dlc_status add_sample(const dlc_samples *samples, int64_t index,
                             dlc_read_sample *read, uint64_t *digest) {
    DLC_TRY(dlc_samples_read(samples, index, 0, NULL, read));
    const dlc_value *image = &read->value[samples->image];
    *digest = XXH64(&read->label, sizeof read->label, *digest);
    *digest = XXH64(image->data, image->bytes, *digest);
    return DLC_OK;
}

dlc_status dlc_data_source_identify(dlc_data_setup *data) {
    enum { SAMPLES = 16 };
    dlc_read_sample read = {0};
    dlc_status status = DLC_OK;
    uint64_t digest = 0;
    for (int64_t i = 0; status == DLC_OK && i < SAMPLES; i++)
        status = add_sample(&data->samples,
                            i * (data->info.samples - 1) / (SAMPLES - 1), &read,
                            &digest);
    if (status == DLC_OK)
        data->digest = digest;
    dlc_read_sample_free(&read);
    return status;
}

void dlc_data_source_close(dlc_data_setup *data) {
    if (!data->source)
        return;
    const dlc_data_ops *ops = data->feature->ops;
    ops->close(data->source);
    data->source = NULL;
}
