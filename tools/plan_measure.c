/* Runs a job that benchmarks the all-reduce, trains for a short time, and times the
 * layers; rank 0 leaves the results in memory shared with the command. */
#include "plan_measure.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "comm/comm_benchmark.h"
#include "options.h"
#include "plan/layers.h"
#include "plan_predict.h"
#include "run/run.h"
#include "session/exchange_schedule.h"
#include "time_measure.h"
#include "train/iterate.h"
#include "train/train.h"

enum { MIN_RUN = 6, MAX_RUN = 400, MIN_PASSES = 5, MAX_PASSES = 25 };
static const double RUN_SECONDS = 4, MEASURE_SECONDS = 3;

typedef struct measuring {
    dlc_setup *setup;
    plan_measure_options options;
    plan_measured *measured; /* memory that rank 0 shares with the command */
} measuring;

/* ---- Steps of a rank ------------------------------------------------------------- */

static dlc_status measure_all_reduce(dlc_session *session, dlc_comm_cost *cost) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    *cost = (dlc_comm_cost){.latency = 0};
    if (session->ranks == 1)
        return DLC_OK;
    return dlc_comm_benchmark(session->connection.comm, session->device_ops,
                              session->device, arenas->gradients, arenas->count, cost);
}

static dlc_status one_pass(dlc_session *session, dlc_upload *upload, double *seconds) {
    uint64_t start;
    DLC_TRY(dlc_time_pass(session, upload, 0, &start));
    DLC_TRY(dlc_net_sync(session->net));
    *seconds = dlc_since(start);
    return DLC_OK;
}

/* Gives the time of a pass on the slowest rank: that of the second one. */
static dlc_status time_pass(dlc_session *session, double *seconds) {
    dlc_upload upload = dlc_iterate_upload(session);
    dlc_status status = dlc_upload_open(&upload);
    for (int i = 0; status == DLC_OK && i < 2; i++)
        status = one_pass(session, &upload, seconds);
    dlc_upload_close(&upload);
    DLC_TRY(status);
    return dlc_comm_max_seconds(session->connection.comm, seconds);
}

static int32_t as_many_as(double budget, double each, int32_t least, int32_t most) {
    double count = budget / fmax(each, 1e-6);
    return count < least ? least : count > most ? most : (int32_t)count;
}

static dlc_status run(dlc_session *session, double pass, plan_measured *measured) {
    dlc_train_options options = {.is_trial = 1};
    dlc_train_result result = {0};
    dlc_net *test = session->test_net;
    session->max_iterations = as_many_as(RUN_SECONDS, pass, MIN_RUN, MAX_RUN);
    session->test_net = NULL; /* it uses memory, but isn't timed */
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

/* The times of rows are medians, scaled to the slowest rank, which all others wait for.
 */
static dlc_status read_layers(const dlc_session *session, const dlc_time_table *table,
                              double memory, double slower, dlc_plan_layer *layer) {
    const dlc_graph *graph = session->setup->graph;
    dlc_shape sample;
    DLC_TRY(dlc_setup_sample_shape(&session->setup->train, &sample));
    DLC_TRY(dlc_plan_layers_read(graph, session->net, session->local_batch, &sample, 0,
                                 layer));
    for (size_t i = 0; i < table->rows; i++) {
        double seconds[DLC_NET_PARTS];
        for (int part = 0; part < DLC_NET_PARTS; part++)
            seconds[part] = table->row[i].seconds[part] * slower;
        DLC_TRY(dlc_plan_layers_time(graph, session->net, (int32_t)i,
                                     session->local_batch, memory, seconds, layer));
    }
    return DLC_OK;
}

static void read_rest(const dlc_time_table *table, double memory,
                      plan_measured *measured) {
    measured->rest = fmax(table->pass_median - table->sum.total, 0);
    measured->accumulate_bandwidth = memory / DLC_PLAN_ADD_MOVES;
    double weights = dlc_plan_parameter_bytes(measured->layer, measured->layers);
    if (table->sum.seconds[TIME_UPDATE] > 0)
        measured->update_bandwidth = weights / table->sum.seconds[TIME_UPDATE];
}

/* Of the batch, or of a micro-batch, with which the layers alone are measured. */
static dlc_status read_all(const dlc_session *session, const dlc_time_table *table,
                           double memory, double slower, plan_measured *measured) {
    double batch = (double)measured->batch, samples = (double)session->local_batch;
    dlc_plan_layer *layer = measured->layer, *small = layer + measured->layers;
    if (measured->batch == 0) {
        DLC_TRY(read_layers(session, table, memory, slower, layer));
        read_rest(table, memory, measured);
        measured->batch = session->local_batch;
        return DLC_OK;
    }
    DLC_TRY(read_layers(session, table, memory, slower, small));
    plan_layers_fit(layer, measured->layers, batch, small, samples);
    measured->micro_batch = session->local_batch;
    return DLC_OK;
}

static dlc_status read_times(const dlc_session *session, const dlc_time_measured *times,
                             double memory, plan_measured *measured) {
    dlc_time_table table;
    DLC_TRY(dlc_time_table_make(times->row, times->update, NULL, &times->samples,
                                TIME_AS_IN_NET, &table));
    double mine = table.sum.total, slowest = mine;
    dlc_status status = dlc_comm_max_seconds(session->connection.comm, &slowest);
    if (status == DLC_OK && session->rank == 0)
        status = read_all(session, &table, memory, mine > 0 ? slowest / mine : 1,
                          measured);
    dlc_time_table_free(&table);
    return status;
}

static dlc_status measure_layers(dlc_session *session, double pass, int passes,
                                 plan_measured *measured) {
    dlc_time_measured times = {0};
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    double memory = 0;
    DLC_TRY(dlc_comm_benchmark_memory(session->connection.comm, session->device_ops,
                                      session->device, arenas->gradients, arenas->count,
                                      &memory));
    if (passes == 0)
        passes = as_many_as(MEASURE_SECONDS, pass, MIN_PASSES, MAX_PASSES);
    dlc_status status = dlc_time_measure(session, passes, &times);
    if (status == DLC_OK)
        status = read_times(session, &times, memory, measured);
    dlc_time_measured_free(&times);
    return status;
}

/* ---- A rank ---------------------------------------------------------------------- */

static void save_results(const dlc_session *session, const dlc_comm_cost *cost,
                         plan_measured *measured) {
    measured->ranks = session->ranks;
    measured->threads = dlc_job_threads(session->job);
    measured->copies = 1 + dlc_solver_states(&session->solver);
    measured->memory = (double)session->planned_bytes;
    measured->host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    measured->fused_update = dlc_exchange_schedule_is_fused(session,
                                                            session->connection.comm);
    measured->all_reduce_latency = cost->latency;
    measured->all_reduce_bandwidth = cost->bandwidth;
    (void)snprintf(measured->transport, sizeof measured->transport, "%s",
                   session->connection.transport);
    measured->done = 1;
}

/* The all-reduce benchmark comes first, because it needs gradients that are zeros; then
 * the run, because timing layers leaves the ranks with different weights. */
static dlc_status measure_all(const measuring *m, dlc_session *session) {
    double pass = 0;
    dlc_comm_cost cost;
    DLC_TRY(measure_all_reduce(session, &cost));
    DLC_TRY(time_pass(session, &pass));
    if (m->options.check && session->ranks > 1)
        DLC_TRY(run(session, pass, m->measured));
    DLC_TRY(measure_layers(session, pass, m->options.passes, m->measured));
    if (session->rank == 0)
        save_results(session, &cost, m->measured);
    return session->ranks > 1 ? dlc_job_barrier(session->job) : DLC_OK;
}

static dlc_status measure_micro_batch(const measuring *m, dlc_session *session) {
    double pass = 0;
    DLC_TRY(time_pass(session, &pass));
    return measure_layers(session, pass, m->options.passes, m->measured);
}

static dlc_status measure_with(const measuring *m, dlc_job *job, int64_t batch,
                               dlc_status (*measure)(const measuring *m,
                                                     dlc_session *session)) {
    dlc_session session;
    m->setup->train.batch = batch;
    DLC_TRY(dlc_session_open(m->setup, job, &session));
    dlc_status status = measure(m, &session);
    dlc_session_close(&session);
    return status;
}

/* Divides a batch as training would, which refuses the same: *samples of a micro-batch,
 * on rank 0; 0: there are no stages. */
static dlc_status divide_batch(const measuring *m, dlc_job *job, int64_t *samples) {
    int32_t ranks = m->options.mesh_ranks;
    dlc_session session;
    if (ranks < 2 || m->setup->mesh_sizes.pipeline == 1)
        return DLC_OK;
    DLC_TRY(dlc_session_open_plan(m->setup, job, dlc_job_rank(job) % ranks, ranks,
                                  &session));
    if (session.rank == 0)
        m->measured->micro_batches = session.micro_batches;
    *samples = session.part.samples;
    dlc_session_close(&session);
    return dlc_job_broadcast(job, 0, samples, sizeof *samples);
}

/* The planner decides about everything but data parallelism. */
static void forget_mesh(dlc_setup *setup) {
    setup->data_parallel_only = 1;
    setup->mesh_sizes = (dlc_mesh_sizes){.tensor = 1, .pipeline = 1};
    for (int32_t i = 0; i < setup->graph->layers; i++)
        setup->graph->layer[i].parallel = DLC_PARALLEL_DATA;
}

static int measure_as_rank(dlc_job *job, void *argument) {
    const measuring *m = argument;
    int64_t batch = m->setup->train.batch, small = 0;
    dlc_job_stop_at_once(job, 1);
    dlc_status status = divide_batch(m, job, &small);
    forget_mesh(m->setup);
    if (status == DLC_OK)
        status = measure_with(m, job, batch, measure_all);
    if (status == DLC_OK && small > 0 && small < batch)
        status = measure_with(m, job, small, measure_micro_batch);
    return dlc_tool_end_rank(job, status);
}

/* ---- The job --------------------------------------------------------------------- */

/* With as many layers again, of a micro-batch. */
static size_t bytes_for(size_t layers) {
    return sizeof(plan_measured) + 2 * layers * sizeof(dlc_plan_layer);
}

void plan_measured_free(plan_measured *measured) {
    if (measured)
        (void)munmap(measured, bytes_for(measured->layers));
}

dlc_status plan_measure(dlc_setup *setup, const plan_measure_options *options,
                        plan_measured **measured, int *exit_code) {
    size_t layers = (size_t)setup->graph->layers;
    void *memory = mmap(NULL, bytes_for(layers), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return dlc_fail(DLC_ERR_NOMEM,
                        "cannot allocate memory to share with the ranks: %s",
                        strerror(errno));
    measuring m = {setup, *options, memory};
    m.measured->layers = layers;
    m.measured->micro_batches = 1;
    dlc_status status = dlc_tool_run(setup, measure_as_rank, &m, exit_code);
    if (status == DLC_OK && *exit_code == 0 && !m.measured->done)
        status = dlc_fail(DLC_ERR_INTERNAL, "rank 0 has reported no measurement");
    if (status != DLC_OK || *exit_code != 0)
        plan_measured_free(m.measured);
    else
        *measured = m.measured;
    return status;
}
