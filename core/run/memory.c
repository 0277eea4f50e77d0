/* Adds up the planned memory of a rank and of the ranks of a machine, and refuses what
 * does not fit. */
#include "run/memory.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/upload.h"
#include "parallel/pipeline/pipeline.h"
#include "plugin/device_objects.h"
#include "run/feeds.h"
#include "run/run.h"
#include "session/cluster_costs.h"
#include "session/model.h"
#include "session/scratch.h"
#include "topology/quota.h"

/* ---- A rank ------------------------------------------------------------------ */

/* What libraries load, and the code that they generate, when nets are built and first
 * run: between 5 and 20 MB, growing with the net. */
#define FIRST_USE_BYTES 10000000

/* Resident memory varies a little from run to run, so it is rounded: the same net gives
 * the same number. */
static uint64_t process_bytes(const dlc_setup *setup) {
    const uint64_t step = 4000000;
    return (setup->resident_bytes + FIRST_USE_BYTES + step / 2) / step * step;
}

/* How many ranks have the same parameters of a set, and can share their states. */
static int32_t ranks_with_shards(const dlc_session *session, int32_t set) {
    const dlc_mesh *mesh = &session->mesh;
    return set == DLC_PARAMS_WHOLE ? dlc_mesh_stage_group(mesh, session->rank).ranks
                                   : dlc_mesh_data_group(mesh, session->rank).ranks;
}

/* Are updates sharded, if [transport] shard_optimizer is not `other`? */
static int shards_unless(const dlc_session *session, const char *other) {
    return dlc_session_may_shard(session) &&
           ranks_with_shards(session, DLC_PARAMS_WHOLE) > 1 &&
           !dlc_settings_is(session->setup->transport_settings, "shard_optimizer",
                            other);
}

/* Of slots, the average of the weights, and the sums of norms, without the consistency
 * model's own. With shard_optimizer a rank has its shards; whether `auto` means that is
 * known only when ranks are connected. */
static uint64_t solver_bytes(const dlc_session *session) {
    uint64_t states = (uint64_t)dlc_solver_states(&session->solver);
    if (!session->net)
        return 0;
    int has_shards = shards_unless(session, "no") && shards_unless(session, "auto");
    int has_norms = dlc_solver_needs_whole_tensors(&session->solver);
    uint64_t bytes = 0;
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        uint64_t count = dlc_net_arenas_of(session->net, s)->count;
        uint64_t shards = (uint64_t)ranks_with_shards(session, s);
        bytes += has_norms ? count / DLC_SQUARE_PIECE * sizeof(double) : 0;
        if (has_shards && count && shards > 1)
            count = count / shards + DLC_SQUARE_PIECE;
        bytes += states * count * sizeof(float);
    }
    return bytes;
}

/* Before there are nets, the speed of the memory may be measured. */
static uint64_t peak_of(const dlc_session *session, const dlc_session_memory *memory) {
    uint64_t sum = memory->weights + memory->gradients + memory->solver +
                   memory->activations + memory->uploads;
    uint64_t before = session->ranks > 1 && dlc_session_measures(session)
                          ? dlc_cluster_costs_bytes(session)
                          : 0;
    if (session->setup->device->caps & DLC_DEVICE_HOST) {
        sum += memory->feeds + memory->checkpoint + memory->process;
        before += memory->process - FIRST_USE_BYTES;
    }
    return before > sum ? before : sum;
}

dlc_status dlc_session_memory_plan(const dlc_session *session,
                                   dlc_session_memory *memory) {
    const dlc_setup *setup = session->setup;
    dlc_net_memory train = {0}, test = {0};
    uint64_t feed = 0, test_feed = 0, batch = 0, test_batch = 0;
    if (session->net) /* NULL if saved weights are only tested */
        train = dlc_net_memory_plan(session->net);
    if (session->local_batch > 0) /* a server has no samples */
        DLC_TRY(dlc_feeds_bytes(session, DLC_PHASE_TRAIN, &feed, &batch));
    if (session->test_net) {
        DLC_TRY(dlc_feeds_bytes(session, DLC_PHASE_TEST, &test_feed, &test_batch));
        test = dlc_net_memory_plan(session->test_net);
    }
    dlc_session_memory made = {
        .process = process_bytes(setup),
        .weights = train.weights + train.buffers + test.weights + test.buffers,
        .gradients = session->accumulation_steps * session->micro_batches > 1
                         ? 2 * train.gradients
                         : train.gradients,
        .solver = solver_bytes(session),
        .activations = train.activations + test.activations,
        .feeds = feed + test_feed,
        .uploads = dlc_session_async_queue(session) ? DLC_UPLOAD_SLOTS * batch : 0};
    if (session->net) {
        uint64_t model = 0;
        DLC_TRY(dlc_session_model_bytes(session, &model));
        made.solver += model;
        made.checkpoint = dlc_scratch_planned(session, shards_unless(session, "no"));
    }
    made.train_batch = train.activations + feed + made.uploads;
    made.test_batch = test.activations + test_feed;
    if (session->pipeline)
        made.activations += dlc_pipeline_bytes(session->pipeline);
    made.peak = peak_of(session, &made);
    *memory = made;
    return DLC_OK;
}

/* ---- A machine --------------------------------------------------------------- */

void dlc_memory_add(const dlc_setup *setup, const dlc_session_memory *memory,
                    int32_t ranks, dlc_memory_sum *sum) {
    int on_host = (setup->device->caps & DLC_DEVICE_HOST) != 0;
    uint64_t own = on_host ? memory->peak - memory->process
                           : memory->feeds + memory->checkpoint;
    sum->ranks += ranks;
    if (__builtin_mul_overflow(own, (uint64_t)ranks, &own) ||
        __builtin_add_overflow(sum->own, own, &sum->own))
        sum->own = UINT64_MAX / 2;
    sum->train_batch += (double)memory->train_batch * ranks;
    sum->test_batch += (double)memory->test_batch * ranks;
    if (memory->process > sum->process)
        sum->process = memory->process;
    if (!on_host && memory->peak > sum->device)
        sum->device = memory->peak;
}

/* The host memory of all ranks of the machine. */
static uint64_t total_bytes(const dlc_memory_sum *sum) {
    int32_t others = sum->ranks > 1 ? sum->ranks - 1 : 0;
    return sum->own + sum->process + (uint64_t)others * FIRST_USE_BYTES;
}

/* Fails, or warns with [train] overcommit, that `name` has too little memory. Names the
 * batch that needs the most of it. */
static dlc_status refuse_memory(const dlc_session *session, const dlc_memory_sum *sum,
                                const char *who, uint64_t bytes, const char *name,
                                double has) {
    const dlc_setup *setup = session->setup;
    int by_test = sum->test_batch > sum->train_batch;
    int overcommit = dlc_settings_get_bool(setup->train_settings, "overcommit");
    const dlc_settings *data = by_test ? setup->test.settings : setup->train.settings;
    char needed[DLC_AMOUNT_TEXT], there[DLC_AMOUNT_TEXT];
    char how[128] = "trying anyway ([train] overcommit)";
    if (!overcommit)
        (void)snprintf(how, sizeof how,
                       "use a smaller batch%s or fewer ranks; --overcommit tries it "
                       "anyway",
                       by_test ? "" : ", [train] recompute = yes");
    (void)dlc_fail(
        DLC_ERR_CONFIG,
        "%s: [%s] batch = %lld: %s would need %s of memory, but %s has %s; %s",
        dlc_settings_where(data, "batch"), by_test ? "data.test" : "data",
        (long long)dlc_settings_get_int(data, "batch"), who,
        dlc_text_amount((double)bytes, needed), name, dlc_text_amount(has, there), how);
    if (!overcommit)
        return DLC_ERR_CONFIG;
    if (session->rank == 0)
        dlc_warn("%s", dlc_detail());
    return DLC_OK;
}

static dlc_status check_machine(const dlc_session *session, const dlc_memory_sum *sum,
                                const char *machine, double has) {
    char who[64];
    (void)snprintf(who, sizeof who, "%s", session->net ? "training" : "testing");
    if (sum->ranks > 1)
        (void)snprintf(who, sizeof who, "the %d ranks of a machine", (int)sum->ranks);
    uint64_t total = total_bytes(sum);
    return has > 0 && (double)total > has
               ? refuse_memory(session, sum, who, total, machine, has)
               : DLC_OK;
}

/* Checks the memory of the device, if it reports how much it has of its own. */
static dlc_status check_device(const dlc_session *session, const dlc_memory_sum *sum) {
    uint64_t bytes = sum->device;
    const dlc_rank_info *mine = dlc_job_rank_info(session->job,
                                                  dlc_job_rank(session->job));
    dlc_device_info info;
    if (bytes == 0 || !DLC_CAN(session->device_ops, describe))
        return DLC_OK;
    DLC_TRY(dlc_device_describe(session->device_ops, mine->device_index, &info));
    return info.memory_bytes && bytes > info.memory_bytes
               ? refuse_memory(session, sum, "a rank", bytes, info.name,
                               (double)info.memory_bytes)
               : DLC_OK;
}

/* Other programs may have most of the memory. */
static void warn_of_little(const dlc_memory_sum *sum, double left) {
    char needed[DLC_AMOUNT_TEXT], there[DLC_AMOUNT_TEXT];
    double total = (double)total_bytes(sum);
    if (left > 0 && total > left)
        dlc_warn(
            "about %s of memory will be needed, but only %s are free now: end other "
            "programs, or use a smaller batch",
            dlc_text_amount(total, needed), dlc_text_amount(left, there));
}

dlc_status dlc_memory_check_fits(const dlc_session *session,
                                 const dlc_memory_sum *sum) {
    DLC_TRY(check_device(session, sum));
    DLC_TRY(check_machine(session, sum, "this machine", dlc_quota_memory("")));
    warn_of_little(sum, dlc_quota_memory_free(""));
    return DLC_OK;
}

/* ---- All machines ------------------------------------------------------------ */

/* What a rank tells the others. */
typedef struct rank_memory {
    dlc_memory_sum sum; /* of this rank alone */
    double has;         /* memory of its machine */
} rank_memory;

static void add_sum(const dlc_memory_sum *one, dlc_memory_sum *sum) {
    sum->ranks += one->ranks;
    sum->own += one->own;
    sum->train_batch += one->train_batch;
    sum->test_batch += one->test_batch;
    if (one->process > sum->process)
        sum->process = one->process;
}

/* Checks each machine once, when its first rank is reached. */
static dlc_status check_machines(const dlc_session *session, const rank_memory *all) {
    const int32_t last = session->ranks - 1;
    int one = dlc_job_rank_info(session->job, 0)->node ==
              dlc_job_rank_info(session->job, last)->node;
    for (int32_t first = 0; first < session->ranks; first++) {
        const dlc_rank_info *place = dlc_job_rank_info(session->job, first);
        dlc_memory_sum sum = {0};
        int is_first = 1;
        for (int32_t r = 0; r < session->ranks; r++) {
            if (dlc_job_rank_info(session->job, r)->node != place->node)
                continue;
            is_first &= r >= first;
            add_sum(&all[r].sum, &sum);
        }
        if (is_first)
            DLC_TRY(check_machine(session, &sum, one ? "this machine" : place->host,
                                  all[first].has));
    }
    return DLC_OK;
}

dlc_status dlc_memory_check(dlc_session *session) {
    dlc_session_memory memory;
    rank_memory mine = {.has = dlc_quota_memory("")};
    DLC_TRY(dlc_session_memory_plan(session, &memory));
    session->planned_bytes = memory.peak;
    dlc_memory_add(session->setup, &memory, 1, &mine.sum);
    if (session->ranks == 1)
        return dlc_memory_check_fits(session, &mine.sum);
    rank_memory *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &mine, sizeof mine, all);
    if (status == DLC_OK)
        status = check_machines(session, all);
    dlc_free(all);
    return status == DLC_OK ? check_device(session, &mine.sum) : status;
}
