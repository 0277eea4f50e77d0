/* The PMIx client of an external rank: loads the library, and passes the hub's address
 * from rank 0 to the other ranks. */
#include "job/launch/pmi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "job/channel.h"
#include "job/job.h"

#ifdef DLC_HAVE_PMIX

#include <pmix.h>

#define LIBRARY "libpmix.so.2"

/* The functions that are used, and whether PMIx is initialized. */
static struct {
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t);
    pmix_status_t (*finalize)(const pmix_info_t *, size_t);
    pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t,
                         pmix_value_t **);
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *);
    pmix_status_t (*commit)(void);
    pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t);
    const char *(*error)(pmix_status_t);
    const char *(*version)(void);
    int joined;
} pmix;

static dlc_status open_library(void) {
    const struct {
        const char *name;
        void *to;
    } wanted[] = {{"PMIx_Init", &pmix.init},
                  {"PMIx_Finalize", &pmix.finalize},
                  {"PMIx_Get", &pmix.get},
                  {"PMIx_Put", &pmix.put},
                  {"PMIx_Commit", &pmix.commit},
                  {"PMIx_Fence", &pmix.fence},
                  {"PMIx_Error_string", &pmix.error},
                  {"PMIx_Get_version", &pmix.version}};
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!library)
        return dlc_fail(DLC_ERR_UNAVAILABLE,
                        "this process was started through PMIx, but its library cannot "
                        "be loaded: %s (on Debian: libpmix2)",
                        dlerror());
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found)
            return dlc_fail(DLC_ERR_UNAVAILABLE, LIBRARY " has no %s", wanted[i].name);
        memcpy(wanted[i].to, &found, sizeof found); /* a function pointer */
    }
    return DLC_OK;
}

static dlc_status check_pmix(pmix_status_t rc, const char *what) {
    return rc == PMIX_SUCCESS ? DLC_OK
                              : dlc_fail(DLC_ERR_UNAVAILABLE, "PMIx cannot %s: %s",
                                         what, pmix.error(rc));
}

static dlc_status get_pmix_number(const pmix_proc_t *job, const char *key,
                                  uint32_t *number) {
    pmix_value_t *value = NULL;
    DLC_TRY(
        check_pmix(pmix.get(job, key, NULL, 0, &value), "report the number of ranks"));
    int right = value->type == PMIX_UINT32;
    if (right)
        *number = value->data.uint32;
    free(value);
    return right ? DLC_OK
                 : dlc_fail(DLC_ERR_UNAVAILABLE, "PMIx reports %s with an unknown type",
                            key);
}

/* ---- The hub's address, from rank 0 to all -------------------------------------- */

static dlc_status publish_hub(int control, const pmix_proc_t *all) {
    char addresses[DLC_PMIX_ADDRESS_MAX];
    dlc_frame frame;
    DLC_TRY(dlc_frame_read(control, &frame, sizeof frame));
    if (frame.kind != DLC_FRAME_PMIX_ADDRESS || frame.bytes >= sizeof addresses)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "the hub sent its rank an unexpected message");
    DLC_TRY(dlc_frame_read(control, addresses, frame.bytes));
    addresses[frame.bytes] = '\0';
    pmix_value_t value;
    memset(&value, 0, sizeof value);
    value.type = PMIX_STRING;
    value.data.string = addresses;
    DLC_TRY(check_pmix(pmix.put(PMIX_GLOBAL, DLC_PMI_KEY, &value),
                       "publish the hub's address"));
    DLC_TRY(check_pmix(pmix.commit(), "publish the hub's address"));
    return check_pmix(pmix.fence(all, 1, NULL, 0), "synchronize the ranks");
}

static dlc_status look_up_hub(int control, const pmix_proc_t *all) {
    pmix_proc_t first = *all;
    pmix_value_t *value = NULL;
    first.rank = 0;
    DLC_TRY(check_pmix(pmix.commit(), "synchronize the ranks"));
    DLC_TRY(check_pmix(pmix.fence(all, 1, NULL, 0), "synchronize the ranks"));
    DLC_TRY(check_pmix(pmix.get(&first, DLC_PMI_KEY, NULL, 0, &value),
                       "find the hub's address"));
    dlc_status status = DLC_OK;
    if (value->type != PMIX_STRING || !value->data.string) {
        status = dlc_fail(DLC_ERR_UNAVAILABLE, "PMIx has no address of the hub");
    } else {
        dlc_frame frame = {.kind = DLC_FRAME_PMIX_ADDRESS,
                           .bytes = strlen(value->data.string)};
        status = dlc_frame_send(control, &frame, value->data.string);
        free(value->data.string);
    }
    free(value);
    return status;
}

/* ---- Joining and leaving -------------------------------------------------------- */

/* Whether PMIx can be finalized now and initialized again by another library in this
 * process. Up to version 4 it cannot, so it must stay initialized (openpmix/openpmix,
 * issue 1558); from version 5 on it should not: the MPI_Init of Open MPI 5.0.7 with
 * PMIx 5.0.7 fails if PMIx is initialized already. */
static int may_join_again(void) {
    const char *digit = strpbrk(pmix.version(),
                                "0123456789"); /* "OpenPMIx 5.0.7, ..." */
    return digit && strtol(digit, NULL, 10) >= 5;
}

static dlc_status check_ranks(uint32_t size, int said, int asked) {
    if (size < 1 || size > DLC_JOB_RANKS_MAX)
        return dlc_fail(DLC_ERR_CONFIG, "%u ranks: a job has 1 to %d", size,
                        DLC_JOB_RANKS_MAX);
    if (said >= 0 && (uint32_t)said != size)
        return dlc_fail(DLC_ERR_CONFIG,
                        "PMIx reports %u ranks, but WORLD_SIZE is %d: unset WORLD_SIZE",
                        size, said);
    if (asked != 1 && (uint32_t)asked != size)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "--ranks=%d (or [parallel] ranks) starts ranks on this machine, but "
            "this process was started as one of %u: use only one of them",
            asked, size);
    return DLC_OK;
}

dlc_status dlc_pmix_join(int control, int ranks_said, int asked, int *rank,
                         int *ranks) {
    pmix_proc_t me, all;
    uint32_t size = 0, local = 0;
    DLC_TRY(open_library());
    memset(&me, 0, sizeof me);
    DLC_TRY(check_pmix(pmix.init(&me, NULL, 0), "be initialized"));
    pmix.joined = 1;
    all = me;
    all.rank = PMIX_RANK_WILDCARD;
    DLC_TRY(get_pmix_number(&all, PMIX_JOB_SIZE, &size));
    if (get_pmix_number(&all, PMIX_LOCAL_SIZE, &local) != DLC_OK)
        local = 0; /* unknown: the ranks may be on any machine */
    DLC_TRY(check_ranks(size, ranks_said, asked));
    *rank = (int)me.rank;
    *ranks = (int)size;
    dlc_pmix_identity identity = {.local_ranks = local};
    dlc_frame frame = {.kind = DLC_FRAME_PMIX_IDENTITY,
                       .number = *rank,
                       .size = size,
                       .bytes = sizeof identity};
    DLC_TRY(dlc_frame_send(control, &frame, &identity));
    DLC_TRY(*rank == 0 ? publish_hub(control, &all) : look_up_hub(control, &all));
    if (!may_join_again())
        return DLC_OK;
    /* All ranks must have read what rank 0 published before it leaves. */
    DLC_TRY(check_pmix(pmix.fence(&all, 1, NULL, 0), "synchronize the ranks"));
    dlc_pmix_leave();
    return DLC_OK;
}

void dlc_pmix_leave(void) {
    if (pmix.joined)
        pmix.finalize(NULL, 0);
    pmix.joined = 0;
}

#else

dlc_status dlc_pmix_join(int control, int ranks_said, int asked, int *rank,
                         int *ranks) {
    (void)control;
    (void)ranks_said;
    (void)asked;
    (void)rank;
    (void)ranks;
    return dlc_fail(DLC_ERR_UNAVAILABLE,
                    "this process was started through PMIx, but this dlcore was built "
                    "without it: build it with libpmix-dev, or set RANK, WORLD_SIZE, "
                    "MASTER_ADDR and MASTER_PORT");
}

void dlc_pmix_leave(void) {}

#endif
