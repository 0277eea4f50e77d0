/* Opens a data source, checks what it describes, and computes its digest. */
#include "setup/data_source.h"

#include <xxhash.h>

#include "base/memory.h"
#include "base/process.h"
#include "plugin/answers.h"
#include "plugin/object.h"

/* The decoders are loaded before the ranks are started, and by the first source that
 * needs them. */
static dlc_status open_decoders(dlc_setup *setup, dlc_data_setup *data) {
    if (!dlc_samples_are_encoded(&data->samples))
        return DLC_OK;
    if (!setup->decoders)
        DLC_TRY(dlc_decoders_open(setup->registry, &setup->decoders));
    data->decoders = setup->decoders;
    return DLC_OK;
}

dlc_status dlc_data_source_describe(dlc_setup *setup, dlc_data_setup *data) {
    DLC_TRY(dlc_samples_describe(data->feature->ops, data->source, &data->samples));
    data->info = data->samples.info;
    DLC_TRY(open_decoders(setup, data));
    return dlc_answer_check_data(data->feature, &data->info,
                                 dlc_samples_are_encoded(&data->samples));
}

dlc_status dlc_data_source_open(dlc_setup *setup, dlc_data_setup *data,
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
    char *endings = NULL;
    DLC_TRY(dlc_decoders_endings(setup->registry, &endings));
    args.image_endings = endings;
    dlc_process_return(); /* its paths may be relative */
    dlc_status status = DLC_ASK(ops, "open", ops->open(&args, &data->source));
    dlc_free(endings);
    DLC_TRY(status);
    DLC_TRY(dlc_answer_check_opened(data->feature, "open", data->source));
    return dlc_data_source_describe(setup, data);
}

void dlc_data_source_feed(const dlc_data_setup *data, dlc_feed_args *args) {
    *args = (dlc_feed_args){.ops = data->feature->ops,
                            .source = data->source,
                            .concurrent = (data->feature->caps & DLC_DATA_CONCURRENT) !=
                                          0,
                            .decoders = data->decoders,
                            .transforms = data->transforms,
                            .fields = data->fields};
    dlc_feed_configure(dlc_host_services(), data->settings, args);
}

/* Adds one sample to the digest. */
static dlc_status add_sample(const dlc_samples *samples, int64_t index,
                             dlc_read_sample *read, uint64_t *digest) {
    int32_t fields = samples->info.field_count;
    DLC_TRY(dlc_samples_read_fields(samples, index, (1u << fields) - 1, NULL, read));
    for (int32_t f = 0; f < fields; f++)
        if (read->value[f].data) /* NULL: an empty list of classes */
            *digest = XXH64(read->value[f].data, read->value[f].bytes, *digest);
    return DLC_OK;
}

dlc_status dlc_data_source_identify(dlc_data_setup *data) {
    enum { SAMPLES = 16 };
    int skips = dlc_settings_is(data->settings, "on_error", "skip");
    dlc_read_sample read = {0};
    dlc_status status = DLC_OK;
    uint64_t digest = 0;
    for (int64_t i = 0; status == DLC_OK && i < SAMPLES; i++) {
        status = add_sample(&data->samples,
                            i * (data->info.samples - 1) / (SAMPLES - 1), &read,
                            &digest);
        if (skips && status == DLC_ERR_DATA)
            status = DLC_OK; /* the feed says so when it needs the sample */
    }
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
