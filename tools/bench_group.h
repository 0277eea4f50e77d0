/* The environment of a communication benchmark: a device, the transport chosen for the
 * ranks, a communicator, memory. Called by `dlcore bench comm` and `dlcore topo`. */
#ifndef DLC_TOOLS_BENCH_GROUP_H
#define DLC_TOOLS_BENCH_GROUP_H

#include "comm/team.h"
#include "session/connection.h"

/* Made before the ranks are forked, which inherit it. Start with {0}. */
typedef struct dlc_bench_plan {
    dlc_registry *registry;
    dlc_config *config;
    dlc_settings *train_settings; /* with the device's options */
    dlc_settings *parallel_settings;
    dlc_settings *transport_settings; /* [transport], with the options of A and B */
    const dlc_feature *device;
    const char *transport; /* "auto", "A", "A+B" */
    int32_t ranks;
} dlc_bench_plan;

/* `sets` are "section.key=value", of [train], [parallel] and [transport]. Mistakes are
 * logged. */
dlc_status dlc_bench_plan_open(const char *const *sets, size_t nsets,
                               dlc_bench_plan *plan);
void dlc_bench_plan_close(dlc_bench_plan *plan); /* {0} is allowed */

/* Runs `main` in every rank. */
dlc_status dlc_bench_plan_run(const dlc_bench_plan *plan, dlc_job_main main,
                              void *argument, int *exit_code);

/* One rank's state. */
typedef struct dlc_bench_group {
    const dlc_bench_plan *plan;
    dlc_job *job;
    int32_t rank, ranks;
    int stopped; /* by a signal; the same on all ranks */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_connection connection;
    dlc_team *messages; /* owned; a second endpoint, for messages; or NULL */
    dlc_settings *messages_settings; /* owned; NULL: those of the plan */
    dlc_memory memory[2];            /* [1] is for received messages */
} dlc_bench_group;

typedef struct dlc_bench_group_args {
    size_t bytes;
    int arena;    /* memory is shared and registered */
    int messages; /* messages are sent, too */
} dlc_bench_group_args;

/* Collective. */
dlc_status dlc_bench_group_open(const dlc_bench_plan *plan, dlc_job *job,
                                const dlc_bench_group_args *args,
                                dlc_bench_group *group);
void dlc_bench_group_close(dlc_bench_group *group);

#endif
