/* Waiting for NCCL and for the GPU, and error handling. NCCL reports errors by
 * ncclCommGetAsyncError; the job knows about lost peers sooner. Neither has anything to
 * sleep on, so this polls for a moment and then sleeps for short times. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "nccl_transport.h"

#define NAP_NS 50000L

/* Records an error and aborts the communicator. Returns `status`. */
__attribute__((format(printf, 3, 4))) static dlc_status
endpoint_fail(dlc_endpoint *e, dlc_status status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    (void)vsnprintf(e->problem, sizeof e->problem, format, values);
    va_end(values);
    e->failed = status;
    /* Ends what hangs on the GPU. The communicator may still be "in progress" when the
     * call returns, and must not be used any more. */
    if (e->comm)
        (void)nccl.CommAbort(e->comm);
    e->comm = NULL;
    return host->fail(status, "%s", e->problem);
}

dlc_status endpoint_check(const dlc_endpoint *e) {
    if (e->failed == DLC_OK)
        return DLC_OK;
    return host->fail(e->failed, "%s",
                      e->problem[0] ? e->problem : "this transport has failed before");
}

static dlc_status status_of(ncclResult_t result) {
    switch (result) {
    case ncclRemoteError:
    case ncclSystemError: /* mostly a broken connection */
        return DLC_ERR_PEER;
    case ncclUnhandledCudaError:
        return DLC_ERR_DEVICE;
    default:
        return DLC_ERR_INTERNAL;
    }
}

static dlc_status nccl_failed(dlc_endpoint *e, ncclResult_t result, const char *what) {
    const char *more = e->comm ? nccl.GetLastError(e->comm) : NULL;
    return endpoint_fail(e, status_of(result), "rank %d: NCCL cannot %s: %s%s%s",
                         e->rank, what, nccl.GetErrorString(result),
                         more && more[0] ? ": " : "", more ? more : "");
}

/* Fails with the job's error if the job is ending. */
static dlc_status check_job(dlc_endpoint *e) {
    dlc_status status = e->args->check(e->args->job);
    if (status == DLC_OK)
        return DLC_OK;
    e->failed = status;
    if (e->comm)
        (void)nccl.CommAbort(e->comm);
    e->comm = NULL;
    return status;
}

static dlc_status poll_comm(dlc_endpoint *e, const char *what, int *in_progress) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = nccl.CommGetAsyncError(e->comm, &state);
    if (asked != ncclSuccess)
        return nccl_failed(e, asked, what);
    *in_progress = state == ncclInProgress;
    return state == ncclSuccess || *in_progress ? DLC_OK : nccl_failed(e, state, what);
}

/* A step of waiting between two polls. */
static dlc_status pause(dlc_endpoint *e, uint64_t since) {
    const struct timespec nap = {0, NAP_NS};
    dlc_status status = check_job(e);
    if (status == DLC_OK && host->now_ns() - since >= e->spin_ns)
        (void)nanosleep(&nap, NULL);
    return status;
}

dlc_status endpoint_await(dlc_endpoint *e, ncclResult_t result, const char *what) {
    int in_progress = result == ncclInProgress;
    uint64_t since = in_progress ? host->now_ns() : 0;
    dlc_status status = DLC_OK;

    if (result != ncclSuccess && !in_progress)
        return nccl_failed(e, result, what);
    while (status == DLC_OK && in_progress) {
        status = poll_comm(e, what, &in_progress);
        if (status == DLC_OK && in_progress)
            status = pause(e, since);
    }
    return status;
}

dlc_status endpoint_poll(dlc_endpoint *e) {
    int in_progress = 0;
    dlc_status status = endpoint_check(e);
    if (status == DLC_OK)
        status = check_job(e);
    return status == DLC_OK ? poll_comm(e, "go on", &in_progress) : status;
}

dlc_status wait_for(dlc_endpoint *e, dlc_event *event, const char *what) {
    const dlc_transport_args *args = e->args;
    uint64_t since = host->now_ns();
    dlc_status status = DLC_OK;
    int done = 0, in_progress = 0;

    for (;;) {
        status = args->device_ops->queues->event_done(args->device, event, &done);
        if (status != DLC_OK)
            return endpoint_fail(e, status, "rank %d: the GPU failed in NCCL's %s",
                                 e->rank, what);
        if (done)
            return DLC_OK;
        status = poll_comm(e, what, &in_progress);
        if (status == DLC_OK)
            status = pause(e, since);
        if (status != DLC_OK)
            return status;
    }
}
