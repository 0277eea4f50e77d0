/* See circle.h. */
#include "train/pipeline/circle.h"

#include "base/memory.h"

static dlc_status take_seat(dlc_job *job, int32_t first, dlc_circle *circle) {
    int32_t *rank = dlc_alloc((size_t)circle->ranks, sizeof *rank);
    circle->places = dlc_alloc((size_t)circle->ranks, sizeof *circle->places);
    dlc_status status = rank && circle->places ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; status == DLC_OK && i < circle->ranks; i++) {
        rank[i] = first + i;
        circle->places[i] = *dlc_job_place(job, first + i);
    }
    if (status == DLC_OK)
        status = dlc_meeting_open(dlc_job_rank(job), dlc_job_ranks(job), job,
                                  dlc_job_allgather, dlc_job_check, &circle->meeting);
    if (status == DLC_OK)
        status = dlc_meeting_seat(circle->meeting, 0, rank, circle->ranks,
                                  &circle->seat);
    dlc_free(rank);
    return status;
}

dlc_status dlc_circle_open(dlc_job *job, int32_t first, int32_t ranks,
                           dlc_circle *circle) {
    dlc_circle made = {.rank = dlc_job_rank(job) - first, .ranks = ranks};
    dlc_status status = take_seat(job, first, &made);
    if (status != DLC_OK) {
        dlc_circle_close(&made);
        return status;
    }
    *circle = made;
    return DLC_OK;
}

void dlc_circle_close(dlc_circle *circle) {
    dlc_meeting_close(circle->meeting);
    dlc_free(circle->places);
    *circle = (dlc_circle){0};
}

dlc_status dlc_circle_connect(const dlc_circle *circle, const dlc_comm_args *how,
                              dlc_comm **comm) {
    dlc_comm_args args = *how;
    args.rank = circle->rank;
    args.ranks = circle->ranks;
    args.places = circle->places;
    args.job = circle->seat;
    args.allgather = dlc_meeting_allgather;
    args.check = dlc_meeting_check;
    return dlc_comm_open(&args, comm);
}

dlc_status dlc_circle_settle(const dlc_circle *circle) {
    return dlc_meeting_end(circle->meeting);
}
