/* Opens and closes a rank's side of a job, and finds its cores and what is near to
 * them.
 */
#include "job/rank/rank.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "job/rank/control.h"

/* ---- Opening and closing -------------------------------------------------------- */

/* Takes this rank's share of its machine's cores. */
static dlc_status share_cores(dlc_job *job, const dlc_rank_args *args,
                              const dlc_rank_details *details) {
    int index, count;
    dlc_core_set share;
    dlc_rank_details_core_share(details, job->ranks, job->rank, &index, &count);
    DLC_TRY(dlc_cores_share(args->cores, index, count, &share));
    job->threads = args->options->threads ? args->options->threads : share.threads;
    DLC_TRY(dlc_cores_place_threads(args->cores, index, count, job->threads,
                                    &job->thread_cpus));
    job->bound = !args->options->unbound;
    if (job->bound && job->control >= 0 && dlc_cores_bind(&share) != DLC_OK)
        dlc_warn("rank %d: %s; it runs unbound", job->rank, dlc_detail());
    return DLC_OK;
}

/* Exchanges the ranks' details: first to compare the settings and to split the cores,
 * then, once each rank knows its cores, the final rank infos with what is near to them.
 */
static dlc_status exchange_infos(dlc_job *job, const dlc_rank_args *args) {
    size_t ranks = (size_t)job->ranks;
    dlc_rank_details *details = dlc_alloc(ranks + 1, sizeof *details);
    dlc_rank_details *mine = details ? details + ranks : NULL;
    dlc_status status = details ? dlc_rank_details_make(args, mine) : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_job_all_gather(job, mine, sizeof *mine, details);
    if (status == DLC_OK)
        status = dlc_settings_check(job, args, details);
    if (status == DLC_OK) {
        dlc_rank_details_number_nodes(details, job->ranks);
        status = share_cores(job, args, details);
    }
    if (status == DLC_OK) {
        dlc_rank_info *info = &details[job->rank].info;
        dlc_cores_locality(dlc_job_cpus(job), job->threads, &info->package,
                           &info->numa);
        info->device_index = dlc_rank_details_device(details, args);
        status = dlc_job_all_gather(job, info, sizeof *info, job->infos);
    }
    dlc_free(details);
    return status;
}

/* Reports that this rank cannot start; for the only rank of a job, the caller does. */
static void report_start_failure(dlc_job *job, dlc_status status) {
    if (job->control >= 0 && !dlc_job_report_failure(job, status, dlc_detail()))
        dlc_error("rank %d cannot start: %s", job->rank, dlc_detail());
}

dlc_status dlc_rank_open(const dlc_rank_args *args, dlc_job **job) {
    dlc_job *made = dlc_alloc(1, sizeof *made);
    if (!made) {
        if (args->control >= 0)
            close(args->control);
        return DLC_ERR_NOMEM;
    }
    made->rank = args->rank;
    made->ranks = args->ranks;
    made->machine = args->machine;
    made->activity = args->activity;
    dlc_rank_control_open(made, args->control, args->hang_timeout);
    made->infos = dlc_alloc((size_t)args->ranks, sizeof *made->infos);
    dlc_status status = made->infos ? exchange_infos(made, args) : DLC_ERR_NOMEM;
    dlc_job_use_spare_cpus(made, 1);
    if (status == DLC_OK)
        status = dlc_rank_control_start(made);
    dlc_job_use_spare_cpus(made, 0);
    if (status != DLC_OK) {
        report_start_failure(made, status);
        dlc_rank_close(made);
        return status;
    }
    *job = made;
    return DLC_OK;
}

void dlc_rank_returned(dlc_job *job) {
    const dlc_frame frame = {.kind = DLC_FRAME_RETURNED};
    (void)dlc_rank_control_send(job, &frame, NULL);
}

int dlc_rank_close(dlc_job *job) {
    dlc_rank_control_close(job);
    int stop_signal = job->watchdog.stop_signal;
    dlc_free(job->infos);
    dlc_thread_placement_free(&job->thread_cpus);
    dlc_free(job);
    return stop_signal;
}

/* ---- Queries -------------------------------------------------------------------- */

int dlc_job_rank(const dlc_job *job) {
    return job->rank;
}

int dlc_job_ranks(const dlc_job *job) {
    return job->ranks;
}

int dlc_job_threads(const dlc_job *job) {
    return job->threads;
}

const int32_t *dlc_job_cpus(const dlc_job *job) {
    return job->bound ? job->thread_cpus.compute : NULL;
}

void dlc_job_use_spare_cpus(dlc_job *job, int on) {
    if (on)
        job->on_spare_cpus = job->bound &&
                             dlc_cores_get_affinity(&job->before) == DLC_OK &&
                             dlc_cores_bind(&job->thread_cpus.others) == DLC_OK;
    else if (job->on_spare_cpus)
        (void)dlc_cores_bind(&job->before);
}

const dlc_rank_info *dlc_job_rank_info(const dlc_job *job, int r) {
    return r >= 0 && r < job->ranks ? &job->infos[r] : NULL;
}

dlc_rank_info *dlc_rank_own_info(dlc_job *job, int r) {
    return &job->infos[r];
}

const dlc_topo *dlc_rank_machine(const dlc_job *job) {
    return job->machine;
}

/* ---- What the rank is doing ----------------------------------------------------- */

static void copy_words(char *to, size_t room, const char *text) {
    size_t i = 0;
    for (; i < room - 1 && text[i]; i++)
        to[i] = text[i];
    to[i] = '\0';
}

void dlc_job_progress(void *job) {
    dlc_shared_activity *activity = ((dlc_job *)job)->activity;
    activity->current.transport[0] = '\0';
    dlc_activity_count(&activity->steps);
}

void dlc_job_activity(dlc_job *job, const char *phase, const char *name,
                      uint64_t bytes) {
    dlc_activity *current = &job->activity->current;
    copy_words(current->phase, sizeof current->phase, phase ? phase : "");
    copy_words(current->name, sizeof current->name, phase && name ? name : "");
    current->bytes = bytes;
    dlc_job_progress(job);
}

void dlc_job_exchange_activity(dlc_job *job, const char *name, uint64_t bytes) {
    dlc_activity *current = &job->activity->current;
    copy_words(current->exchanged, sizeof current->exchanged, name ? name : "");
    current->exchanged_bytes = bytes;
    dlc_job_progress(job);
}

void dlc_job_wait(void *job, const char *transport, int32_t rank) {
    dlc_activity *current = &((dlc_job *)job)->activity->current;
    current->awaited = rank;
    copy_words(current->transport, sizeof current->transport, transport);
}
