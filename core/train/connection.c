/* See connection.h. */
#include "train/connection.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* ---- Settings ---------------------------------------------------------------- */

typedef struct source {
    const dlc_connection_args *args;
    dlc_connection *connection;
} source;

/* Is it one of "A", "A+B"? */
static int is_named(const char *wanted, const char *name) {
    size_t length = strlen(name);
    const char *plus = strchr(wanted, '+');
    size_t first = plus ? (size_t)(plus - wanted) : strlen(wanted);
    return (first == length && strncmp(wanted, name, length) == 0) ||
           (plus && strcmp(plus + 1, name) == 0);
}

/* What was given, for a transport that was named; of others the defaults. */
static dlc_status settings_of(void *context, const dlc_feature *feature,
                              const dlc_settings **settings) {
    const source *from = context;
    dlc_connection *connection = from->connection;
    if (is_named(from->args->wanted, feature->name)) {
        *settings = from->args->settings;
        return DLC_OK;
    }
    dlc_settings **grown = dlc_grow(connection->made, connection->count,
                                    connection->count + 1, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    connection->made = grown;
    dlc_problems problems = {0};
    const dlc_option *tables[] = {feature->options};
    dlc_status status = dlc_settings_make(NULL, "transport", tables, 1, &problems,
                                          &connection->made[connection->count]);
    dlc_problems_free(&problems);
    if (status == DLC_OK)
        *settings = connection->made[connection->count++];
    return status;
}

/* ---- The choice -------------------------------------------------------------- */

static void announce(const dlc_choice *choice) {
    dlc_text text = {0};
    dlc_choice_text(choice, &text);
    if (dlc_text_status(&text) == DLC_OK && text.length > 0)
        dlc_info("%.*s", (int)text.length - 1, dlc_text_string(&text));
    dlc_text_free(&text);
}

/* Every rank chooses for itself. On unlike machines they might choose differently. */
static dlc_status agree(const dlc_connection_args *args, const char *name) {
    enum { NAME = 128 };
    int32_t ranks = dlc_job_ranks(args->job);
    char mine[NAME] = "";
    char *all = dlc_alloc((size_t)ranks, NAME);
    if (!all)
        return DLC_ERR_NOMEM;
    strncpy(mine, name, NAME - 1);
    dlc_status status = dlc_job_allgather(args->job, mine, NAME, all);
    for (int32_t r = 0; status == DLC_OK && r < ranks; r++)
        if (strncmp(all + (size_t)r * NAME, all, NAME) != 0)
            status = dlc_fail(DLC_ERR_CONFIG,
                              "rank 0 (host %s) would use transport %s, rank %d (host "
                              "%s) %s: name one that all can use with --transport",
                              dlc_job_place(args->job, 0)->host, all, r,
                              dlc_job_place(args->job, r)->host,
                              all + (size_t)r * NAME);
    dlc_free(all);
    return status;
}

static dlc_status choose(const dlc_connection_args *args, dlc_comm_args *comm,
                         dlc_connection *connection) {
    source from = {args, connection};
    dlc_transport_args asked = {.size = sizeof asked,
                                .rank = comm->rank,
                                .ranks = comm->ranks,
                                .places = comm->places,
                                .device_ops = comm->device_ops,
                                .device = args->device};
    dlc_choice choice = {0};
    dlc_text name = {0};
    dlc_status status = dlc_comm_choose(args->registry, args->wanted,
                                        args->device_feature->name, &asked, settings_of,
                                        &from, &choice);
    if (comm->rank == 0)
        announce(&choice);
    if (status == DLC_OK) {
        dlc_choice_name(&choice, &name);
        connection->transport = dlc_strdup(dlc_text_string(&name));
        status = connection->transport ? dlc_text_status(&name) : DLC_ERR_NOMEM;
    }
    if (status == DLC_OK)
        status = agree(args, connection->transport);
    if (status == DLC_OK) {
        comm->level.feature = choice.feature;
        comm->between.feature = choice.between;
        status = settings_of(&from, choice.feature, &comm->level.settings);
    }
    if (status == DLC_OK && choice.between)
        status = settings_of(&from, choice.between, &comm->between.settings);
    dlc_text_free(&name);
    dlc_choice_free(&choice);
    return status;
}

/* ---- Devices ----------------------------------------------------------------- */

static void tell_unlike(const dlc_connection_args *args, const dlc_device_info *all,
                        int32_t ranks) {
    for (int32_t r = 1; r < ranks; r++) {
        if (strcmp(all[r].name, all[0].name) == 0)
            continue;
        dlc_warn("rank %d (host %s) computes on %s, rank 0 (host %s) on %s: all go at "
                 "the pace of the slowest",
                 r, dlc_job_place(args->job, r)->host, all[r].name,
                 dlc_job_place(args->job, 0)->host, all[0].name);
        return;
    }
}

static dlc_status compare_devices(const dlc_connection_args *args) {
    const dlc_device_ops *ops = args->device_feature->ops;
    int32_t ranks = dlc_job_ranks(args->job);
    dlc_device_info mine = {.size = sizeof mine};
    DLC_TRY(ops->describe(args->device_args.index, &mine));
    dlc_device_info *all = dlc_alloc((size_t)ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_allgather(args->job, &mine, sizeof mine, all);
    if (status == DLC_OK && dlc_job_rank(args->job) == 0)
        tell_unlike(args, all, ranks);
    dlc_free(all);
    return status;
}

/* ---- Opening ----------------------------------------------------------------- */

static dlc_status open_connection(const dlc_connection_args *args,
                                  dlc_connection *connection) {
    dlc_comm_args comm = {.rank = dlc_job_rank(args->job),
                          .ranks = dlc_job_ranks(args->job),
                          .places = dlc_job_place(args->job, 0),
                          .device_ops = args->device_feature->ops,
                          .device = args->device_args,
                          .any_order = args->any_order,
                          .job = args->job,
                          .allgather = dlc_job_allgather,
                          .check = dlc_job_check};
    char words[512];
    if (comm.ranks > 1) {
        DLC_TRY(compare_devices(args));
        DLC_TRY(choose(args, &comm, connection));
    } else {
        connection->transport = dlc_strdup("none");
        if (!connection->transport)
            return DLC_ERR_NOMEM;
    }
    DLC_TRY(dlc_comm_open(&comm, &connection->comm));
    dlc_comm_describe(connection->comm, words, sizeof words);
    if (comm.rank == 0 && words[0])
        dlc_info("    %s", words);
    return DLC_OK;
}

dlc_status dlc_connection_open(const dlc_connection_args *args,
                               dlc_connection *connection) {
    dlc_status status = open_connection(args, connection);
    if (status != DLC_OK)
        dlc_connection_close(connection);
    return status;
}

void dlc_connection_close(dlc_connection *connection) {
    dlc_comm_close(connection->comm);
    for (size_t i = 0; i < connection->count; i++)
        dlc_settings_free(connection->made[i]);
    dlc_free(connection->made);
    dlc_free(connection->transport);
    *connection = (dlc_connection){0};
}
