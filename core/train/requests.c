/* Remembers what the user asked of a job until all ranks have agreed on it. Called by
 * iterate.c and train.c. */
#include "train/requests.h"

#include "base/memory.h"

unsigned dlc_requests_ask(dlc_requests *requests, unsigned learned) {
    unsigned asks = learned & ~requests->late;
    requests->late = 0;
    requests->asked |= asks;
    return asks;
}

void dlc_requests_agree(dlc_requests *requests, unsigned agreed) {
    requests->late = agreed & ~requests->asked;
    requests->asked &= ~agreed;
}

dlc_status dlc_requests_settle(dlc_requests *requests, dlc_job *job, int32_t ranks,
                               unsigned *agreed) {
    unsigned sum = 0, *all = dlc_alloc((size_t)ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    (void)dlc_requests_ask(requests, dlc_job_requests(job));
    const unsigned mine = requests->asked;
    dlc_status status = dlc_job_all_gather(job, &mine, sizeof mine, all);
    for (int32_t r = 0; status == DLC_OK && r < ranks; r++)
        sum |= all[r];
    dlc_free(all);
    DLC_TRY(status);
    dlc_requests_agree(requests, sum);
    *agreed = sum;
    return DLC_OK;
}
