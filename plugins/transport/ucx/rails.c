/* Rails: several equal Ethernet adapters of a machine, used at once. UCX stripes over
 * RDMA adapters by itself, but over TCP it pairs adapters of different networks. So an
 * endpoint has a second one for each further adapter (rails_open.c), whose worker it
 * drives and whose connections take chunks (chunks.c) when the others are busy. */
#include "ucx.h"

static dlc_endpoint *next_rail(dlc_endpoint *e, dlc_endpoint *rail) {
    return rail && rail->rail ? rail->rail : e;
}

/* A socket takes some MB before a chunk counts as in flight, so of equals each has its
 * turn. */
dlc_endpoint *rails_idle(dlc_endpoint *e, int32_t to) {
    dlc_endpoint *first = next_rail(e, e->peers[to].rail), *best = first;
    for (dlc_endpoint *rail = next_rail(e, first); rail != first;
         rail = next_rail(e, rail))
        if (rail->peers[to].chunks < best->peers[to].chunks)
            best = rail;
    return best;
}

int rails_progress(dlc_endpoint *e) {
    int moved = 0;
    for (dlc_endpoint *rail = e->rail; rail; rail = rail->rail)
        moved |= ucx.worker_progress(rail->worker) != 0;
    return moved;
}

ucs_status_t rails_arm(dlc_endpoint *e) {
    ucs_status_t status = ucx.worker_arm(e->worker);
    for (dlc_endpoint *rail = e->rail; status == UCS_OK && rail; rail = rail->rail)
        status = ucx.worker_arm(rail->worker);
    return status;
}
