/* Support for consistency models that let ranks be in different iterations: checks,
 * their p2p channel, synchronization, throughput. */
#include "parallel/consistency/asynchronous.h"

#include "base/memory.h"
#include "session/nets.h"

dlc_status dlc_asynchronous_check(const dlc_session *session) {
    const char *name = session->setup->consistency->name;
    int32_t servers = session->needs.servers;

    if (servers < 0 || servers >= session->ranks)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "[consistency] needs %d server%s, but there %s %d rank%s, and at least one "
            "must compute: start more ranks, or set fewer servers",
            servers, servers == 1 ? "" : "s", session->ranks == 1 ? "is" : "are",
            session->ranks, session->ranks == 1 ? "" : "s");
    if (session->asynchronous && dlc_setup_precision(session->setup) == DLC_F16)
        return dlc_fail(DLC_ERR_CONFIG,
                        "consistency '%s' doesn't work with fp16: whether a gradient "
                        "overflowed must be known before it is used; set [train] "
                        "precision = bf16",
                        name);
    return DLC_OK;
}

dlc_status dlc_asynchronous_open_p2p(dlc_session *session) {
    if (!session->needs.p2p_channel || session->ranks == 1)
        return DLC_OK;
    return dlc_p2p_open(&session->connection.how, &session->p2p);
}

dlc_status dlc_asynchronous_synchronize(dlc_session *session) {
    if (!session->asynchronous || session->synchronized == session->iteration)
        return DLC_OK;
    dlc_job_activity(session->job, "synchronizing all ranks", NULL, 0);
    DLC_TRY(session->consistency_ops->synchronize(session->consistency,
                                                  session->iteration));
    session->synchronized = session->iteration;
    return DLC_OK;
}

dlc_status dlc_asynchronous_throughput(dlc_session *session, double *speed) {
    double mine = *speed * (double)session->local_batch / (double)session->global_batch;
    double *all = dlc_alloc((size_t)session->ranks, sizeof *all), sum = 0;
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &mine, sizeof mine, all);
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++)
        sum += all[r];
    dlc_free(all);
    if (status == DLC_OK)
        *speed = sum;
    return status;
}
