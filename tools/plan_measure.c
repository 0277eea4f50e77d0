/* See plan_measure.h. */
#include "plan_measure.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "comm/pace.h"
#include "options.h"
#include "plan/layers.h"
#include "time_measure.h"
#include "train/iterate.h"
#include "train/schedule.h"
#include "train/train.h"

enum { LEAST_RUN = 6, MOST_RUN = 400, FEW_PASSES = 5, MANY_PASSES = 25 };
static const double RUN = 4, MEASURE = 3; /* seconds */

typedef struct measuring {
    dlc_setup *setup;
    plan_how how;
    plan_measured *measured; /* memory that rank 0 shares with the command */
} measuring;

/* ---- Steps of a rank ------------------------------------------------------------- */

static dlc_status measure_sums(dlc_session *session, dlc_pace *pace) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    *pace = (dlc_pace){.latency = 0};
    if (session->ranks == 1)
        return DLC_OK;
    return dlc_pace_measure(session->connection.comm, session->device_ops,
                            session->device, arenas->gradients, arenas->count, pace);
}

static dlc_status one_pass(dlc_session *session, dlc_intake *intake, double *seconds) {
    uint64_t start;
    DLC_TRY(dlc_time_pass(session, intake, 0, &start));
    DLC_TRY(dlc_net_sync(session->net));
    *seconds = dlc_since(start);
    return DLC_OK;
}

/* How long a pass takes, of the slowest: the second of two. */
static dlc_status time_pass(dlc_session *session, double *seconds) {
    dlc_intake intake = dlc_iterate_intake(session);
    dlc_status status = dlc_intake_open(&intake);
    for (int i = 0; status == DLC_OK && i < 2; i++)
        status = one_pass(session, &intake, seconds);
    dlc_intake_close(&intake);
    DLC_TRY(status);
    return dlc_pace_slowest(session->connection.comm, seconds);
}

static int32_t as_many_as(double budget, double each, int32_t least, int32_t most) {
    double count = budget / fmax(each, 1e-6);
    return count < least ? least : count > most ? most : (int32_t)count;
}

static dlc_status run(dlc_session *session, double pass, plan_measured *measured) {
    dlc_train_options options = {.is_trial = 1};
    dlc_train_result result = {0};
    dlc_net *test = session->test_net;
    session->max_iterations = as_many_as(RUN, pass, LEAST_RUN, MOST_RUN);
    session->test_net = NULL; /* it counts as memory, but is not timed */
    dlc_status status = dlc_train(session, &options, &result);
    session->test_net = test;
    if (status == DLC_OK && session->rank == 0) {
        measured->images_per_s = result.images_per_s;
        measured->iterations = (int32_t)session->iteration;
    }
    dlc_train_result_free(&result);
    return status;
}

/* ---- Layers ---------------------------------------------------------------------- */

/* A row's time is its median, and that of the slowest rank: all go at its pace. */
static dlc_status read_layers(const dlc_session *session, const dlc_time_table *table,
                              double memory, double slower, plan_measured *measured) {
    const dlc_graph *graph = session->setup->graph;
    dlc_shape sample;
    DLC_TRY(dlc_setup_sample_shape(&session->setup->train, &sample));
    DLC_TRY(dlc_plan_layers_read(graph, session->net, session->share, &sample, NULL,
                                 measured->layer));
    for (size_t i = 0; i < table->rows; i++) {
        double seconds[DLC_NET_PARTS];
        for (int part = 0; part < DLC_NET_PARTS; part++)
            seconds[part] = table->row[i].seconds[part] * slower;
        DLC_TRY(dlc_plan_layers_time(graph, session->net, (int32_t)i, session->share,
                                     memory, seconds, measured->layer));
    }
    measured->rest = fmax(table->pass_median - table->sum.total, 0);
    double weights = dlc_plan_parameter_bytes(measured->layer, measured->layers);
    if (table->sum.seconds[TIME_UPDATE] > 0)
        measured->update = weights / table->sum.seconds[TIME_UPDATE];
    return DLC_OK;
}

static dlc_status read_times(const dlc_session *session, const dlc_time_measured *times,
                             double memory, plan_measured *measured) {
    dlc_time_table table;
    DLC_TRY(dlc_time_table_make(times->row, times->update, &times->samples,
                                TIME_AS_IN_NET, &table));
    double own = table.sum.total, slowest = own;
    dlc_status status = dlc_pace_slowest(session->connection.comm, &slowest);
    if (status == DLC_OK && session->rank == 0)
        status = read_layers(session, &table, memory, own > 0 ? slowest / own : 1,
                             measured);
    dlc_time_table_free(&table);
    return status;
}

static dlc_status measure_layers(dlc_session *session, double pass, int passes,
                                 plan_measured *measured) {
    dlc_time_measured times = {0};
    double memory = 0;
    DLC_TRY(dlc_pace_memory(session->connection.comm, session->device_ops,
                            session->device, &memory));
    if (passes == 0)
        passes = as_many_as(MEASURE, pass, FEW_PASSES, MANY_PASSES);
    dlc_status status = dlc_time_measure(session, passes, &times);
    if (status == DLC_OK)
        status = read_times(session, &times, memory, measured);
    dlc_time_measured_free(&times);
    return status;
}

/* ---- A rank ---------------------------------------------------------------------- */

static void note(const dlc_session *session, const dlc_pace *pace,
                 plan_measured *measured) {
    measured->ranks = session->ranks;
    measured->threads = dlc_job_threads(session->job);
    measured->batch = session->share;
    measured->copies = 1 + session->needs.slots;
    measured->memory = (double)session->planned_bytes;
    measured->host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    measured->one_pass = dlc_schedule_is_one_pass(session);
    measured->sum_latency = pace->latency;
    measured->sum_rate = pace->bandwidth;
    (void)snprintf(measured->transport, sizeof measured->transport, "%s",
                   session->connection.transport);
    measured->done = 1;
}

/* The sums come first, while gradients are zeros; then the run, for measuring layers
 * leaves each rank with weights of its own. */
static dlc_status measure_all(const measuring *m, dlc_session *session) {
    double pass = 0;
    dlc_pace pace;
    DLC_TRY(measure_sums(session, &pace));
    DLC_TRY(time_pass(session, &pass));
    if (m->how.check && session->ranks > 1)
        DLC_TRY(run(session, pass, m->measured));
    DLC_TRY(measure_layers(session, pass, m->how.passes, m->measured));
    if (session->rank == 0)
        note(session, &pace, m->measured);
    return session->ranks > 1 ? dlc_job_barrier(session->job) : DLC_OK;
}

static int measure_as_rank(dlc_job *job, void *argument) {
    const measuring *m = argument;
    dlc_session session;
    m->setup->unsplit = 1; /* what could be gained by it is for the planner to say */
    dlc_status status = dlc_session_open(m->setup, job, &session);
    if (status == DLC_OK) {
        status = measure_all(m, &session);
        dlc_session_close(&session);
    }
    return dlc_tool_end_rank(job, status);
}

/* ---- The job --------------------------------------------------------------------- */

static size_t bytes_for(size_t layers) {
    return sizeof(plan_measured) + layers * sizeof(dlc_plan_layer);
}

void plan_measured_free(plan_measured *measured) {
    if (measured)
        (void)munmap(measured, bytes_for(measured->layers));
}

dlc_status plan_measure(dlc_setup *setup, const plan_how *how, plan_measured **measured,
                        int *exit_code) {
    size_t layers = (size_t)setup->graph->layers;
    void *memory = mmap(NULL, bytes_for(layers), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return dlc_fail(DLC_ERR_NOMEM, "memory to share with the ranks: %s",
                        strerror(errno));
    measuring m = {setup, *how, memory};
    m.measured->layers = layers;
    dlc_status status = dlc_tool_run(setup, measure_as_rank, &m, exit_code);
    if (status == DLC_OK && *exit_code == 0 && !m.measured->done)
        status = dlc_fail(DLC_ERR_INTERNAL, "rank 0 has told of no measurement");
    if (status != DLC_OK || *exit_code != 0)
        plan_measured_free(m.measured);
    else
        *measured = m.measured;
    return status;
}
