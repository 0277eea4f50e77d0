/* Waiting for NCCL and for the GPU, and what becomes of errors. NCCL tells of its own
 * at any time by ncclCommGetAsyncError; that a peer is gone the job knows sooner. Looks
 * for a moment, then sleeps in short naps: neither has anything to sleep on. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "nccl_transport.h"

#define NAP_NS 50000L

dlc_status endpoint_fail(dlc_endpoint *e, dlc_status status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    (void)vsnprintf(e->problem, sizeof e->problem, format, values);
    va_end(values);
    e->failed = status;
    /* What hangs on the GPU ends now. It may still be "in progress" when the call
     * returns: nobody may look any more. */
    if (e->comm)
        (void)nccl.CommAbort(e->comm);
    e->comm = NULL;
    return host->fail(status, "%s", e->problem);
}

dlc_status endpoint_good(const dlc_endpoint *e) {
    if (e->failed == DLC_OK)
        return DLC_OK;
    return host->fail(e->failed, "%s",
                      e->problem[0] ? e->problem : "this transport has ended");
}

static dlc_status class_of(ncclResult_t result) {
    switch (result) {
    case ncclRemoteError:
    case ncclSystemError: /* mostly a connection that broke */
        return DLC_ERR_PEER;
    case ncclUnhandledCudaError:
        return DLC_ERR_DEVICE;
    default:
        return DLC_ERR_INTERNAL;
    }
}

static dlc_status nccl_failed(dlc_endpoint *e, ncclResult_t result, const char *what) {
    const char *more = e->comm ? nccl.GetLastError(e->comm) : NULL;
    return endpoint_fail(e, class_of(result), "rank %d: NCCL cannot %s: %s%s%s",
                         e->rank, what, nccl.GetErrorString(result),
                         more && more[0] ? ": " : "", more ? more : "");
}

/* The job is ending, by its own sentence: that is what is passed on. */
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

static dlc_status look(dlc_endpoint *e, const char *what, int *in_progress) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = nccl.CommGetAsyncError(e->comm, &state);
    if (asked != ncclSuccess)
        return nccl_failed(e, asked, what);
    *in_progress = state == ncclInProgress;
    return state == ncclSuccess || *in_progress ? DLC_OK : nccl_failed(e, state, what);
}

/* Between two looks. */
static dlc_status pause(dlc_endpoint *e, uint64_t since) {
    const struct timespec nap = {0, NAP_NS};
    dlc_status status = check_job(e);
    if (status == DLC_OK && host->now_ns() - since >= e->spin_ns)
        (void)nanosleep(&nap, NULL);
    return status;
}

dlc_status endpoint_took(dlc_endpoint *e, ncclResult_t result, const char *what) {
    int in_progress = result == ncclInProgress;
    uint64_t since = in_progress ? host->now_ns() : 0;
    dlc_status status = DLC_OK;

    if (result != ncclSuccess && !in_progress)
        return nccl_failed(e, result, what);
    while (status == DLC_OK && in_progress) {
        status = look(e, what, &in_progress);
        if (status == DLC_OK && in_progress)
            status = pause(e, since);
    }
    return status;
}

dlc_status endpoint_poll(dlc_endpoint *e) {
    int in_progress = 0;
    dlc_status status = endpoint_good(e);
    if (status == DLC_OK)
        status = check_job(e);
    return status == DLC_OK ? look(e, "go on", &in_progress) : status;
}

dlc_status wait_for(dlc_endpoint *e, dlc_event *event, const char *what) {
    const dlc_transport_args *args = e->args;
    uint64_t since = host->now_ns();
    dlc_status status = DLC_OK;
    int done = 0, in_progress = 0;

    for (;;) {
        status = args->device_ops->event_done(args->device, event, &done);
        if (status != DLC_OK)
            return endpoint_fail(e, status, "rank %d: the GPU failed in NCCL's %s",
                                 e->rank, what);
        if (done)
            return DLC_OK;
        status = look(e, what, &in_progress);
        if (status == DLC_OK)
            status = pause(e, since);
        if (status != DLC_OK)
            return status;
    }
}
