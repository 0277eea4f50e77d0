/* Opens the channel of the replicas, and gathers how many samples each has. */
#include "session/replicas.h"

#include "base/memory.h"

int32_t dlc_replicas_rank(const dlc_replicas *replicas, int32_t index) {
    return replicas->ranks.first + index * replicas->ranks.stride;
}

/* Adds up the samples of the ranks that have a replica between them. */
static int64_t add_parts(const dlc_replicas *replicas, int32_t index,
                         const int64_t *of_rank) {
    int32_t parts = replicas->parts ? replicas->parts : 1;
    int32_t rank = dlc_replicas_rank(replicas, index), first = rank - rank % parts;
    int64_t sum = 0;
    for (int32_t i = 0; i < parts; i++)
        sum += of_rank[first + i];
    return sum;
}

static dlc_status gather_samples(dlc_job *job, int64_t samples,
                                 dlc_replicas *replicas) {
    size_t count = (size_t)replicas->ranks.ranks;
    int64_t *all = dlc_alloc((size_t)dlc_job_ranks(job), sizeof *all);
    replicas->samples = dlc_alloc(count, sizeof *all);
    dlc_status status = all && replicas->samples ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_job_all_gather(job, &samples, sizeof samples, all);
    for (size_t i = 0; status == DLC_OK && i < count; i++)
        replicas->samples[i] = add_parts(replicas, (int32_t)i, all);
    dlc_free(all);
    return status;
}

dlc_status dlc_replicas_open(dlc_replicas *replicas, dlc_job *job, int64_t samples,
                             int needs_p2p) {
    int32_t ranks = replicas->ranks.ranks;
    if (ranks == 0)
        return DLC_OK;
    DLC_TRY(gather_samples(job, samples, replicas));
    if (needs_p2p && ranks > 1)
        DLC_TRY(dlc_p2p_open(&replicas->how, &replicas->p2p));
    return replicas->oob ? dlc_oob_finish(replicas->oob, DLC_OK) : DLC_OK;
}

void dlc_replicas_close(dlc_replicas *replicas) {
    dlc_p2p_close(replicas->p2p);
    dlc_free(replicas->samples);
    *replicas = (dlc_replicas){.parts = 0};
}
