/* Tests what is decided on recorded machines: domains, nearest adapters, the order of
 * reductions, levels and transports, as expected/NAME.txt has them for a job on one
 * such machine and on two. `dlcore topo` and a job that connects call the same
 * functions with the same arguments. With WRITE=yes in the environment the files are
 * written instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "comm/choose.h"
#include "comm/nodes.h"
#include "plan/buckets.h"
#include "support/test.h"
#include "topology/recorded.h"

static const char *const files[] = {
    "hgx-h100",
    "hgx-a100",
    "dgx-1",
    "mi300x",
    "pcie-switches",
    "pcie-plain",
    "two-hosts",
    "cloud-a100-4numa",
    "cloud-h100-2numa",
    "cloud-links-to-itself",
    "cloud-a100-shared-nic",
    "cloud-no-class",
    "dual-socket",
    "four-numa",
    "pcie-box",
    "virtual-machine",
    "version-1",
    "version-3",
    "nvlink-bridges",
    "nvswitch",
    "numa-root",
};

enum { RANKS_MAX = 64 };

/* A job on the machines of a file. */
typedef struct recorded_job {
    dlc_topo topo;
    dlc_domains domains;
    int32_t end[RANKS_MAX], ranks;
    dlc_rank_info rank_info[RANKS_MAX];
    int on_gpus;
} recorded_job;

static dlc_registry *registry;

static dlc_status export_memory(dlc_device *device, const dlc_memory *memory,
                                dlc_ipc_handle *handle) {
    (void)device;
    (void)memory;
    (void)handle;
    return DLC_ERR_UNSUPPORTED;
}

static dlc_status import_memory(dlc_device *device, const dlc_ipc_handle *handle,
                                dlc_memory *memory) {
    (void)device;
    (void)handle;
    (void)memory;
    return DLC_ERR_UNSUPPORTED;
}

/* Devices that share memory; none is opened. */
static const dlc_device_queue_ops queues = {.size = sizeof queues};
static const dlc_device_ops cpu = {
    .size = sizeof cpu, .ipc_export = export_memory, .ipc_import = import_memory};
static const dlc_device_ops gpu = {.size = sizeof gpu,
                                   .ipc_export = export_memory,
                                   .ipc_import = import_memory,
                                   .queues = &queues};

static void place(recorded_job *job, const char *file, int nodes) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s%s.xml", MACHINES, file);
    const dlc_recorded from = {path, nodes, 0, "cpu"};
    memset(job, 0, sizeof *job);
    ck_assert_msg(dlc_recorded_read(&from, &job->topo) == DLC_OK, "%s", dlc_detail());
    job->on_gpus = dlc_topo_count(&job->topo, -1, DLC_TOPO_GPU) > 0;
    dlc_topo_kind kind = job->on_gpus ? DLC_TOPO_GPU : DLC_TOPO_RANK;
    for (int32_t i = 0; i < (int32_t)job->topo.nodes; i++)
        if (job->topo.node[i].kind == kind && job->ranks < RANKS_MAX) {
            job->end[job->ranks] = i;
            job->rank_info[job->ranks++] = dlc_recorded_rank_info(&job->topo, i, "gpu");
        }
    ck_assert_int_eq(
        dlc_domains_make(&job->topo, job->end, job->ranks, NULL, &job->domains),
        DLC_OK);
    for (int32_t r = 0; r < job->ranks; r++)
        dlc_domains_tell(&job->domains, &job->topo, r, &job->rank_info[r]);
}

static void add_order(const recorded_job *job, dlc_text *text) {
    dlc_merge merges[RANKS_MAX];
    dlc_nodes nodes;
    ck_assert_int_eq(dlc_nodes_make(job->rank_info, job->ranks, &nodes), DLC_OK);
    dlc_nodes_merges(&nodes, merges);
    dlc_text_add(text, "reduces:\n   ");
    for (int32_t i = 0; i + 1 < job->ranks; i++)
        dlc_text_add(text, " %d+%d", (int)merges[i].into, (int)merges[i].from);
    dlc_text_add(text, "\n");
    dlc_nodes_free(&nodes);
}

static void add_transports(const dlc_transport_choice *choice, dlc_text *text) {
    dlc_text_add(text, "transports:\n");
    for (int32_t i = 0; i < choice->levels; i++) {
        char scope[48];
        dlc_comm_scope_text(choice->level[i].scope, scope);
        dlc_text_add(text, "    %s%s\n", choice->level[i].feature->name, scope);
    }
    dlc_text_add(text, "    predicted %.3g ms for %.3g MB", choice->seconds * 1e3,
                 choice->bytes / 1e6);
    if (choice->next)
        dlc_text_add(text, "; next best: %s, %.3g ms", choice->next,
                     choice->next_seconds * 1e3);
    dlc_text_add(text, "\n");
}

/* A machine may have no network but its loopback. */
static int lacks_network(const dlc_transport_choice *choice) {
    for (size_t i = 0; i < choice->verdicts; i++)
        if (strstr(choice->verdict[i].reason, "finds no network"))
            return 1;
    return 0;
}

/* Adds what is decided; 0 if this machine cannot say. */
static int decide(const char *file, int nodes, dlc_text *text) {
    recorded_job job;
    dlc_transport_choice choice = {.levels = 0};
    place(&job, file, nodes);
    const dlc_transport_args group = {.size = sizeof group,
                                      .ranks = job.ranks,
                                      .rank_info = job.rank_info,
                                      .device_ops = job.on_gpus ? &gpu : &cpu};
    const dlc_choose_args args = {.registry = registry,
                                  .wanted = "auto",
                                  .device = job.on_gpus ? "gpu" : "cpu",
                                  .group = &group,
                                  .topo = &job.topo,
                                  .domains = &job.domains,
                                  .cost = dlc_plan_reduction};
    dlc_text_add(text, "%s%d x %s.xml\n\n", nodes > 1 ? "\n" : "", nodes, file);
    dlc_domains_text(&job.domains, &job.topo, text);
    add_order(&job, text);
    dlc_status status = dlc_transport_choose(&args, &choice);
    int says = !lacks_network(&choice);
    ck_assert_msg(status == DLC_OK || !says, "%s: %s", file, dlc_detail());
    add_transports(&choice, text);
    dlc_transport_choice_free(&choice);
    dlc_domains_free(&job.domains);
    dlc_topo_free(&job.topo);
    return says;
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 65536);
    ck_assert_msg(file && text, "%s is not there", path);
    ck_assert_uint_gt(fread(text, 1, 65535, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

static void setup(void) {
    ck_assert_int_eq(setenv("DLCORE_PLUGIN_PATH", TRANSPORTS, 1), 0);
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
}

static void teardown(void) {
    dlc_registry_close(registry);
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = teardown);

TEST_EACH(as_expected, COUNT(files)) {
    char path[512];
    dlc_text text = {0};
    (void)snprintf(path, sizeof path, "%s%s.txt", EXPECTED, files[_i]);
    int says = decide(files[_i], 1, &text);
    says = decide(files[_i], 2, &text) && says;
    ck_assert_int_eq(dlc_text_status(&text), DLC_OK);
    if (getenv("WRITE"))
        write_file(path, dlc_text_string(&text));
    char *expected = read_file(path);
    ck_assert_msg(!says || strcmp(expected, dlc_text_string(&text)) == 0,
                  "%s: expected\n%s\nfound\n%s", files[_i], expected,
                  dlc_text_string(&text));
    free(expected);
    dlc_text_free(&text);
}
