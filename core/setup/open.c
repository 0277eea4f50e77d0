/* Opens a setup: looks up the plugins that net.ini names, checks every section against
 * their option tables, and answers questions about ranks and batches. */
#include "base/text.h"
#include "setup/setup.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/feed.h"
#include "plugin/object.h"
#include "setup/classes.h"
#include "setup/data_source.h"
#include "setup/device_indices.h"
#include "setup/fields.h"
#include "setup/mesh_settings.h"
#include "setup/setup_checks.h"
#include "setup/stage_cut.h"
#include "solver/solver.h"
#include "solver/synchronous.h"

/* ---- Checking ---------------------------------------------------------------- */

/* The feature that a key of a section names; NULL after reporting the mistake. */
static const dlc_feature *find_named(dlc_setup *setup, dlc_problems *problems,
                                     const char *section, const char *key,
                                     dlc_kind kind) {
    const dlc_section *found = dlc_config_find(setup->config, section);
    const char *name = found ? dlc_section_value(found, key) : NULL;
    const dlc_feature *feature = NULL;
    const char *device = setup->device ? setup->device->name : NULL;
    if (!name)
        return NULL; /* the check for required keys reports this */
    dlc_status status = dlc_registry_find(setup->registry, kind, name, device,
                                          &feature);
    if (status != DLC_OK)
        dlc_problems_add_detail(problems, setup->config,
                                dlc_section_key_line(found, key), NULL, status);
    return feature;
}

static dlc_status find_device(dlc_setup *setup, dlc_problems *problems) {
    const dlc_section *run = dlc_config_find(setup->config, "train");
    if (run && dlc_section_value(run, "device")) {
        setup->device = find_named(setup, problems, "train", "device", DLC_KIND_DEVICE);
        return DLC_OK;
    }
    DLC_TRY(dlc_find_accelerator(setup->registry, &setup->device));
    if (!setup->device && run && dlc_section_value(run, "gpu"))
        dlc_problems_add(
            problems, setup->config, dlc_section_key_line(run, "gpu"),
            "[train] gpu = %s, but no accelerator can be used here; `dlcore "
            "doctor` shows what was found and why",
            dlc_section_value(run, "gpu"));
    if (setup->device)
        return DLC_OK;
    return dlc_registry_use_first(setup->registry, DLC_KIND_DEVICE, &setup->device);
}

static dlc_status check_data(dlc_setup *setup, dlc_problems *problems,
                             const char *section, const dlc_option *core,
                             dlc_data_setup *data) {
    size_t found = problems->found;
    data->present = 1;
    data->feature = find_named(setup, problems, section, "source", DLC_KIND_DATA);
    /* Without the source its keys are unknown, so they cannot be checked. */
    const dlc_section *at = dlc_config_find(setup->config, section);
    data->broken = !data->feature;
    if (!data->feature && at && dlc_section_value(at, "source"))
        return DLC_OK;
    const dlc_option *tables[] = {core, dlc_feed_options,
                                  data->feature ? data->feature->options : NULL};
    DLC_TRY(dlc_settings_make(setup->config, section, tables, 3, problems,
                              &data->settings));
    data->batch = dlc_settings_get_int(data->settings, "batch");
    DLC_TRY(dlc_transforms_parse(dlc_settings_get_string(data->settings, "transforms"),
                                 setup->config, section, problems, &data->transforms));
    data->broken |= problems->found != found;
    return DLC_OK;
}

static dlc_status check_solver(dlc_setup *setup, dlc_problems *problems) {
    const dlc_section *found = dlc_config_find(setup->config, "solver");
    size_t before = problems->found;
    setup->solver = find_named(setup, problems, "solver", "type", DLC_KIND_SOLVER);
    if (!setup->solver && found && dlc_section_value(found, "type"))
        return DLC_OK;
    /* A solver's row takes the place of the core's: it has another default. */
    const dlc_option *tables[] = {dlc_solver_section_options,
                                  setup->solver ? setup->solver->options : NULL,
                                  dlc_solver_options};
    DLC_TRY(dlc_settings_make(setup->config, "solver", tables, 3, problems,
                              &setup->solver_settings));
    setup->solver_broken = problems->found != before;
    return DLC_OK;
}

static dlc_status check_consistency_of_job(dlc_setup *setup, dlc_problems *problems) {
    const dlc_section *found = dlc_config_find(setup->config, "consistency");
    const char *type = found ? dlc_section_value(found, "type") : NULL;
    size_t before = problems->found;
    setup->consistency = &dlc_synchronous_feature;
    if (type && strcmp(type, dlc_synchronous_feature.name) != 0)
        setup->consistency = find_named(setup, problems, "consistency", "type",
                                        DLC_KIND_CONSISTENCY);
    setup->consistency_broken = !setup->consistency;
    if (!setup->consistency)
        return DLC_OK;
    const dlc_option *tables[] = {dlc_consistency_section_options,
                                  setup->consistency->options};
    DLC_TRY(dlc_settings_make(setup->config, "consistency", tables, 2, problems,
                              &setup->consistency_settings));
    setup->consistency_broken = problems->found != before;
    return DLC_OK;
}

/* The most names: inside the nodes, between them, and between racks. */
enum { TRANSPORTS = 3 };

/* Looks up one transport named by [transport] type; a mistake is reported. */
static dlc_status find_transport(dlc_setup *setup, dlc_problems *problems,
                                 const char *name, const dlc_option **options) {
    const dlc_section *found = dlc_config_find(setup->config, "transport");
    const char *device = setup->device ? setup->device->name : NULL;
    const dlc_feature *feature = NULL;
    dlc_status status = dlc_registry_find(setup->registry, DLC_KIND_TRANSPORT, name,
                                          device, &feature);
    if (status == DLC_OK)
        *options = feature->options;
    else
        dlc_problems_add_detail(problems, setup->config,
                                dlc_section_key_line(found, "type"), NULL, status);
    return status;
}

/* Looks up the transports of a type "A", "A+B" or "A+B+C". */
static dlc_status find_transports(dlc_setup *setup, dlc_problems *problems,
                                  const char *type, const dlc_option **options) {
    char *copy = dlc_strdup(type), *rest = copy;
    dlc_status status = copy ? DLC_OK : DLC_ERR_NOMEM;
    for (int i = 0; status == DLC_OK && rest && i < TRANSPORTS; i++) {
        const char *name = i + 1 < TRANSPORTS ? strsep(&rest, "+") : rest;
        status = find_transport(setup, problems, name, &options[i]);
    }
    dlc_free(copy);
    return status;
}

/* `auto` asks every transport that works with the device. They are loaded here, once,
 * before the fork, and not by every rank. A transport that fails to load is marked
 * unusable. */
static dlc_status load_transports(dlc_setup *setup) {
    const dlc_feature_entry *entry;
    const dlc_feature *feature = NULL;
    for (size_t i = 0;
         (entry = dlc_registry_feature(setup->registry, DLC_KIND_TRANSPORT, i)); i++)
        if (entry->state == DLC_ENTRY_USABLE && setup->device &&
            (!entry->device || !strcmp(entry->device, setup->device->name)) &&
            dlc_registry_use(setup->registry, entry, &feature) == DLC_ERR_NOMEM)
            return DLC_ERR_NOMEM;
    return DLC_OK;
}

static dlc_status check_transport(dlc_setup *setup, dlc_problems *problems) {
    const dlc_section *found = dlc_config_find(setup->config, "transport");
    const char *type = found ? dlc_section_value(found, "type") : NULL;
    const dlc_option *tables[1 + TRANSPORTS] = {dlc_transport_section_options};
    int is_auto = !type || dlc_is_auto(type);
    dlc_status status = is_auto ? DLC_OK
                                : find_transports(setup, problems, type, &tables[1]);
    if (status != DLC_OK)
        return status == DLC_ERR_NOMEM ? status : DLC_OK;
    if (is_auto && setup->ranks > 1)
        DLC_TRY(load_transports(setup));
    DLC_TRY(dlc_settings_make(setup->config, "transport", tables, 1 + TRANSPORTS,
                              problems, &setup->transport_settings));
    setup->transport = dlc_settings_get_string(setup->transport_settings, "type");
    return DLC_OK;
}

static int is_on_command_line(const dlc_settings *settings, const char *name) {
    return dlc_settings_is_set(settings, name) &&
           dlc_settings_line(settings, name) == DLC_LINE_SET;
}

/* Finds how long to train, in epochs or in iterations; the command line takes
 * precedence over the file. */
static void find_length(dlc_setup *setup, dlc_problems *problems) {
    const dlc_settings *run = setup->train_settings;
    int epochs = dlc_settings_is_set(run, "epochs");
    int iterations = dlc_settings_is_set(run, "iterations");
    if (epochs && iterations) {
        epochs = is_on_command_line(run, "epochs");
        iterations = is_on_command_line(run, "iterations");
        if (epochs == iterations)
            dlc_problems_add(problems, setup->config,
                             dlc_settings_line(run, "iterations"),
                             "[train] has both epochs (%s) and iterations; give one",
                             dlc_settings_where(run, "epochs"));
    }
    setup->iterations = iterations ? dlc_settings_get_int(run, "iterations") : -1;
    setup->epochs = epochs ? dlc_settings_get_int(run, "epochs") : 1;
}

/* Reads [train] gpu; the job gets one rank per device listed unless `ranks` is set. */
static void find_device_indices(dlc_setup *setup, dlc_problems *problems) {
    const dlc_settings *run = setup->train_settings;
    const char *text = dlc_settings_get_string(run, "gpu");
    if (!setup->device || !text)
        return;
    if (setup->device->caps & DLC_DEVICE_HOST) {
        if (dlc_settings_is_set(run, "device")) /* find_device reported the rest */
            dlc_problems_add(problems, setup->config, dlc_settings_line(run, "gpu"),
                             "[train] has both gpu (%s) and device = %s; remove one",
                             dlc_settings_where(run, "gpu"), setup->device->name);
        return;
    }
    dlc_status status = dlc_device_indices_parse(
        text, setup->device, &setup->device_index, &setup->device_indices);
    if (status != DLC_OK) {
        dlc_problems_add_detail(problems, setup->config, dlc_settings_line(run, "gpu"),
                                "train", status);
        return;
    }
    int is_ranks_set = dlc_settings_is_set(setup->parallel_settings, "ranks") &&
                       (is_on_command_line(setup->parallel_settings, "ranks") ||
                        !is_on_command_line(run, "gpu"));
    if (!is_ranks_set)
        setup->ranks = setup->device_indices;
}

static void parse_batch_split(dlc_setup *setup, dlc_problems *problems) {
    const char *text = dlc_settings_get_string(setup->parallel_settings, "batch_split");
    dlc_status status = dlc_batch_split_parse(text, &setup->batch_split);
    if (status != DLC_OK)
        dlc_problems_add_detail(
            problems, setup->config,
            dlc_settings_line(setup->parallel_settings, "batch_split"), "parallel",
            status);
}

static dlc_status check_train(dlc_setup *setup, dlc_problems *problems) {
    const dlc_option *train[] = {dlc_train_section_options,
                                 setup->device ? setup->device->options : NULL};
    const dlc_option *parallel[] = {dlc_parallel_section_options};
    DLC_TRY(dlc_settings_make(setup->config, "train", train, 2, problems,
                              &setup->train_settings));
    DLC_TRY(dlc_settings_make(setup->config, "parallel", parallel, 1, problems,
                              &setup->parallel_settings));
    find_length(setup, problems);
    setup->ranks = (int32_t)dlc_settings_get_int(setup->parallel_settings, "ranks");
    find_device_indices(setup, problems);
    setup->seed = (uint64_t)dlc_settings_get_int(setup->train_settings, "seed");
    setup->strong = dlc_settings_is(setup->parallel_settings, "scaling", "strong");
    parse_batch_split(setup, problems);
    return DLC_OK;
}

/* Proportions are checked later, once the number of ranks is known for certain: another
 * launcher may have started them. */
static void check_batch_split(dlc_setup *setup, dlc_problems *problems) {
    if (setup->strong && !setup->batch_split.proportions && setup->train.settings &&
        setup->train.batch < setup->ranks)
        dlc_problems_add(problems, setup->config,
                         dlc_settings_line(setup->train.settings, "batch"),
                         "[data] batch = %lld cannot be split among %d ranks "
                         "(strong scaling)",
                         (long long)setup->train.batch, (int)setup->ranks);
}

/* The net's name becomes part of the names of folders and files. */
static int is_file_name(const char *name) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789.-_";
    enum { LONGEST = 64 };
    size_t length = strlen(name);
    return length > 0 && length <= LONGEST && name[0] != '.' &&
           strspn(name, allowed) == length;
}

static void check_net_name(const dlc_setup *setup, dlc_problems *problems) {
    if (setup->name && !is_file_name(setup->name))
        dlc_problems_add(problems, setup->config,
                         dlc_settings_line(setup->net_settings, "name"),
                         "[net] name = %s: use 1 to 64 ASCII letters, digits, '.', '-' "
                         "and '_', and do not begin with '.': the name becomes part of "
                         "file names",
                         setup->name);
}

/* `data` is the table of [data]. */
static dlc_status check_sections_of_data(dlc_setup *setup, const dlc_option *data,
                                         dlc_problems *problems) {
    DLC_TRY(find_device(setup, problems));
    DLC_TRY(check_train(setup, problems));
    DLC_TRY(check_data(setup, problems, "data", data, &setup->train));
    return dlc_config_find(setup->config, "data.test")
               ? check_data(setup, problems, "data.test", dlc_test_section_options,
                            &setup->test)
               : DLC_OK;
}

static dlc_status check_all(dlc_setup *setup, unsigned phases, dlc_problems *problems) {
    const dlc_option *net_tables[] = {dlc_net_section_options};
    DLC_TRY(dlc_settings_make(setup->config, "net", net_tables, 1, problems,
                              &setup->net_settings));
    setup->name = dlc_settings_get_string(setup->net_settings, "name");
    check_net_name(setup, problems);
    DLC_TRY(check_sections_of_data(setup, dlc_data_section_options, problems));
    DLC_TRY(check_solver(setup, problems));
    DLC_TRY(check_consistency_of_job(setup, problems));
    DLC_TRY(check_transport(setup, problems));
    check_batch_split(setup, problems);
    if (!setup->device) /* layer types depend on it */
        return dlc_setup_check_data(setup, phases, problems);
    DLC_TRY(dlc_setup_check_data(setup, phases, problems));
    dlc_field_names names;
    dlc_setup_field_names(setup, &names);
    DLC_TRY(dlc_graph_make(setup->config, dlc_reserved_sections, &names,
                           setup->registry, setup->device->name, problems,
                           &setup->graph));
    DLC_TRY(dlc_setup_check_fields(setup, problems));
    dlc_setup_check_mesh(setup, problems);
    return DLC_OK;
}

/* Keeps what the setup is read from, so that it can be read again. */
static dlc_status keep_source(dlc_setup *setup, const char *path,
                              const char *const *sets, size_t nsets) {
    setup->path = path ? dlc_strdup(path) : NULL;
    setup->sets = dlc_alloc(nsets, sizeof *setup->sets);
    if ((path && !setup->path) || !setup->sets)
        return DLC_ERR_NOMEM;
    for (; setup->set_count < nsets; setup->set_count++) {
        char *copy = dlc_strdup(sets[setup->set_count]);
        if (!copy)
            return DLC_ERR_NOMEM;
        setup->sets[setup->set_count] = copy;
    }
    return DLC_OK;
}

static dlc_status check_nets(dlc_setup *setup, unsigned phases,
                             dlc_problems *problems) {
    if (setup->device)
        DLC_TRY(dlc_setup_check_layers(setup, phases, problems));
    if (!(phases & DLC_PHASE_TRAIN))
        return DLC_OK;
    DLC_TRY(dlc_setup_check_solver(setup, problems));
    dlc_setup_check_sense(setup, problems);
    return DLC_OK;
}

dlc_status dlc_setup_open(const dlc_setup_args *args, dlc_setup **setup) {
    dlc_problems problems = {.on_report = args->tell,
                             .report_context = args->tell_context};
    dlc_setup *made = dlc_alloc(1, sizeof *made);
    dlc_status status = made ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = keep_source(made, args->path, args->sets, args->nsets);
    if (status == DLC_OK)
        status = dlc_registry_open(&made->registry);
    if (status == DLC_OK)
        status = dlc_config_load(args->path, dlc_reserved_sections, args->sets,
                                 args->nsets, &problems, &made->config);
    if (status == DLC_OK) {
        made->trained = args->trained;
        status = args->data_only /* without a net, [data] needs no batch, either */
                     ? check_sections_of_data(made, dlc_test_section_options, &problems)
                     : check_all(made, args->phases, &problems);
        if (status == DLC_OK && !args->data_only)
            status = check_nets(made, args->phases, &problems);
        /* Report the mistakes found so far, whatever ended the search. */
        char *detail = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
        dlc_status reported = dlc_problems_report(&problems);
        if (status == DLC_OK)
            status = reported;
        else
            dlc_fail(status, "%s", detail ? detail : "out of memory");
        dlc_free(detail);
    }
    dlc_problems_free(&problems);
    if (status != DLC_OK) {
        dlc_setup_close(made);
        return status;
    }
    made->trained = NULL;
    made->resident_bytes = dlc_memory_resident();
    *setup = made;
    return DLC_OK;
}

/* ---- Ranks and batches ------------------------------------------------------- */

dlc_status dlc_setup_sample_shape(const dlc_data_setup *data, dlc_shape *shape) {
    const dlc_samples *samples = &data->samples;
    *shape = data->info.shape;
    if (dlc_samples_field(samples, samples->image)->role != DLC_ROLE_IMAGE)
        return dlc_settings_get_string(data->settings, "transforms")
                   ? dlc_fail(DLC_ERR_CONFIG, "transforms change images, but the "
                                              "samples have none: leave them out")
                   : DLC_OK;
    return dlc_transforms_shape(data->transforms, &data->info.shape, data->info.dtype,
                                shape);
}

dlc_status dlc_setup_split_batch(dlc_setup *setup) {
    dlc_status status = dlc_batch_split_assign(&setup->batch_split,
                                               dlc_setup_global_batch(setup),
                                               setup->ranks, setup->servers);
    if (DLC_STATUS_CLASS(status) != DLC_STATUS_CLASS(DLC_ERR_CONFIG))
        return status;
    return dlc_fail(status, "%s: [parallel] %s",
                    dlc_settings_where(setup->parallel_settings, "batch_split"),
                    dlc_detail());
}

dlc_status dlc_setup_set_ranks(dlc_setup *setup, int32_t ranks) {
    setup->ranks = ranks;
    return dlc_setup_split_batch(setup);
}

/* The number of ranks that compute. */
static int32_t job_workers(const dlc_setup *setup) {
    return setup->ranks - setup->servers;
}

dlc_dtype dlc_setup_precision(const dlc_setup *setup) {
    return dlc_settings_is(setup->train_settings, "precision", "bf16")   ? DLC_BF16
           : dlc_settings_is(setup->train_settings, "precision", "fp16") ? DLC_F16
                                                                         : DLC_F32;
}

int64_t dlc_setup_global_batch(const dlc_setup *setup) {
    return setup->strong ? setup->train.batch : setup->train.batch * job_workers(setup);
}

void dlc_setup_rank_samples(const dlc_setup *setup, int32_t rank, int64_t *offset,
                            int64_t *count) {
    dlc_batch_split_range(&setup->batch_split, rank, offset, count);
}

dlc_status dlc_setup_add_consistency_settings(dlc_setup *setup,
                                              dlc_settings *settings) {
    size_t count = setup->old_settings_count;
    dlc_settings **grown = dlc_grow(setup->old_settings, count, count + 1,
                                    sizeof *grown);
    if (!grown) {
        dlc_settings_free(settings);
        return DLC_ERR_NOMEM;
    }
    setup->old_settings = grown;
    setup->old_settings[setup->old_settings_count++] = settings;
    return DLC_OK;
}

void dlc_setup_use_added_settings(dlc_setup *setup) {
    dlc_settings *before = setup->consistency_settings;
    setup->consistency_settings = setup->old_settings[setup->old_settings_count - 1];
    setup->old_settings[setup->old_settings_count - 1] = before;
}

void dlc_setup_test_train_data(dlc_setup *setup) {
    dlc_data_setup train = setup->train;
    setup->train = setup->test;
    setup->test = train;
    setup->train.batch = train.batch; /* it may have been absent */
    if (setup->graph && setup->test.source)
        dlc_setup_bind_fields(setup, DLC_PHASE_TEST, &setup->test);
}

dlc_status dlc_setup_test_source(dlc_setup *setup, const dlc_feature *feature,
                                 dlc_source *source) {
    if (!setup->test.present)
        dlc_setup_test_train_data(setup);
    dlc_data_setup *test = &setup->test;
    dlc_data_source_close(test);
    test->feature = feature;
    test->source = source;
    DLC_TRY(dlc_data_source_describe(setup, test));
    dlc_setup_bind_fields(setup, DLC_PHASE_TEST, test);
    return DLC_OK;
}

static void close_data(dlc_data_setup *data) {
    dlc_data_source_close(data);
    dlc_transforms_free(data->transforms);
    dlc_settings_free(data->settings);
}

void dlc_setup_close(dlc_setup *setup) {
    if (!setup)
        return;
    close_data(&setup->train);
    close_data(&setup->test);
    dlc_free(setup->stage_ranks);
    dlc_decoders_close(setup->decoders);
    dlc_free(setup->device_index);
    dlc_batch_split_free(&setup->batch_split);
    dlc_graph_free(setup->graph);
    dlc_settings_free(setup->net_settings);
    dlc_settings_free(setup->train_settings);
    dlc_settings_free(setup->parallel_settings);
    dlc_settings_free(setup->solver_settings);
    dlc_settings_free(setup->consistency_settings);
    for (size_t i = 0; i < setup->old_settings_count; i++)
        dlc_settings_free(setup->old_settings[i]);
    dlc_free(setup->old_settings);
    for (size_t i = 0; i < setup->set_count; i++)
        dlc_free(setup->sets[i]);
    dlc_free(setup->sets);
    dlc_free(setup->path);
    dlc_settings_free(setup->transport_settings);
    dlc_config_free(setup->config);
    dlc_registry_close(setup->registry);
    dlc_free(setup);
}
