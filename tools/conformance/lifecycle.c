/* The checks of opening and closing, for the kinds that one process can open alone:
 * devices, layers, consistency models and data sources. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlcore/dlcore.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/decoders.h"
#include "device_fixture.h"
#include "host.h"
#include "process.h"
#include "solver/solver.h"
#include "suite.h"
#include "training_fixture.h"

/* An object of the plugin, and what it needs. */
typedef struct fixture {
    suite_run *run;
    device_fixture device; /* for layers */
    void *family;          /* for layers */
    training_fixture training;
    void *object;
} fixture;

/* ---- Opening and closing ---------------------------------------------------- */

static dlc_status open_device(fixture *l) {
    const dlc_device_ops *ops = l->run->feature->ops;
    int32_t count = 0;
    dlc_device_args args = {
        .size = sizeof args, .settings = l->run->settings, .threads = 2};
    dlc_status status = ops->count(&count);
    if (status == DLC_OK && count < 1)
        suite_skip(l->run, "this machine has no such device");
    dlc_device *device = NULL;
    status = status == DLC_OK ? ops->open(&args, &device) : status;
    l->object = device;
    return status;
}

static dlc_status open_data(fixture *l) {
    const dlc_data_ops *ops = l->run->feature->ops;
    dlc_data_args args = {.size = sizeof args,
                          .settings = l->run->settings,
                          .seed = 1,
                          .image_endings = DLC_USUAL_ENDINGS};
    dlc_source *source = NULL;
    dlc_status status = ops->open(&args, &source);
    l->object = source;
    return status;
}

static dlc_status open_layer(fixture *l) {
    const dlc_layer_ops *ops = l->run->feature->ops;
    dlc_family_args family = {.size = sizeof family,
                              .device_ops = l->device.ops,
                              .device = l->device.handle,
                              .threads = 1,
                              .phase = DLC_PHASE_TRAIN,
                              .precision = DLC_F32};
    DLC_TRY(ops->family->open(&family, &l->family));
    dlc_layer_args args = {.size = sizeof args,
                           .name = "checked",
                           .settings = l->run->settings,
                           .context = l->family,
                           .phase = DLC_PHASE_TRAIN,
                           .seed = 1};
    dlc_layer *layer = NULL;
    dlc_status status = ops->create(&args, &layer);
    l->object = layer;
    return status;
}

static dlc_status open_consistency(fixture *l) {
    l->training.model = NULL;
    dlc_status status = training_fixture_create(&l->training, 0);
    l->object = l->training.model;
    return status;
}

static dlc_status fixture_open(fixture *l) {
    l->object = l->family = NULL;
    switch ((dlc_kind)l->run->feature->kind) {
    case DLC_KIND_DEVICE:
        return open_device(l);
    case DLC_KIND_DATA:
        return open_data(l);
    case DLC_KIND_LAYER:
        return open_layer(l);
    case DLC_KIND_CONSISTENCY:
        return open_consistency(l);
    case DLC_KIND_SOLVER:
    case DLC_KIND_DECODER:
        suite_skip(l->run, "it has nothing to open");
    case DLC_KIND_TRANSPORT:
        break;
    }
    suite_skip(l->run, "a transport needs several ranks; see the checks transport.*");
}

static void close_layer(fixture *l, dlc_layer *layer) {
    const dlc_layer_ops *ops = l->run->feature->ops;
    ops->destroy(layer);
    if (l->family)
        ops->family->close(l->family);
    l->family = NULL;
}

/* Closes what fixture_open opened; `object` may be NULL. */
static void fixture_close(fixture *l, void *object) {
    const void *ops = l->run->feature->ops;
    switch ((dlc_kind)l->run->feature->kind) {
    case DLC_KIND_DEVICE:
        ((const dlc_device_ops *)ops)->close(object);
        break;
    case DLC_KIND_DATA:
        ((const dlc_data_ops *)ops)->close(object);
        break;
    case DLC_KIND_LAYER:
        close_layer(l, object);
        break;
    case DLC_KIND_CONSISTENCY:
        ((const dlc_consistency_ops *)ops)->destroy(object);
        break;
    case DLC_KIND_SOLVER:
    case DLC_KIND_DECODER:
    case DLC_KIND_TRANSPORT:
        break;
    }
}

/* Prepares what layers and consistency models work with. */
static void fixture_begin(suite_run *run, fixture *l) {
    *l = (fixture){.run = run};
    if (run->feature->kind == DLC_KIND_SOLVER || run->feature->kind == DLC_KIND_DECODER)
        suite_skip(run, "it has nothing to open");
    if (run->feature->kind == DLC_KIND_LAYER)
        device_fixture_open(run, &l->device);
    if (run->feature->kind == DLC_KIND_CONSISTENCY)
        training_fixture_open(run, &l->training);
}

/* ---- Checks ----------------------------------------------------------------- */

/* The check is not run if a setting is missing: some features report that when they
 * open. */
static void must_open(fixture *l) {
    dlc_status status = fixture_open(l);
    if (status == DLC_ERR_CONFIG)
        suite_lack(l->run, "it cannot be opened with these settings: %s (use --set)",
                   dlc_detail());
    suite_must(l->run, status, "opening it");
}

static void open_and_close(void *context) {
    fixture *l = context;
    must_open(l);
    fixture_close(l, l->object);
}

static void opens_again_and_again(suite_run *run) {
    enum { TIMES = 3 };
    fixture l;
    fixture_begin(run, &l);
    suite_repeat(run, TIMES, "opening and closing it", open_and_close, &l);
    if (suite_count_descendants(1))
        suite_fail(run, "opened and closed, it leaves a process running");
}

static void two_at_a_time(suite_run *run) {
    fixture l;
    fixture_begin(run, &l);
    must_open(&l);
    fixture other = l;
    suite_must(run, fixture_open(&other), "opening a second one");
    fixture_close(&l, l.object);
    fixture_close(&other, other.object);
}

static void takes_null(suite_run *run) {
    fixture l;
    fixture_begin(run, &l);
    fixture_close(&l, NULL);
}

/* Makes each allocation fail once: opening must return an error with a sentence and
 * leave nothing allocated, and it must work the next time. */
static void goes_without_memory(suite_run *run) {
    enum { MOST = 400 };
    fixture l;
    fixture_begin(run, &l);
    must_open(&l);
    fixture_close(&l, l.object);
    for (int64_t n = 1; n <= MOST; n++) {
        int64_t before = suite_host_allocations();
        (void)dlc_fail(DLC_OK, "%s", "");
        suite_host_fail_allocation(n);
        dlc_status status = fixture_open(&l);
        int failed = suite_host_has_failed();
        suite_host_fail_allocation(0);
        if (status != DLC_OK && !*dlc_detail())
            suite_fail(
                run,
                "opening fails without a detail sentence when allocation %lld fails",
                (long long)n);
        fixture_close(&l, l.object);
        if (status != DLC_OK && suite_host_allocations() > before)
            suite_fail(run,
                       "opening fails at allocation %lld and leaks %lld allocations",
                       (long long)n, (long long)(suite_host_allocations() - before));
        if (!failed)
            break;
    }
    suite_must(run, fixture_open(&l), "opening it after allocations had failed");
    fixture_close(&l, l.object);
}

static int can_open(const dlc_feature *feature) {
    return feature->kind == DLC_KIND_DEVICE || feature->kind == DLC_KIND_LAYER ||
           feature->kind == DLC_KIND_CONSISTENCY || feature->kind == DLC_KIND_DATA;
}

/* In a process that has called exit(). */
static void use_and_exit(suite_run *run) {
    fixture l;
    if (suite_load(run) == DLC_OK && can_open(run->feature)) {
        suite_make_settings(run);
        fixture_begin(run, &l);
        must_open(&l);
        fixture_close(&l, l.object);
    }
    exit(0); // NOLINT(concurrency-mt-unsafe)
}

static void ends_in_order(suite_run *run) {
    int status = 0;
    pid_t child = suite_fork(run);
    if (child == 0)
        use_and_exit(run);
    if (child < 0 || waitpid(child, &status, 0) != child)
        suite_skip(run, "cannot start a process");
    if (WIFSIGNALED(status))
        suite_fail(run, "it crashes as the process exits: signal %d (%s)",
                   WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status))
        suite_fail(run, "after exit(0), it ends the process with exit code %d",
                   WEXITSTATUS(status));
}

static void ask_values(suite_run *run) {
    const dlc_solver_ops *ops = run->feature->ops;
    dlc_rule_values values = {.learning_rate = 1};
    if (DLC_CAN(ops, values))
        suite_must(run, ops->values(run->settings, 0, &values), "values");
}

static void ask_solver(suite_run *run) {
    const dlc_solver_ops *ops = run->feature->ops;
    dlc_solver_needs needs = {.size = sizeof needs};
    suite_must(run, ops->needs(run->settings, &needs), "needs");
    ask_values(run);
}

/* The host table fails the check if an option is read as another type. */
static void reads_its_settings(suite_run *run) {
    fixture l;
    if (run->feature->kind == DLC_KIND_SOLVER) {
        ask_solver(run);
        return;
    }
    fixture_begin(run, &l);
    must_open(&l);
    fixture_close(&l, l.object);
}

#define CHECK(name, promise, run) \
    { name, promise, 0, 1, SUITE_LOADED, 120, run }

const suite_check suite_lifecycle_checks[] = {
    CHECK("lifecycle.settings", "options are read as the types that they have",
          reads_its_settings),
    CHECK("lifecycle.leaks", "opening and closing leaks nothing",
          opens_again_and_again),
    CHECK("lifecycle.two", "two can be open at the same time", two_at_a_time),
    CHECK("lifecycle.null", "closing NULL does nothing", takes_null),
    CHECK("lifecycle.no_memory", "opening survives the failure of each allocation",
          goes_without_memory),
    {"lifecycle.exit", "after closing, the process exits", 0, 1, SUITE_OPENED, 30,
     ends_in_order},
    {.name = NULL},
};
