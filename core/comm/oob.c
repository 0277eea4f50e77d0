/* Runs the rounds of out-of-band all-gathers: each is one all-gather of headers and, if
 * any rank contributes data, one of the data padded to the longest. */
#include "comm/oob.h"

#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"

/* A rank's part of a round, before its data. */
typedef struct header {
    uint64_t bytes;
    uint64_t state;
} header;

/* Of a header. */
enum { CALLING, FINISHED, FAILED };

typedef struct group {
    dlc_oob *oob;
    int32_t *rank; /* owned */
    int32_t ranks;
} group;

struct dlc_oob {
    int32_t me, ranks;
    void *job;
    dlc_status (*all_gather)(void *job, const void *mine, size_t bytes, void *all);
    dlc_status (*check)(void *job);
    header *headers;   /* owned; of one round */
    atomic_int failed; /* another rank has failed, or the job has */
    group group[DLC_OOB_GROUPS];
};

dlc_status dlc_oob_open(int32_t rank, int32_t ranks, void *job,
                        dlc_status (*all_gather)(void *job, const void *mine,
                                                 size_t bytes, void *all),
                        dlc_status (*check)(void *job), dlc_oob **oob) {
    dlc_oob *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    *made = (dlc_oob){.me = rank,
                      .ranks = ranks,
                      .job = job,
                      .all_gather = all_gather,
                      .check = check,
                      .headers = dlc_alloc((size_t)ranks, sizeof *made->headers)};
    if (!made->headers) {
        dlc_free(made);
        return DLC_ERR_NOMEM;
    }
    *oob = made;
    return DLC_OK;
}

void dlc_oob_close(dlc_oob *oob) {
    if (!oob)
        return;
    for (int i = 0; i < DLC_OOB_GROUPS; i++)
        dlc_free(oob->group[i].rank);
    dlc_free(oob->headers);
    dlc_free(oob);
}

dlc_status dlc_oob_add_group(dlc_oob *oob, int index, const int32_t *rank,
                             int32_t ranks, void **job) {
    group *mine = &oob->group[index];
    mine->rank = dlc_alloc((size_t)ranks, sizeof *rank);
    if (!mine->rank)
        return DLC_ERR_NOMEM;
    memcpy(mine->rank, rank, (size_t)ranks * sizeof *rank);
    mine->ranks = ranks;
    mine->oob = oob;
    *job = mine;
    return DLC_OK;
}

/* Exchanges the headers of a round. *most: the largest contribution, in bytes;
 * *all_finished: every rank has finished. */
static dlc_status exchange_headers(dlc_oob *oob, size_t bytes, int state, size_t *most,
                                   int *all_finished) {
    header mine = {.bytes = bytes, .state = (uint64_t)state};
    DLC_TRY(oob->all_gather(oob->job, &mine, sizeof mine, oob->headers));
    *most = 0;
    *all_finished = 1;
    for (int32_t r = 0; r < oob->ranks; r++) {
        const header *its = &oob->headers[r];
        *all_finished &= its->state != CALLING;
        if (its->bytes > *most)
            *most = (size_t)its->bytes;
    }
    return DLC_OK;
}

/* Gathers every rank's data, padded to `most` bytes each; release *all with dlc_free.
 */
static dlc_status exchange_data(dlc_oob *oob, const void *mine, size_t bytes,
                                size_t most, char **all) {
    char *out = dlc_alloc(most, 1);
    char *in = dlc_alloc((size_t)oob->ranks * most, 1);
    dlc_status status = out && in ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK && bytes)
        memcpy(out, mine, bytes);
    if (status == DLC_OK)
        status = oob->all_gather(oob->job, out, most, in);
    dlc_free(out);
    if (status != DLC_OK) {
        dlc_free(in);
        return status;
    }
    *all = in;
    return DLC_OK;
}

static dlc_status failed_elsewhere(int32_t rank) {
    return dlc_fail(DLC_ERR_PEER, "rank %d could not connect", rank);
}

/* Checks that all members of a group made the same call. */
static dlc_status check_headers(const group *members, size_t bytes) {
    for (int32_t i = 0; i < members->ranks; i++) {
        const header *its = &members->oob->headers[members->rank[i]];
        if (its->state == FAILED) {
            atomic_store(&members->oob->failed, 1);
            return failed_elsewhere(members->rank[i]);
        }
        if (its->state == FINISHED || its->bytes != bytes)
            return dlc_fail(DLC_ERR_INTERNAL,
                            "rank %d gathers %zu bytes, but rank %d of its group "
                            "does not",
                            members->oob->me, bytes, members->rank[i]);
    }
    return DLC_OK;
}

dlc_status dlc_oob_all_gather(void *job, const void *mine, size_t bytes, void *all) {
    const group *members = job;
    dlc_oob *oob = members->oob;
    size_t most = 0;
    int all_finished = 0;
    char *data = NULL;

    DLC_TRY(exchange_headers(oob, bytes, CALLING, &most, &all_finished));
    dlc_status status = check_headers(members, bytes);
    if (most > 0) /* takes part in the round even if this group's call is wrong */
        DLC_TRY(exchange_data(oob, mine, bytes, most, &data));
    for (int32_t i = 0; status == DLC_OK && data && i < members->ranks; i++)
        memcpy((char *)all + (size_t)i * bytes, data + (size_t)members->rank[i] * most,
               bytes);
    dlc_free(data);
    return status;
}

dlc_status dlc_oob_check(void *job) {
    dlc_oob *oob = ((const group *)job)->oob;
    dlc_status status = oob->check(oob->job);
    if (status != DLC_OK)
        atomic_store(&oob->failed, 1);
    return status;
}

int dlc_oob_has_failed(const dlc_oob *oob) {
    return atomic_load(&oob->failed);
}

/* Once all ranks have finished. */
static dlc_status find_failed(const dlc_oob *oob) {
    for (int32_t r = 0; r < oob->ranks; r++)
        if (oob->headers[r].state == FAILED)
            return failed_elsewhere(r);
    return DLC_OK;
}

dlc_status dlc_oob_finish(dlc_oob *oob, dlc_status mine) {
    int state = mine == DLC_OK ? FINISHED : FAILED;
    for (;;) {
        size_t most = 0;
        int all_finished = 0;
        char *data = NULL;
        DLC_TRY(exchange_headers(oob, 0, state, &most, &all_finished));
        if (all_finished)
            return mine == DLC_OK ? find_failed(oob) : mine;
        if (most > 0)
            DLC_TRY(exchange_data(oob, NULL, 0, most, &data));
        dlc_free(data);
    }
}
