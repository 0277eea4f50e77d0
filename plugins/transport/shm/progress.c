/* Progress counters: publishes how far this rank is, and waits for other ranks. */
#include "shm.h"

static int reached(const dlc_endpoint *e, const void *what) {
    const goal *g = what;
    for (int32_t r = g->first; r < g->end; r++)
        if (r != e->rank &&
            atomic_load(&e->peers[r].head->progress[g->counter].steps) < g->steps)
            return 0;
    return 1;
}

dlc_status progress_wait(dlc_endpoint *e, uint32_t which, uint64_t steps, int32_t first,
                         int32_t end) {
    goal g = {which, first, end, steps};
    return reached(e, &g) ? DLC_OK : wait_until(e, reached, &g, &g);
}

/* Would waking `sleeper` be premature, because some of the counters that it waits for
 * have not got there yet? */
static int must_sleep_on(const dlc_endpoint *e, const head *sleeper) {
    int32_t end = atomic_load(&sleeper->end);
    goal g = {atomic_load(&sleeper->counter), atomic_load(&sleeper->first), end,
              atomic_load(&sleeper->steps)};

    if (end <= 0 || end > e->ranks || g.first < 0 || g.counter >= PROGRESS_COUNTERS)
        return 0;
    for (int32_t r = g.first; r < end; r++)
        if (e->peers[r].head != sleeper &&
            atomic_load(&e->peers[r].head->progress[g.counter].steps) < g.steps)
            return 1;
    return 0;
}

void progress_publish(dlc_endpoint *e, uint32_t which, uint64_t steps, int32_t first,
                      int32_t end) {
    atomic_store(&e->head->progress[which].steps, steps);
    for (int32_t r = first; r < end; r++) {
        head *h = e->peers[r].head;
        if (r != e->rank && atomic_load(&h->asleep) && !must_sleep_on(e, h))
            wake_rank(h);
    }
}
