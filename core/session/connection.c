/* Chooses the transports on every rank, checks that the ranks agree, and opens the
 * communicator. */
#include "session/connection.h"
#include "base/text.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/memory.h"
#include "plan/buckets.h"
#include "plugin/device_objects.h"
#include "session/agreement.h"
#include "session/connection_trial.h"
#include "session/measured_racks.h"
#include "session/racks.h"
#include "topology/discover.h"
#include "topology/read.h"

/* ---- Settings ---------------------------------------------------------------- */

typedef struct source {
    const dlc_connection_args *args;
    dlc_connection *connection;
    double bytes; /* the most of any rank */
    dlc_connection_trial trial;
} source;

/* Is the name one of those in "A", "A+B" or "A+B+C"? */
static int is_named(const char *wanted, const char *name) {
    size_t length = strlen(name);
    for (const char *at = wanted; at; at = strchr(at, '+') ? strchr(at, '+') + 1 : NULL)
        if (strcspn(at, "+") == length && strncmp(at, name, length) == 0)
            return 1;
    return 0;
}

/* The settings of [transport] for a transport that it names, and defaults for others.
 */
static dlc_status settings_of_transport(void *context, const dlc_feature *feature,
                                        const dlc_settings **settings) {
    const source *from = context;
    dlc_connection *connection = from->connection;
    /* Its prediction is asked for next: if that kills the rank, the report names it. */
    dlc_job_activity(from->args->job, "prediction of transport", feature->name, 0);
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

/* Logs lines, without the final newline, and frees them. */
static void log_text(dlc_log_level level, dlc_text *text) {
    if (text->length > 0)
        text->bytes[text->length - 1] = '\0';
    if (text->length > 0 || text->failed)
        dlc_log_lines(level, dlc_text_string(text));
    dlc_text_free(text);
}

static void announce_transport(const dlc_transport_choice *choice) {
    dlc_text text = {0};
    dlc_transport_choice_text(choice, &text);
    log_text(DLC_LOG_INFO, &text);
}

/* What one rank chose. */
typedef struct pick {
    dlc_transport_choice choice;
    dlc_status status;
    dlc_choice_label label;
} pick;

static void pick_free(pick *mine) {
    dlc_transport_choice_free(&mine->choice);
}

static void pick_locally(const dlc_connection_args *args, const dlc_comm_args *comm,
                         source *from, pick *mine) {
    const dlc_connection *connection = from->connection;
    const dlc_transport_args group = {.size = sizeof group,
                                      .rank = comm->rank,
                                      .ranks = comm->ranks,
                                      .rank_info = comm->rank_info,
                                      .device_ops = comm->device_ops,
                                      .device = args->device,
                                      .tagged_messages = args->tagged_messages};
    int known = connection->domains.ranks > 0;
    const dlc_choose_args asked = {.registry = args->registry,
                                   .wanted = args->wanted,
                                   .device = args->device_feature->name,
                                   .group = &group,
                                   .topo = known ? &connection->topo : NULL,
                                   .domains = known ? &connection->domains : NULL,
                                   .finding = from->trial.finding,
                                   .findings = from->trial.findings,
                                   .bytes = from->bytes,
                                   .any_order = args->any_order,
                                   .cost = dlc_plan_reduction,
                                   .settings_of = settings_of_transport,
                                   .context = from};
    *mine = (pick){.status = DLC_OK};
    mine->status = dlc_transport_choose(&asked, &mine->choice);
    if (mine->status == DLC_OK)
        mine->status = dlc_choice_label_make(&mine->choice, &mine->label);
}

/* A network adapter that has just come up is visible to some ranks sooner than to
 * others, so all ranks choose again a few times before they ask what differs. */
enum { TRIES = 8 };
#define BETWEEN_TRIES_NS 250000000L

/* What some rank cannot use, none does. *again: there is something. */
static dlc_status drop_unusable(source *from, const pick *mine,
                                const dlc_disagreement *found, int *again) {
    dlc_transport_finding objection[2];
    DLC_TRY(dlc_agreement_ask(from->args->job, &mine->choice, found, objection));
    for (int i = 0; i < 2; i++)
        if (objection[i].name[0])
            DLC_TRY(dlc_connection_trial_add(&from->trial, &objection[i], again));
    return DLC_OK;
}

static dlc_status pick_together(const dlc_connection_args *args,
                                const dlc_comm_args *comm, source *from, pick *mine) {
    const struct timespec pause = {.tv_nsec = BETWEEN_TRIES_NS};
    dlc_disagreement found = {.rank = -1};
    int tries = TRIES, again = 1;
    while (again) {
        again = 0;
        pick_free(mine);
        pick_locally(args, comm, from, mine);
        DLC_TRY(dlc_agreement_check(args->job, &mine->label, &found));
        if (found.rank >= 0 && --tries > 0) {
            again = 1;
            (void)nanosleep(&pause, NULL);
        } else if (found.rank >= 0 && from->trial.may_replace) {
            DLC_TRY(drop_unusable(from, mine, &found, &again));
        }
    }
    if (mine->status != DLC_OK || found.rank < 0)
        return mine->status;
    return dlc_agreement_refuse(args->job, &found);
}

/* The most gradients of any rank: all ranks decide by the same number. */
static dlc_status share_bytes(const dlc_connection_args *args, double *most) {
    int32_t ranks = dlc_job_ranks(args->job);
    double *all = dlc_alloc((size_t)ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(args->job, &args->bytes, sizeof *all, all);
    for (int32_t r = 0; status == DLC_OK && r < ranks; r++)
        *most = all[r] > *most ? all[r] : *most;
    dlc_free(all);
    return status;
}

static dlc_status take_levels(const pick *mine, source *from, dlc_comm_args *comm) {
    for (int32_t i = 0; i < mine->choice.levels; i++) {
        const dlc_transport_level *its = &mine->choice.level[i];
        comm->level[i].feature = its->feature;
        comm->level[i].within = (dlc_domain_level)its->scope.within;
        DLC_TRY(settings_of_transport(from, its->feature, &comm->level[i].settings));
    }
    comm->levels = mine->choice.levels;
    return DLC_OK;
}

/* Every rank chooses on its own; all must arrive at the same choice. */
static dlc_status choose_transport(source *from, dlc_comm_args *comm, pick *mine) {
    dlc_connection *connection = from->connection;
    DLC_TRY(pick_together(from->args, comm, from, mine));
    dlc_free(connection->transport);
    connection->transport = dlc_strdup(mine->label.name);
    connection->predicted = from->bytes > 0 ? mine->choice.seconds : 0;
    return connection->transport ? take_levels(mine, from, comm) : DLC_ERR_NOMEM;
}

static dlc_status try_choice(source *from, const pick *mine, int *again) {
    dlc_connection *connection = from->connection;
    dlc_comm_close(connection->comm);
    connection->comm = NULL;
    from->trial.choice = &mine->choice;
    from->trial.name = connection->transport;
    return dlc_connection_try(&from->trial, &connection->comm, again);
}

/* Racks that are not known are measured once. *again: there are some. */
static dlc_status measure_racks(const source *from, int *again) {
    dlc_connection *connection = from->connection;
    const dlc_racks_args args = {from->args->job, &connection->topo, from->trial.how,
                                 from->args->device};
    if (!from->trial.may_replace || !from->trial.probes || connection->has_racks ||
        connection->domains.ranks == 0)
        return DLC_OK;
    connection->has_racks = 1;
    return dlc_racks_measure(&args, &connection->comm, &connection->domains, again);
}

/* Chooses and tries until nothing new is found, or what is open is chosen again. */
static dlc_status choose_and_open(const dlc_connection_args *args, dlc_comm_args *comm,
                                  dlc_connection *connection) {
    source from = {.args = args,
                   .connection = connection,
                   .trial = {.job = args->job,
                             .device = args->device,
                             .may_replace = dlc_is_auto(args->wanted),
                             .probes = dlc_settings_get_bool(args->settings, "probe"),
                             .how = comm}};
    dlc_choice_label opened = {.name = ""};
    int again = 1;
    dlc_status status = share_bytes(args, &from.bytes);
    while (status == DLC_OK && again) {
        pick mine = {.status = DLC_OK};
        status = choose_transport(&from, comm, &mine);
        again = !connection->comm || memcmp(&mine.label, &opened, sizeof opened) != 0;
        if (comm->rank == 0 && again)
            announce_transport(&mine.choice);
        opened = mine.label;
        if (status == DLC_OK && again)
            status = try_choice(&from, &mine, &again);
        if (status == DLC_OK && !again)
            status = measure_racks(&from, &again);
        pick_free(&mine);
    }
    dlc_free(from.trial.finding);
    return status;
}

/* ---- Topology ---------------------------------------------------------------- */

static void show_domains(const dlc_connection *connection) {
    dlc_text text = {0};
    dlc_domains_text(&connection->domains, &connection->topo, &text);
    log_text(DLC_LOG_DEBUG, &text);
}

static dlc_status find_domains(const dlc_connection_args *args,
                               dlc_connection *connection) {
    int32_t *rack = dlc_alloc((size_t)dlc_job_ranks(args->job), sizeof *rack);
    int *known = &connection->has_racks;
    dlc_status status = rack ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_racks_find(
            args->job, dlc_settings_get_string(args->settings, "racks"), rack, known);
    if (status == DLC_OK)
        status = dlc_job_find_domains(args->job, &connection->topo,
                                      *known ? rack : NULL, &connection->domains);
    dlc_free(rack);
    return status;
}

/* Gathers the machines, with the devices that the ranks compute on. Without a graph of
 * one of them, the job knows only which ranks share a machine. */
static dlc_status find_topology(const dlc_connection_args *args,
                                dlc_connection *connection) {
    dlc_topo mine = {0};
    int complete = 0;
    dlc_status status = dlc_job_machine(args->job, &mine);
    if (status == DLC_OK && mine.nodes)
        status = dlc_topo_add_devices(&mine, 0, args->device_feature);
    if (status == DLC_OK && mine.nodes)
        dlc_topo_number(&mine, 0);
    if (status == DLC_OK)
        status = dlc_job_gather_machines(args->job, &mine, &connection->topo,
                                         &complete);
    if (status == DLC_OK && complete)
        status = find_domains(args, connection);
    if (status == DLC_OK && complete && dlc_job_rank(args->job) == 0)
        show_domains(connection);
    dlc_topo_free(&mine);
    return status;
}

/* ---- Devices ----------------------------------------------------------------- */

static void warn_of_differing(const dlc_connection_args *args,
                              const dlc_device_info *all, int32_t ranks) {
    for (int32_t r = 1; r < ranks; r++) {
        if (strcmp(all[r].name, all[0].name) == 0)
            continue;
        dlc_warn("rank %d (host %s) computes on %s, but rank 0 (host %s) on %s: all "
                 "ranks run at the speed of the slowest",
                 r, dlc_job_rank_info(args->job, r)->host, all[r].name,
                 dlc_job_rank_info(args->job, 0)->host, all[0].name);
        return;
    }
}

static dlc_status compare_devices(const dlc_connection_args *args) {
    const dlc_device_ops *ops = args->device_feature->ops;
    int32_t ranks = dlc_job_ranks(args->job);
    dlc_device_info mine;
    DLC_TRY(dlc_device_describe(ops, args->device_args.index, &mine));
    dlc_device_info *all = dlc_alloc((size_t)ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(args->job, &mine, sizeof mine, all);
    if (status == DLC_OK && dlc_job_rank(args->job) == 0)
        warn_of_differing(args, all, ranks);
    dlc_free(all);
    return status;
}

/* ---- Opening ----------------------------------------------------------------- */

static dlc_status open_transport(const dlc_connection_args *args,
                                 dlc_connection *connection) {
    dlc_comm_args comm = {.rank = dlc_job_rank(args->job),
                          .ranks = dlc_job_ranks(args->job),
                          .rank_info = dlc_job_rank_info(args->job, 0),
                          .device_ops = args->device_feature->ops,
                          .device = args->device_args,
                          .any_order = args->any_order,
                          .job = args->job,
                          .oob_all_gather = dlc_job_all_gather,
                          .check = dlc_job_check,
                          .on_progress = dlc_job_progress,
                          .on_wait = dlc_job_wait,
                          .on_failure = dlc_connection_withdraw,
                          .progress_context = args->job};
    char description[512];
    if (comm.ranks > 1) {
        DLC_TRY(compare_devices(args));
        DLC_TRY(find_topology(args, connection));
        DLC_TRY(choose_and_open(args, &comm, connection));
    } else {
        connection->transport = dlc_strdup("none");
        if (!connection->transport)
            return DLC_ERR_NOMEM;
        DLC_TRY(dlc_comm_open(&comm, &connection->comm));
    }
    connection->how = comm;
    dlc_comm_describe(connection->comm, description, sizeof description);
    if (comm.rank == 0 && description[0])
        dlc_info("    %s", description);
    return DLC_OK;
}

dlc_status dlc_connection_open(const dlc_connection_args *args,
                               dlc_connection *connection) {
    dlc_status status = open_transport(args, connection);
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
    dlc_domains_free(&connection->domains);
    dlc_topo_free(&connection->topo);
    *connection = (dlc_connection){0};
}
