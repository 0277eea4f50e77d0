/* See meeting.h. */
#include "comm/meeting.h"

#include <string.h>

#include "base/memory.h"

/* What a rank brings to a round, before its bytes. */
typedef struct card {
    uint64_t bytes;
    uint64_t through;
} card;

typedef struct seat {
    dlc_meeting *meeting;
    int32_t *rank; /* own */
    int32_t ranks;
} seat;

struct dlc_meeting {
    int32_t me, ranks;
    void *job;
    dlc_status (*allgather)(void *job, const void *mine, size_t bytes, void *all);
    dlc_status (*check)(void *job);
    card *cards; /* own; of a round */
    seat seat[DLC_MEETING_SEATS];
};

dlc_status dlc_meeting_open(int32_t rank, int32_t ranks, void *job,
                            dlc_status (*allgather)(void *job, const void *mine,
                                                    size_t bytes, void *all),
                            dlc_status (*check)(void *job), dlc_meeting **meeting) {
    dlc_meeting *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    *made = (dlc_meeting){.me = rank,
                          .ranks = ranks,
                          .job = job,
                          .allgather = allgather,
                          .check = check,
                          .cards = dlc_alloc((size_t)ranks, sizeof *made->cards)};
    if (!made->cards) {
        dlc_free(made);
        return DLC_ERR_NOMEM;
    }
    *meeting = made;
    return DLC_OK;
}

void dlc_meeting_close(dlc_meeting *meeting) {
    if (!meeting)
        return;
    for (int i = 0; i < DLC_MEETING_SEATS; i++)
        dlc_free(meeting->seat[i].rank);
    dlc_free(meeting->cards);
    dlc_free(meeting);
}

dlc_status dlc_meeting_seat(dlc_meeting *meeting, int index, const int32_t *rank,
                            int32_t ranks, void **job) {
    seat *mine = &meeting->seat[index];
    mine->rank = dlc_alloc((size_t)ranks, sizeof *rank);
    if (!mine->rank)
        return DLC_ERR_NOMEM;
    memcpy(mine->rank, rank, (size_t)ranks * sizeof *rank);
    mine->ranks = ranks;
    mine->meeting = meeting;
    *job = mine;
    return DLC_OK;
}

/* One round. *most: the longest that anybody brings; *through: nobody brings more. */
static dlc_status show_cards(dlc_meeting *meeting, size_t bytes, int through,
                             size_t *most, int *all_through) {
    card mine = {.bytes = bytes, .through = (uint64_t)through};
    DLC_TRY(meeting->allgather(meeting->job, &mine, sizeof mine, meeting->cards));
    *most = 0;
    *all_through = 1;
    for (int32_t r = 0; r < meeting->ranks; r++) {
        const card *its = &meeting->cards[r];
        *all_through &= its->through != 0;
        if (its->bytes > *most)
            *most = (size_t)its->bytes;
    }
    return DLC_OK;
}

/* Everybody's bytes, each in `most` of them; release with dlc_free. */
static dlc_status exchange(dlc_meeting *meeting, const void *mine, size_t bytes,
                           size_t most, char **all) {
    char *out = dlc_alloc(most, 1);
    char *in = dlc_alloc((size_t)meeting->ranks * most, 1);
    dlc_status status = out && in ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK && bytes)
        memcpy(out, mine, bytes);
    if (status == DLC_OK)
        status = meeting->allgather(meeting->job, out, most, in);
    dlc_free(out);
    if (status != DLC_OK) {
        dlc_free(in);
        return status;
    }
    *all = in;
    return DLC_OK;
}

/* The members of a team must make the same call. */
static dlc_status check_cards(const seat *team, size_t bytes) {
    for (int32_t i = 0; i < team->ranks; i++) {
        const card *its = &team->meeting->cards[team->rank[i]];
        if (its->through || its->bytes != bytes)
            return dlc_fail(DLC_ERR_INTERNAL,
                            "rank %d gathers %zu bytes, and rank %d of its team does "
                            "not",
                            team->meeting->me, bytes, team->rank[i]);
    }
    return DLC_OK;
}

dlc_status dlc_meeting_allgather(void *job, const void *mine, size_t bytes, void *all) {
    const seat *team = job;
    dlc_meeting *meeting = team->meeting;
    size_t most = 0;
    int all_through = 0;
    char *brought = NULL;

    DLC_TRY(show_cards(meeting, bytes, 0, &most, &all_through));
    dlc_status status = check_cards(team, bytes);
    if (most > 0) /* the round goes on for the others, whatever is wrong with ours */
        DLC_TRY(exchange(meeting, mine, bytes, most, &brought));
    for (int32_t i = 0; status == DLC_OK && brought && i < team->ranks; i++)
        memcpy((char *)all + (size_t)i * bytes, brought + (size_t)team->rank[i] * most,
               bytes);
    dlc_free(brought);
    return status;
}

dlc_status dlc_meeting_check(void *job) {
    const seat *team = job;
    return team->meeting->check(team->meeting->job);
}

dlc_status dlc_meeting_end(dlc_meeting *meeting) {
    for (;;) {
        size_t most = 0;
        int all_through = 0;
        char *brought = NULL;
        DLC_TRY(show_cards(meeting, 0, 1, &most, &all_through));
        if (all_through)
            return DLC_OK;
        if (most > 0)
            DLC_TRY(exchange(meeting, NULL, 0, most, &brought));
        dlc_free(brought);
    }
}
