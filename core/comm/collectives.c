/* Collectives of a communicator over its levels: on the way up a rank reduces its part
 * of the buffer with its team and keeps a smaller part, on the way down it gathers
 * these again. */
#include <pthread.h>

#include "base/memory.h"
#include "base/slice.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/comm_internal.h"

/* ---- The thread of the outermost level --------------------------------------------
 */

/* It does the outermost level of an all-reduce while the calling thread does the levels
 * below for other parts of the buffer: a ring of parts, done in the order in which they
 * are started. It is the only one that uses the outermost team meanwhile. */

/* How many parts may be started and not yet waited for. */
enum { OUTER_PARTS = 4 };

typedef struct outer_part {
    dlc_team *team;
    float *buffer;
    size_t count;
} outer_part;

struct dlc_outer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* for the thread; for the caller */
    outer_part part[OUTER_PARTS];
    size_t started, ended, waited;
    int stop;
    dlc_status failed; /* the first error; later parts are left out */
    char *detail;      /* owned; of the error */
    dlc_comm *comm;
};

/* Does the next part. Called with the lock held, which is released in between. */
static void reduce_next_part(dlc_outer *o) {
    outer_part its = o->part[o->ended % OUTER_PARTS];
    if (its.team && o->failed == DLC_OK) {
        (void)pthread_mutex_unlock(&o->lock);
        dlc_status status = dlc_team_all_reduce(its.team, its.buffer, its.count);
        char *detail = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
        (void)pthread_mutex_lock(&o->lock);
        o->failed = status;
        o->detail = detail;
        if (status != DLC_OK)
            atomic_store(&o->comm->cancelled, 1); /* ends what the caller does below */
    }
    o->ended++;
    (void)pthread_cond_signal(&o->done);
}

static void *outer_main(void *context) {
    dlc_outer *o = context;
    dlc_thread_request_short_slices();
    (void)pthread_mutex_lock(&o->lock);
    while (!o->stop || o->started > o->ended) {
        if (o->started > o->ended)
            reduce_next_part(o);
        else
            (void)pthread_cond_wait(&o->work, &o->lock);
    }
    (void)pthread_mutex_unlock(&o->lock);
    return NULL;
}

static dlc_status open_outer(dlc_comm *comm, dlc_outer **outer) {
    dlc_outer *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->comm = comm;
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->work, NULL);
    (void)pthread_cond_init(&made->done, NULL);
    dlc_status status = dlc_thread_start(&made->thread, "outer level", outer_main,
                                         made);
    if (status != DLC_OK) {
        dlc_free(made);
        return status;
    }
    *outer = made;
    return DLC_OK;
}

void dlc_outer_close(dlc_outer *outer) {
    if (!outer)
        return;
    (void)pthread_mutex_lock(&outer->lock);
    outer->stop = 1;
    (void)pthread_cond_signal(&outer->work);
    (void)pthread_mutex_unlock(&outer->lock);
    (void)pthread_join(outer->thread, NULL);
    (void)pthread_cond_destroy(&outer->done);
    (void)pthread_cond_destroy(&outer->work);
    (void)pthread_mutex_destroy(&outer->lock);
    dlc_free(outer->detail);
    dlc_free(outer);
}

/* Reduces a part in the background; no team: there is nothing to do for this rank. */
static void start_part(dlc_outer *outer, dlc_team *team, float *buffer, size_t count) {
    (void)pthread_mutex_lock(&outer->lock);
    outer->part[outer->started++ % OUTER_PARTS] = (outer_part){team, buffer, count};
    (void)pthread_cond_signal(&outer->work);
    (void)pthread_mutex_unlock(&outer->lock);
}

/* Waits until `parts` have ended. With the lock held. */
static dlc_status wait_for_parts(dlc_outer *o, size_t parts) {
    while (o->ended < parts)
        dlc_thread_wait(&o->done, &o->lock, dlc_comm_check, o->comm);
    o->waited = parts;
    if (o->failed == DLC_OK)
        return DLC_OK;
    return dlc_fail(o->failed, "%s", o->detail ? o->detail : "out of memory");
}

/* Waits for the first part that was not waited for. Returns the first error. */
static dlc_status wait_for_part(dlc_outer *outer) {
    (void)pthread_mutex_lock(&outer->lock);
    dlc_status status = wait_for_parts(outer, outer->waited + 1);
    (void)pthread_mutex_unlock(&outer->lock);
    return status;
}

/* After an error of the caller: cancels and waits for all parts. Returns the error to
 * report: the part's error if a part cancelled the caller's call. */
static dlc_status cancel_parts(dlc_outer *outer, dlc_status status) {
    char *detail = dlc_strdup(dlc_detail());
    atomic_store(&outer->comm->cancelled, 1);
    (void)pthread_mutex_lock(&outer->lock);
    dlc_status its = wait_for_parts(outer, outer->started);
    (void)pthread_mutex_unlock(&outer->lock);
    if (its == DLC_OK || status != DLC_ERR_CANCELLED)
        its = dlc_fail(status, "%s", detail ? detail : "out of memory");
    dlc_free(detail);
    return its;
}

/* ---- Collectives over the levels --------------------------------------------------
 */

/* A part of a buffer. */
typedef struct part {
    size_t begin, count;
} part;

/* The part of a rank after a level, which is a slice if its team scatters. */
static part shrink(const dlc_comm *comm, int32_t level, part whole) {
    const dlc_level *its = &comm->levels.level[level];
    int32_t at = its->position[comm->rank], size = its->size[comm->rank];
    size_t begin = dlc_slice(whole.count, at, size);
    return (part){whole.begin + begin, dlc_slice(whole.count, at + 1, size) - begin};
}

/* The part that a rank works on at a level. */
static part part_at(const dlc_comm *comm, int32_t level, size_t count) {
    part its = {0, count};
    for (int32_t i = 0; i < level; i++)
        if (comm->levels.level[i].even)
            its = shrink(comm, i, its);
    return its;
}

static int32_t last_level(const dlc_comm *comm) {
    return comm->levels.levels - 1;
}

/* This rank's team and part at a level; NULL: it has nothing to do there. */
static dlc_team *work_at(const dlc_comm *comm, int32_t level, size_t count, part *its) {
    dlc_team *team = comm->team[level];
    *its = team ? part_at(comm, level, count) : (part){0, 0};
    return its->count > 0 ? team : NULL;
}

/* Reduces on the levels below `top`, which may be behind the last one. */
static dlc_status go_up(dlc_comm *comm, float *buffer, size_t count, int32_t top) {
    for (int32_t i = 0; i < top; i++) {
        part its;
        dlc_team *team = work_at(comm, i, count, &its);
        if (team)
            DLC_TRY((i == last_level(comm) || comm->levels.level[i].even
                         ? dlc_team_reduce_scatter
                         : dlc_team_all_reduce)(team, buffer + its.begin, its.count));
    }
    return DLC_OK;
}

/* Spreads the sums again, from the levels below `top`. */
static dlc_status go_down(dlc_comm *comm, float *buffer, size_t count, int32_t top) {
    for (int32_t i = top; i-- > 0;) {
        part its;
        dlc_team *team = work_at(comm, i, count, &its);
        if (!team)
            continue;
        if (i == last_level(comm) || comm->levels.level[i].even)
            DLC_TRY(dlc_team_all_gather(team, buffer + its.begin, its.count));
        else
            DLC_TRY(dlc_team_broadcast(team, 0, buffer + its.begin,
                                       its.count * sizeof *buffer));
    }
    return DLC_OK;
}

/* Elements of a part of a buffer; the parts go through the levels one after the other,
 * so that all levels are busy at once. Small ones keep memory in caches, and on a slow
 * link let no connection get far ahead of the others. */
enum { PART = 256 << 10 };

static part nth_part(size_t count, int32_t i, int32_t parts) {
    size_t begin = dlc_slice(count, i, parts);
    return (part){begin, dlc_slice(count, i + 1, parts) - begin};
}

/* Reduces the parts: up the lower levels, by the outer thread on the last one, and down
 * again, a few parts later. */
static dlc_status reduce_parts(dlc_comm *comm, float *buffer, size_t count) {
    int32_t last = last_level(comm), parts = (int32_t)(count / PART);
    for (int32_t up = 0, down = 0; down < parts; down++) {
        for (; up < parts && up < down + OUTER_PARTS; up++) {
            part whole = nth_part(count, up, parts), its;
            float *from = buffer + whole.begin;
            DLC_TRY(go_up(comm, from, whole.count, last));
            dlc_team *team = work_at(comm, last, whole.count, &its);
            start_part(comm->outer, team, from + its.begin, its.count);
        }
        part whole = nth_part(count, down, parts);
        DLC_TRY(wait_for_part(comm->outer));
        DLC_TRY(go_down(comm, buffer + whole.begin, whole.count, last));
    }
    return DLC_OK;
}

/* Memory of devices with queues is the transports' to synchronize: one level at a time.
 */
static int has_parts(const dlc_comm *comm, size_t count) {
    return last_level(comm) > 0 && count / PART > 1 &&
           !DLC_CAN(comm->device_ops, queues);
}

static dlc_status reduce_levels(dlc_comm *comm, float *buffer, size_t count) {
    int32_t last = last_level(comm);
    if (has_parts(comm, count)) {
        if (!comm->outer)
            DLC_TRY(open_outer(comm, &comm->outer));
        dlc_status status = reduce_parts(comm, buffer, count);
        return status == DLC_OK ? DLC_OK : cancel_parts(comm->outer, status);
    }
    part its;
    DLC_TRY(go_up(comm, buffer, count, last));
    dlc_team *team = work_at(comm, last, count, &its);
    if (team)
        DLC_TRY(dlc_team_all_reduce(team, buffer + its.begin, its.count));
    return go_down(comm, buffer, count, last);
}

static dlc_status scatter_levels(dlc_comm *comm, float *buffer, size_t count) {
    if (!dlc_comm_has_shards(comm))
        return reduce_levels(comm, buffer, count);
    return go_up(comm, buffer, count, comm->levels.levels);
}

static dlc_status gather_levels(dlc_comm *comm, float *buffer, size_t count) {
    if (!dlc_comm_has_shards(comm))
        return DLC_OK; /* reduce_scatter has already reduced everything everywhere */
    return go_down(comm, buffer, count, comm->levels.levels);
}

/* This rank's team at a level, if it leads its domain of the level below. */
static dlc_team *leading_team(const dlc_comm *comm, int32_t level) {
    return comm->levels.level[level].leads[comm->rank] ? comm->team[level] : NULL;
}

/* Where the root's data is in this rank's team at a level: the position of the root, or
 * of the one that leads its domain. -1: not in this team's domain. */
static int32_t find_root(const dlc_comm *comm, int32_t level, int32_t root) {
    const dlc_levels *l = &comm->levels;
    int32_t at = root;
    for (int32_t i = 0; i < level; i++) /* to the first of its team, level by level */
        at = l->level[i].team[at];
    return l->level[level].team[at] == l->level[level].team[comm->rank]
               ? l->level[level].position[at]
               : -1;
}

/* Broadcasts in the root's innermost domain, between the domains of each level that it
 * is in, and then inside the others. */
static dlc_status broadcast_levels(dlc_comm *comm, int32_t root, void *buffer,
                                   size_t bytes) {
    for (int32_t i = 0; i < comm->levels.levels; i++) {
        dlc_team *team = leading_team(comm, i);
        int32_t at = team ? find_root(comm, i, root) : -1;
        if (at >= 0)
            DLC_TRY(dlc_team_broadcast(team, at, buffer, bytes));
    }
    for (int32_t i = last_level(comm); i-- > 0;) {
        dlc_team *team = leading_team(comm, i);
        if (team && find_root(comm, i, root) < 0)
            DLC_TRY(dlc_team_broadcast(team, 0, buffer, bytes));
    }
    return DLC_OK;
}

static dlc_status pass_barriers(dlc_comm *comm) {
    int32_t levels = comm->levels.levels;
    for (int32_t i = 0; i < levels; i++)
        if (leading_team(comm, i))
            DLC_TRY(dlc_team_barrier(leading_team(comm, i)));
    for (int32_t i = levels - 1; i-- > 0;)
        if (leading_team(comm, i))
            DLC_TRY(dlc_team_barrier(leading_team(comm, i)));
    return DLC_OK;
}

/* ---- Public collectives -----------------------------------------------------------
 */

/* Sets *go if there is anything to do; returns the error of an earlier call, if any. */
static dlc_status begin_call(dlc_comm *comm, size_t count, int *go) {
    *go = comm->failed == DLC_OK && comm->ranks > 1 && count > 0;
    if (comm->failed != DLC_OK)
        return dlc_fail(comm->failed, "an earlier error has closed this communicator");
    return DLC_OK;
}

static dlc_status end_call(dlc_comm *comm, dlc_status status) {
    comm->failed = status;
    return status;
}

dlc_status dlc_comm_all_reduce(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin_call(comm, count, &go));
    return go ? end_call(comm, reduce_levels(comm, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_reduce_scatter(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin_call(comm, count, &go));
    return go ? end_call(comm, scatter_levels(comm, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_all_gather(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin_call(comm, count, &go));
    return go ? end_call(comm, gather_levels(comm, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_broadcast(dlc_comm *comm, int32_t root, void *buffer,
                              size_t bytes) {
    int go = 0;
    if (root < 0 || root >= comm->ranks)
        return dlc_fail(DLC_ERR_INTERNAL, "broadcast: there is no rank %d among %d",
                        root, comm->ranks);
    DLC_TRY(begin_call(comm, bytes, &go));
    return go ? end_call(comm, broadcast_levels(comm, root, buffer, bytes)) : DLC_OK;
}

dlc_status dlc_comm_barrier(dlc_comm *comm) {
    int go = 0;
    DLC_TRY(begin_call(comm, 1, &go));
    return go ? end_call(comm, pass_barriers(comm)) : DLC_OK;
}

int dlc_comm_can_fuse_update(const dlc_comm *comm) {
    const dlc_team *team = comm->team[0];
    return team && comm->levels.levels == 1 && team->reduces &&
           DLC_CAN(team->ops, fused_update) && DLC_CAN(comm->device_ops, update_to);
}

dlc_status dlc_comm_fused_update(dlc_comm *comm, float *gradients, float *weights,
                                 size_t count, const dlc_update_range *ranges,
                                 int32_t range_count) {
    int go = 0;
    DLC_TRY(begin_call(comm, count, &go));
    return go ? end_call(comm, dlc_team_fused_update(comm->team[0], gradients, weights,
                                                     count, ranges, range_count))
              : DLC_OK;
}

/* ---- Stream-ordered collectives ---------------------------------------------------
 */

int dlc_comm_can_queue(const dlc_comm *comm) {
    const dlc_team *team = comm->team[0];
    return team && comm->levels.levels == 1 && team->reduces && team->supports_queues;
}

int dlc_comm_can_capture(const dlc_comm *comm) {
    return dlc_comm_can_queue(comm) &&
           (comm->team[0]->how.feature->caps & DLC_TRANSPORT_CAPTURABLE) != 0;
}

typedef dlc_status queue_call(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                              size_t count);

static dlc_status submit_call(dlc_comm *comm, queue_call *call, dlc_queue *queue,
                              float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin_call(comm, count, &go));
    return go ? end_call(comm, call(comm->team[0]->endpoint, queue, buffer, count))
              : DLC_OK;
}

dlc_status dlc_comm_queue_all_reduce(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count) {
    return submit_call(comm, comm->team[0]->ops->queues->all_reduce, queue, buffer,
                       count);
}

dlc_status dlc_comm_queue_reduce_scatter(dlc_comm *comm, dlc_queue *queue,
                                         float *buffer, size_t count) {
    return submit_call(comm, comm->team[0]->ops->queues->reduce_scatter, queue, buffer,
                       count);
}

dlc_status dlc_comm_queue_all_gather(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count) {
    return submit_call(comm, comm->team[0]->ops->queues->all_gather, queue, buffer,
                       count);
}

/* The transport is polled after an error, too: that is how it abandons waiting work. */
dlc_status dlc_comm_poll(dlc_comm *comm) {
    const dlc_team *team = comm->team[0];
    dlc_status status = DLC_OK;
    int go = 0;
    if (team && team->supports_queues)
        status = team->ops->queues->poll(team->endpoint);
    DLC_TRY(begin_call(comm, 1, &go));
    if (go && status == DLC_OK)
        status = dlc_comm_check(comm);
    return go ? end_call(comm, status) : DLC_OK;
}

/* ---- Shards -----------------------------------------------------------------------
 */

int dlc_comm_has_shards(const dlc_comm *comm) {
    return comm->ranks > 1 && dlc_levels_has_shards(&comm->levels);
}

void dlc_comm_shard(const dlc_comm *comm, size_t count, size_t *begin, size_t *end) {
    part its = {0, count};
    if (dlc_comm_has_shards(comm))
        its = shrink(comm, last_level(comm), part_at(comm, last_level(comm), count));
    *begin = its.begin;
    *end = its.begin + its.count;
}
