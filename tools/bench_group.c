/* Makes the plan from the settings, runs the ranks, and opens each rank's group. */
#include "bench_group.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "machine.h"
#include "options.h"
#include "setup/device_indices.h"
#include "setup/setup.h"

/* ---- The plan -------------------------------------------------------------------- */

static dlc_status find_device(dlc_bench_plan *plan) {
    const dlc_section *run = dlc_config_find(plan->config, "train");
    const char *name = run ? dlc_section_value(run, "device") : NULL;
    if (name)
        return dlc_registry_find(plan->registry, DLC_KIND_DEVICE, name, NULL,
                                 &plan->device);
    DLC_TRY(dlc_find_accelerator(plan->registry, &plan->device));
    if (plan->device)
        return DLC_OK;
    return dlc_registry_use_first(plan->registry, DLC_KIND_DEVICE, &plan->device);
}

/* Finds the transport named by the first `length` characters. */
static dlc_status find_transport(const dlc_bench_plan *plan, const char *name,
                                 size_t length, const dlc_feature **feature) {
    char *copy = dlc_strndup(name, length);
    if (!copy)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_registry_find(plan->registry, DLC_KIND_TRANSPORT, copy,
                                          plan->device->name, feature);
    dlc_free(copy);
    return status;
}

/* The most transports of a type: "A+B+C". */
enum { TRANSPORTS = 3 };

/* Collects the option tables of the transports that the type names. */
static dlc_status find_options(const dlc_bench_plan *plan, const dlc_option **options) {
    const dlc_section *section = dlc_config_find(plan->config, "transport");
    const char *name = section ? dlc_section_value(section, "type") : NULL;
    if (!name || dlc_is_auto(name))
        return DLC_OK;
    for (int i = 0; i < TRANSPORTS; i++) {
        size_t length = i + 1 < TRANSPORTS ? strcspn(name, "+") : strlen(name);
        const dlc_feature *feature = NULL;
        DLC_TRY(find_transport(plan, name, length, &feature));
        options[i] = feature->options;
        if (!name[length])
            break;
        name += length + 1;
    }
    return DLC_OK;
}

static dlc_status make_settings(dlc_bench_plan *plan, dlc_problems *problems) {
    DLC_TRY(find_device(plan));
    const dlc_option *train[] = {dlc_train_section_options, plan->device->options};
    const dlc_option *parallel[] = {dlc_parallel_section_options};
    DLC_TRY(dlc_settings_make(plan->config, "train", train, 2, problems,
                              &plan->train_settings));
    DLC_TRY(dlc_settings_make(plan->config, "parallel", parallel, 1, problems,
                              &plan->parallel_settings));
    const dlc_option *all[1 + TRANSPORTS] = {dlc_transport_section_options};
    DLC_TRY(find_options(plan, &all[1]));
    DLC_TRY(dlc_settings_make(plan->config, "transport", all, 1 + TRANSPORTS, problems,
                              &plan->transport_settings));
    DLC_TRY(dlc_problems_report(problems));
    plan->ranks = (int32_t)dlc_settings_get_int(plan->parallel_settings, "ranks");
    plan->transport = dlc_settings_get_string(plan->transport_settings, "type");
    return DLC_OK;
}

dlc_status dlc_bench_plan_open(const char *const *sets, size_t nsets,
                               dlc_bench_plan *plan) {
    static const char *const sections[] = {"train", "parallel", "transport", NULL};
    dlc_problems problems = {0};
    dlc_status status = dlc_registry_open(&plan->registry);
    if (status == DLC_OK)
        status = dlc_config_load(NULL, sections, sets, nsets, &problems, &plan->config);
    if (status == DLC_OK && problems.errors)
        status = dlc_problems_report(&problems);
    if (status == DLC_OK)
        status = make_settings(plan, &problems);
    dlc_problems_free(&problems);
    return status;
}

void dlc_bench_plan_close(dlc_bench_plan *plan) {
    dlc_settings_free(plan->transport_settings);
    dlc_settings_free(plan->parallel_settings);
    dlc_settings_free(plan->train_settings);
    dlc_config_free(plan->config);
    dlc_registry_close(plan->registry);
    *plan = (dlc_bench_plan){.registry = NULL};
}

dlc_status dlc_bench_plan_run(const dlc_bench_plan *plan, dlc_job_main main,
                              void *argument, int *exit_code) {
    const dlc_settings *run = plan->train_settings;
    dlc_job_options job = {.ranks = (int)plan->ranks,
                           .threads = (int)dlc_settings_get_int(run, "threads"),
                           .unbound = !dlc_settings_get_bool(run, "bind"),
                           .device = plan->device->name,
                           .devices = dlc_device_count(plan->device),
                           .external = 1,
                           .discover = dlc_tool_discovery(plan->device),
                           .rendezvous_timeout = dlc_settings_get_float(
                               plan->parallel_settings, "rendezvous_timeout"),
                           .hang_timeout = dlc_settings_get_float(
                               plan->parallel_settings, "hang_timeout")};
    return dlc_job_run(&job, main, argument, exit_code);
}

/* ---- Messages -------------------------------------------------------------------- */

/* A communicator has collectives only, so messages use a second endpoint, of the
 * transport for all ranks: that of the outermost level. */
static dlc_status open_messages(dlc_bench_group *group, const dlc_team_args *like) {
    const dlc_bench_plan *plan = group->plan;
    const char *plus = strrchr(group->connection.transport, '+');
    const char *name = plus ? plus + 1 : group->connection.transport;
    dlc_team_args args = *like;
    args.settings = plan->transport_settings;
    DLC_TRY(find_transport(plan, name, strlen(name), &args.feature));
    if (!strstr(plan->transport, name)) { /* "auto": default settings */
        dlc_problems problems = {0};
        dlc_status status = dlc_settings_make(NULL, "transport", &args.feature->options,
                                              1, &problems, &group->messages_settings);
        dlc_problems_free(&problems);
        args.settings = group->messages_settings;
        DLC_TRY(status);
    }
    return dlc_team_open(&args, &group->messages);
}

/* ---- The group ------------------------------------------------------------------- */

/* Checks that the memory will be available: pages are allocated only when they are
 * first written, and then there is no way to fail. */
static dlc_status check_room(const dlc_bench_group *group,
                             const dlc_bench_group_args *args) {
    const dlc_rank_info *mine = dlc_job_rank_info(group->job, group->rank);
    dlc_machine machine;
    uint64_t ranks = 0;
    if (!(group->plan->device->caps & DLC_DEVICE_HOST))
        return DLC_OK;
    for (int32_t r = 0; r < group->ranks; r++)
        ranks += dlc_job_rank_info(group->job, r)->node == mine->node;
    DLC_TRY(dlc_machine_read(&machine));
    uint64_t buffers = ranks * (args->messages ? 2 : 1);
    if (machine.memory_free == 0 || buffers * args->bytes < machine.memory_free)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "%" PRIu64
                    " buffers of %zu bytes are needed, but %s has only %" PRIu64
                    " bytes free; use a smaller --max",
                    buffers, args->bytes, mine->host, machine.memory_free);
}

static dlc_status open_memory(dlc_bench_group *group,
                              const dlc_bench_group_args *args) {
    uint32_t flags = args->arena ? DLC_MEM_SHARED : 0;
    for (int i = 0; i < (args->messages ? 2 : 1); i++) {
        group->memory[i] = (dlc_memory){.size = sizeof group->memory[i]};
        DLC_TRY(group->device_ops->alloc(group->device, args->bytes, flags,
                                         &group->memory[i]));
        DLC_TRY(group->device_ops->fill(group->device, NULL, group->memory[i].base, 0,
                                        args->bytes));
    }
    return args->arena
               ? dlc_comm_register_buffer(group->connection.comm, &group->memory[0])
               : DLC_OK;
}

static dlc_status open_all(dlc_bench_group *group, const dlc_bench_group_args *args) {
    const dlc_bench_plan *plan = group->plan;
    dlc_device_args device = {
        .size = sizeof device,
        .settings = plan->train_settings,
        .index = dlc_job_rank_info(group->job, group->rank)->device_index,
        .threads = 1};
    DLC_TRY(check_room(group, args));
    DLC_TRY(dlc_job_barrier(group->job)); /* all have checked before any allocates */
    group->device_ops = plan->device->ops;
    DLC_TRY(group->device_ops->open(&device, &group->device));
    dlc_connection_args connection = {
        .registry = plan->registry,
        .wanted = plan->transport,
        .settings = plan->transport_settings,
        .device_feature = plan->device,
        .device = group->device,
        .device_args = device,
        .job = group->job,
        .bytes = (double)args->bytes,
        .any_order = dlc_settings_is(plan->transport_settings, "reduction_order",
                                     "any")};
    DLC_TRY(dlc_connection_open(&connection, &group->connection));
    dlc_team_args messages = {.rank = group->rank,
                              .ranks = group->ranks,
                              .rank_info = dlc_job_rank_info(group->job, 0),
                              .device_ops = group->device_ops,
                              .device = group->device,
                              .any_order = 1,
                              .job = group->job,
                              .oob_all_gather = dlc_job_all_gather,
                              .check = dlc_job_check};
    if (args->messages)
        DLC_TRY(open_messages(group, &messages));
    return open_memory(group, args);
}

dlc_status dlc_bench_group_open(const dlc_bench_plan *plan, dlc_job *job,
                                const dlc_bench_group_args *args,
                                dlc_bench_group *group) {
    *group = (dlc_bench_group){.plan = plan,
                               .job = job,
                               .rank = dlc_job_rank(job),
                               .ranks = dlc_job_ranks(job)};
    dlc_log_rank_set((int)group->rank);
    if (group->ranks < 2)
        return dlc_fail(DLC_ERR_CONFIG,
                        "communication needs at least two ranks; use --ranks=2");
    dlc_status status = open_all(group, args);
    if (status != DLC_OK)
        dlc_bench_group_close(group);
    return status;
}

void dlc_bench_group_close(dlc_bench_group *group) {
    dlc_team_close(group->messages);
    dlc_settings_free(group->messages_settings);
    dlc_connection_close(&group->connection);
    for (int i = 0; i < 2; i++)
        if (group->memory[i].base)
            group->device_ops->free(group->device, &group->memory[i]);
    if (group->device)
        group->device_ops->close(group->device);
    *group = (dlc_bench_group){.plan = NULL};
}
