/* Marks: how far each rank is, told to the others and waited for. */
#include "shm.h"

int marks_reached(const dlc_endpoint *e, const goal *g) {
    for (int32_t r = g->first; r < g->end; r++)
        if (r != e->rank &&
            atomic_load(&e->peers[r].head->marks[g->mark].steps) < g->steps)
            return 0;
    return 1;
}

static int reached(const dlc_endpoint *e, const void *what) {
    return marks_reached(e, what);
}

dlc_status marks_await(dlc_endpoint *e, uint32_t which, uint64_t steps, int32_t first,
                       int32_t end) {
    goal g = {which, first, end, steps};
    return marks_reached(e, &g) ? DLC_OK : wait_until(e, reached, &g, &g);
}

/* Does `sleeper`, who sleeps, wait for something that isn't there yet? */
static int in_vain(const dlc_endpoint *e, const head *sleeper) {
    int32_t end = atomic_load(&sleeper->end);
    goal g = {atomic_load(&sleeper->mark), atomic_load(&sleeper->first), end,
              atomic_load(&sleeper->steps)};

    if (end <= 0 || end > e->ranks || g.first < 0 || g.mark >= MARKS)
        return 0;
    for (int32_t r = g.first; r < end; r++)
        if (e->peers[r].head != sleeper &&
            atomic_load(&e->peers[r].head->marks[g.mark].steps) < g.steps)
            return 1;
    return 0;
}

void marks_tell(dlc_endpoint *e, uint32_t which, uint64_t steps, int32_t first,
                int32_t end) {
    atomic_store(&e->head->marks[which].steps, steps);
    for (int32_t r = first; r < end; r++) {
        head *h = e->peers[r].head;
        if (r != e->rank && atomic_load(&h->asleep) && !in_vain(e, h))
            wake(h);
    }
}
