/* See pmix.h. */
#include "job/pmix.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "job/frame.h"
#include "job/job.h"

#ifdef DLC_HAVE_PMIX

#include <pmix.h>

#define LIBRARY "libpmix.so.2"
#define KEY "dlcore.hub"

/* What is needed of the library. */
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
        memcpy(wanted[i].to, &found, sizeof found); /* a function's address */
    }
    return DLC_OK;
}

static dlc_status check(pmix_status_t rc, const char *what) {
    return rc == PMIX_SUCCESS ? DLC_OK
                              : dlc_fail(DLC_ERR_UNAVAILABLE, "PMIx cannot %s: %s",
                                         what, pmix.error(rc));
}

static dlc_status get_number(const pmix_proc_t *job, const char *key,
                             uint32_t *number) {
    pmix_value_t *value = NULL;
    DLC_TRY(check(pmix.get(job, key, NULL, 0, &value), "say how many ranks there are"));
    int right = value->type == PMIX_UINT32;
    if (right)
        *number = value->data.uint32;
    free(value);
    return right
               ? DLC_OK
               : dlc_fail(DLC_ERR_UNAVAILABLE, "PMIx gives %s in an unknown type", key);
}

/* ---- The hub's address, from rank 0 to all -------------------------------------- */

static dlc_status publish(int control, const pmix_proc_t *all) {
    char where[DLC_WHERE_MOST];
    dlc_frame frame;
    DLC_TRY(dlc_frame_read(control, &frame, sizeof frame));
    if (frame.kind != DLC_FRAME_WHERE || frame.bytes >= sizeof where)
        return dlc_fail(DLC_ERR_INTERNAL, "the hub gave its rank a strange message");
    DLC_TRY(dlc_frame_read(control, where, frame.bytes));
    where[frame.bytes] = '\0';
    pmix_value_t value;
    memset(&value, 0, sizeof value);
    value.type = PMIX_STRING;
    value.data.string = where;
    DLC_TRY(check(pmix.put(PMIX_GLOBAL, KEY, &value), "take the hub's address"));
    DLC_TRY(check(pmix.commit(), "take the hub's address"));
    return check(pmix.fence(all, 1, NULL, 0), "bring the ranks together");
}

static dlc_status look_up(int control, const pmix_proc_t *all) {
    pmix_proc_t first = *all;
    pmix_value_t *value = NULL;
    first.rank = 0;
    DLC_TRY(check(pmix.commit(), "bring the ranks together"));
    DLC_TRY(check(pmix.fence(all, 1, NULL, 0), "bring the ranks together"));
    DLC_TRY(check(pmix.get(&first, KEY, NULL, 0, &value), "find the hub's address"));
    dlc_status status = DLC_OK;
    if (value->type != PMIX_STRING || !value->data.string) {
        status = dlc_fail(DLC_ERR_UNAVAILABLE, "PMIx gives no address of the hub");
    } else {
        dlc_frame frame = {.kind = DLC_FRAME_WHERE,
                           .bytes = strlen(value->data.string)};
        status = dlc_frame_send(control, &frame, value->data.string);
        free(value->data.string);
    }
    free(value);
    return status;
}

/* ---- Joining and leaving -------------------------------------------------------- */

/* A library in this process may want PMIx after us. Up to version 4 it must find PMIx
 * joined, since nobody who left joins again (openpmix/openpmix, issue 1558); the
 * MPI_Init of Open MPI 5.0.7 with PMIx 5.0.7 fails where somebody has joined before it.
 */
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
                        "PMIx tells of %u ranks, WORLD_SIZE of %d: unset WORLD_SIZE",
                        size, said);
    if (asked != 1 && (uint32_t)asked != size)
        return dlc_fail(DLC_ERR_CONFIG,
                        "--ranks=%d (or [parallel] ranks) starts ranks on this machine, but "
                        "this process was started as one of %u: leave one of them out",
                        asked, size);
    return DLC_OK;
}

dlc_status dlc_pmix_join(int control, int ranks_said, int asked, int *rank,
                         int *ranks) {
    pmix_proc_t me, all;
    uint32_t size = 0, local = 0;
    DLC_TRY(open_library());
    memset(&me, 0, sizeof me);
    DLC_TRY(check(pmix.init(&me, NULL, 0), "be reached"));
    pmix.joined = 1;
    all = me;
    all.rank = PMIX_RANK_WILDCARD;
    DLC_TRY(get_number(&all, PMIX_JOB_SIZE, &size));
    if (get_number(&all, PMIX_LOCAL_SIZE, &local) != DLC_OK)
        local = 0; /* then the ranks may be anywhere */
    DLC_TRY(check_ranks(size, ranks_said, asked));
    *rank = (int)me.rank;
    *ranks = (int)size;
    dlc_pmix_who who = {.local_ranks = local};
    dlc_frame frame = {
        .kind = DLC_FRAME_WHO, .number = *rank, .size = size, .bytes = sizeof who};
    DLC_TRY(dlc_frame_send(control, &frame, &who));
    DLC_TRY(*rank == 0 ? publish(control, &all) : look_up(control, &all));
    if (!may_join_again())
        return DLC_OK;
    /* Not before everybody has read what rank 0 put. */
    DLC_TRY(check(pmix.fence(&all, 1, NULL, 0), "bring the ranks together"));
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
