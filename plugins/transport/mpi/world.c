/* MPI_COMM_WORLD: initialises MPI with the first endpoint, creates the communicators of
 * endpoints, and finalises MPI when the process exits.
 *
 * MPI_Finalize waits for every process of the world, so it is called only where all
 * endpoints were closed without an error, together with their peers'. A process that
 * fails leaves it out; the launcher then sees a failed process, as it should.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

#if defined(OPEN_MPI) && OPEN_MPI
#include <mpi-ext.h>
#endif

/* How long a rank that closes waits for the others to close, too. */
#define CLOSE_TIMEOUT_NS UINT64_C(60000000000)

enum { CREATE_TAG = 1 };

/* A global, since MPI's state is global to the process. */
static struct {
    pthread_mutex_t lock;
    int begun; /* by this plugin */
    int failed;
    size_t open; /* number of endpoints */
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- The launcher's environment ------------------------------------------ */

static int number_of(const char *name) {
    const char *text = getenv(name);
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : -1;
    return text && end != text && !*end && value >= 0 && value < 1 << 24 ? (int)value
                                                                         : -1;
}

/* The value of the first variable that is set. */
static int first_of(const char *const *names) {
    for (; *names; names++)
        if (number_of(*names) >= 0)
            return number_of(*names);
    return -1;
}

int world_size(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    static const char *const slurm[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", NULL};
    int size = first_of(names);
    if (size < 0 && number_of("PMIX_RANK") >= 0) /* srun --mpi=pmix */
        size = first_of(slurm);
    return size < 0 ? 0 : size;
}

static int launched_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                        NULL};
    return first_of(names);
}

static int world_has_begun(void) {
    int begun = 0, ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

int world_is_cuda_aware(void) {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return 0;
#endif
}

/* Up to the first comma or line break: the rest says who built it. */
void world_library(char *text, size_t bytes) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        version[0] = '\0';
    version[strcspn(version, ",\n")] = '\0';
    for (char *at = version; *at; at++)
        if (*at == '\t')
            *at = ' ';
    (void)snprintf(text, bytes, "%s", version[0] ? version : "MPI");
}

dlc_status world_failed(dlc_endpoint *e, int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    e->failed = 1;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        (void)snprintf(text, sizeof text, "error %d", code);
    return host->fail(DLC_ERR_UNAVAILABLE, "MPI, %s: %s", what, text);
}

/* ---- Initialisation ------------------------------------------------------------- */

static void finalize(void) {
    if (world.begun && !world.failed && world.open == 0 && world_has_begun())
        MPI_Finalize();
}

/* The caller holds the lock. */
static dlc_status begin(void) {
    int begun = 0, ended = 0, level = 0;
    MPI_Finalized(&ended);
    if (ended)
        return host->fail(DLC_ERR_UNAVAILABLE, "MPI has ended in this process");
    MPI_Initialized(&begun);
    if (begun) {
        MPI_Query_thread(&level);
    } else {
        /* An error in here ends the process; MPI offers no other way. */
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
            return host->fail(DLC_ERR_UNAVAILABLE, "MPI cannot be initialised");
        world.begun = 1;
        if (atexit(finalize) != 0)
            world.failed = 1;
    }
    /* Several threads may use an endpoint each. */
    return level >= MPI_THREAD_MULTIPLE
               ? DLC_OK
               : host->fail(DLC_ERR_UNAVAILABLE,
                            "this MPI library was built without support for threads");
}

/* Every rank of the group must be a process of its own in MPI_COMM_WORLD. */
static dlc_status check_ranks(const dlc_transport_args *args, const int *ranks) {
    for (int32_t r = 0; r < args->ranks; r++) {
        if (ranks[r] < 0)
            return host->fail(DLC_ERR_CONFIG, "rank %d was not started by mpirun", r);
        for (int32_t k = 0; k < r; k++)
            if (ranks[k] == ranks[r])
                return host->fail(
                    DLC_ERR_CONFIG,
                    "ranks %d and %d are in one process of mpirun's (%d); "
                    "MPI needs a process per rank",
                    k, r, ranks[r]);
    }
    return DLC_OK;
}

static dlc_status begin_together(dlc_endpoint *e, int *ranks) {
    const dlc_transport_args *args = e->args;
    int mine = launched_rank();
    dlc_status status = args->oob_all_gather(args->job, &mine, sizeof mine, ranks);
    if (status == DLC_OK)
        status = check_ranks(args, ranks);
    if (status != DLC_OK)
        return status;
    pthread_mutex_lock(&world.lock);
    status = begin();
    pthread_mutex_unlock(&world.lock);
    if (status != DLC_OK)
        return status;
    /* MPI's own rank, which may differ from the launcher's. */
    int code = MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    if (code != MPI_SUCCESS)
        return world_failed(e, code, "asking for the rank");
    status = args->oob_all_gather(args->job, &mine, sizeof mine, ranks);
    return status == DLC_OK ? check_ranks(args, ranks) : status;
}

/* Is the group all of the world, in its order? */
static int is_world(const dlc_transport_args *args, const int *ranks) {
    int size = 0;
    if (MPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS || size != args->ranks)
        return 0;
    for (int32_t r = 0; r < args->ranks; r++)
        if (ranks[r] != r)
            return 0;
    return 1;
}

/* For a part of the world; MPI has no nonblocking call for it. */
static int create_part(dlc_endpoint *e, const int *ranks) {
    MPI_Group all, part;
    int code = MPI_Comm_group(MPI_COMM_WORLD, &all);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Group_incl(all, e->args->ranks, ranks, &part);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create_group(MPI_COMM_WORLD, part, CREATE_TAG, &e->comm);
        MPI_Group_free(&part);
    }
    MPI_Group_free(&all);
    e->has_comm = code == MPI_SUCCESS;
    return code;
}

static dlc_status create_comm(dlc_endpoint *e, const int *ranks) {
    int code;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (is_world(e->args, ranks)) {
        MPI_Request request;
        code = MPI_Comm_idup(MPI_COMM_WORLD, &e->comm, &request);
        if (code == MPI_SUCCESS) {
            dlc_status status = wait_for(e, &request, "making a communicator");
            if (status != DLC_OK)
                return status;
            e->has_comm = 1;
        }
    } else {
        code = create_part(e, ranks);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(e->comm, MPI_ERRORS_RETURN);
    return code == MPI_SUCCESS ? DLC_OK
                               : world_failed(e, code, "making a communicator");
}

dlc_status world_open(dlc_endpoint *e) {
    int *ranks = host->alloc((size_t)e->args->ranks * sizeof *ranks);
    if (!ranks)
        return DLC_ERR_NOMEM;
    dlc_status status = begin_together(e, ranks);
    if (status == DLC_OK)
        status = create_comm(e, ranks);
    host->free(ranks);
    pthread_mutex_lock(&world.lock);
    world.open += e->has_comm != 0;
    world.failed |= status != DLC_OK;
    pthread_mutex_unlock(&world.lock);
    return status;
}

typedef struct barrier_wait {
    MPI_Request barrier;
    uint64_t until;
} barrier_wait;

static dlc_status poll_barrier(dlc_endpoint *e, void *what, int *holds) {
    barrier_wait *wait = what;
    if (host->now_ns() > wait->until)
        return host->fail(DLC_ERR_PEER, "a rank does not close its MPI communicator");
    int code = MPI_Test(&wait->barrier, holds, MPI_STATUS_IGNORE);
    return code == MPI_SUCCESS ? DLC_OK : world_failed(e, code, "ending");
}

/* Waits until all peers close. Only then may MPI_Finalize wait for them. */
static int all_close(dlc_endpoint *e) {
    barrier_wait wait = {.until = host->now_ns() + CLOSE_TIMEOUT_NS};
    if (e->failed || e->args->check(e->args->job) != DLC_OK ||
        MPI_Ibarrier(e->comm, &wait.barrier) != MPI_SUCCESS)
        return 0;
    return wait_until(e, poll_barrier, &wait) == DLC_OK;
}

void world_close(dlc_endpoint *e) {
    int ok = all_close(e);
    if (ok)
        ok = MPI_Comm_free(&e->comm) == MPI_SUCCESS;
    pthread_mutex_lock(&world.lock);
    world.open--;
    world.failed |= !ok;
    pthread_mutex_unlock(&world.lock);
}
