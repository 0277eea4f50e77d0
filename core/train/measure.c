/* See measure.h. */
#include "train/measure.h"

#include "train/schedule.h"
#include "train/session.h"

/* Multiplications and additions in the time in which a device moves a byte. */
enum { OPERATIONS_A_BYTE = 10, ZEROS = 1 << 20 };
static const double START = 2e-6;      /* seconds that the smallest work takes */
static const double HANDOVER = 200e-6; /* of a sum to another thread; see pace.c */

static dlc_status measure_pace(const dlc_session *session, dlc_pace *pace) {
    size_t bytes = ZEROS * sizeof(float);
    dlc_memory zeros = {.size = sizeof zeros};
    DLC_TRY(session->device_ops->alloc(session->device, bytes, 0, &zeros));
    dlc_status status = session->device_ops->fill(session->device, NULL, zeros.base, 0,
                                                  bytes);
    if (status == DLC_OK)
        status = dlc_pace_measure(session->connection.comm, session->device_ops,
                                  session->device, zeros.base, ZEROS, pace);
    session->device_ops->free(session->device, &zeros);
    return status;
}

static void describe_cluster(const dlc_session *session, dlc_measured *measured) {
    int on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    int32_t nodes = 1;
    for (int32_t r = 0; r < session->ranks; r++) {
        int32_t node = dlc_job_place(session->job, r)->node;
        nodes = node >= nodes ? node + 1 : nodes;
    }
    measured->cluster = (dlc_plan_cluster){
        .nodes = nodes,
        .each = (session->ranks + nodes - 1) / nodes,
        .update = measured->pace.update,
        .stolen = on_host ? 1 : 0,
        .handover = on_host ? HANDOVER : 0,
        .copies = 1 + session->needs.slots,
        .one_pass = dlc_schedule_is_one_pass(session)};
    dlc_plan_links_of_sums(measured->pace.latency, measured->pace.bandwidth,
                           &measured->cluster);
}

dlc_status dlc_measure(const dlc_session *session, dlc_measured *measured) {
    dlc_measured made = {.cluster = {.nodes = 0}};
    double memory = 0;
    DLC_TRY(measure_pace(session, &made.pace));
    DLC_TRY(dlc_pace_memory(session->connection.comm, session->device_ops,
                            session->device, &memory));
    made.speed = (dlc_plan_speed){.multiply_adds = memory * OPERATIONS_A_BYTE / 2,
                                  .bytes = memory,
                                  .start = START};
    describe_cluster(session, &made);
    *measured = made;
    return DLC_OK;
}
