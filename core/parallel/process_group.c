/* Builds a communicator of some ranks of a job: their rank info, and out-of-band
 * all-gathers among them. */
#include "parallel/process_group.h"

#include "base/memory.h"

static dlc_status join_oob(dlc_job *job, dlc_mesh_group ranks,
                           dlc_process_group *group) {
    int32_t *rank = dlc_alloc((size_t)group->ranks, sizeof *rank);
    group->rank_info = dlc_alloc((size_t)group->ranks, sizeof *group->rank_info);
    dlc_status status = rank && group->rank_info ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; status == DLC_OK && i < group->ranks; i++) {
        rank[i] = ranks.first + i * ranks.stride;
        group->rank_info[i] = *dlc_job_rank_info(job, rank[i]);
    }
    if (status == DLC_OK)
        status = dlc_oob_open(dlc_job_rank(job), dlc_job_ranks(job), job,
                              dlc_job_all_gather, dlc_job_check, &group->oob);
    if (status == DLC_OK)
        status = dlc_oob_add_group(group->oob, 0, rank, group->ranks,
                                   &group->oob_handle);
    dlc_free(rank);
    return status;
}

dlc_status dlc_process_group_open(dlc_job *job, dlc_mesh_group ranks,
                                  dlc_process_group *group) {
    dlc_process_group made = {.rank = (dlc_job_rank(job) - ranks.first) / ranks.stride,
                              .ranks = ranks.ranks,
                              .members = ranks};
    dlc_status status = join_oob(job, ranks, &made);
    if (status != DLC_OK) {
        dlc_process_group_close(&made);
        return status;
    }
    *group = made;
    return DLC_OK;
}

void dlc_process_group_close(dlc_process_group *group) {
    dlc_oob_close(group->oob);
    dlc_free(group->rank_info);
    *group = (dlc_process_group){0};
}

dlc_comm_args dlc_process_group_args(const dlc_process_group *group,
                                     const dlc_comm_args *how) {
    dlc_comm_args args = *how;
    args.rank = group->rank;
    args.ranks = group->ranks;
    args.rank_info = group->rank_info;
    args.job = group->oob_handle;
    args.oob_all_gather = dlc_oob_all_gather;
    args.check = dlc_oob_check;
    args.job_first = group->members.first;
    args.job_stride = group->members.stride;
    return args;
}

dlc_status dlc_process_group_finish(const dlc_process_group *group) {
    return dlc_oob_finish(group->oob, DLC_OK);
}
