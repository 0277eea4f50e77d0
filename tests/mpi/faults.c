/* Errors of the mpi transport, one kind per run under mpirun: messages of unexpected
 * size, a rank that dies, a rank that is in the group twice, and an endpoint that is
 * closed with requests in flight. Each must end with a message, and the processes,
 * without MPI_Finalize, with exit code 3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "group.h"

static const group_kind kind = {"mpi", NULL};

static void is_refused(test_rank *rank, dlc_status status, dlc_status expected,
                       const char *words) {
    if (status != expected || !strstr(dlc_detail(), words)) {
        fprintf(stderr, "rank %d: status %d: %s\n", rank->rank, status, dlc_detail());
        rank_failed(rank, __FILE__, __LINE__, words);
    }
}

/* Rank 0 sends `sent` bytes where rank 1 expects 100. */
static void size_body(test_rank *rank, size_t sent, const char *words) {
    char bytes[200] = "";
    dlc_request *request;
    group g;
    group_open(&g, rank, &kind);
    if (rank->rank == 0) {
        group_send(&g, 1, 9, bytes, sent, &request);
        group_wait(&g, request);
    } else if (rank->rank == 1) {
        group_recv(&g, 0, 9, bytes, 100, &request);
        is_refused(rank, g.ops->wait(g.endpoint, request), DLC_ERR_CONFIG, words);
    }
    ranks_barrier(rank);
    ranks_end(rank);
    group_close(&g);
}

static void more_body(test_rank *rank, void *context) {
    (void)context;
    size_body(rank, 120, "has more than the 100 bytes");
}

static void less_body(test_rank *rank, void *context) {
    (void)context;
    size_body(rank, 80, "has less than the 100 bytes");
}

/* Rank 1 ends the job: the others must stop waiting at once. */
static void dead_body(test_rank *rank, void *context) {
    static float numbers[1000];
    dlc_request *request;
    group g;
    (void)context;
    group_open(&g, rank, &kind);
    ranks_barrier(rank);
    if (rank->rank == 1) {
        usleep(100000);
        ranks_end(rank);
    } else {
        dlc_status status;
        if (rank->rank == 0) {
            group_recv(&g, 1, 5, numbers, sizeof numbers, &request);
            status = g.ops->wait(g.endpoint, request);
        } else {
            status = g.ops->all_reduce(g.endpoint, numbers, 1000);
        }
        is_refused(rank, status, DLC_ERR_PEER, "another rank is gone");
    }
    uint64_t since = dlc_now_ns();
    group_close(&g);
    RANK_CHECK(rank, dlc_since(since) < 5);
}

/* Closed with a receive in flight that nothing will ever arrive for. */
static void part_body(test_rank *rank, void *context) {
    static char bytes[2][100];
    dlc_request *request;
    group g;
    (void)context;
    group_open(&g, rank, &kind);
    group_recv(&g, (rank->rank + 1) % rank->ranks, 1, bytes[0], 100, &request);
    group_send(&g, (rank->rank + 1) % rank->ranks, 2, bytes[1], 100, &request);
    ranks_barrier(rank);
    ranks_end(rank);
    group_close(&g);
}

/* All of the launcher's processes claim to be the same one. */
static void twice_body(test_rank *rank, void *context) {
    group g;
    (void)context;
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("PMI_RANK", "0", 1);
    group_prepare(&g, rank, &kind);
    is_refused(rank, g.ops->open(&g.args, &g.endpoint), DLC_ERR_CONFIG,
               "ranks 0 and 1 are in one process");
    group_close(&g);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        rank_body *body;
    } faults[] = {{"more", more_body},
                  {"less", less_body},
                  {"dead", dead_body},
                  {"part", part_body},
                  {"twice", twice_body}};
    for (size_t i = 0; argc > 1 && i < sizeof faults / sizeof *faults; i++)
        if (strcmp(argv[1], faults[i].name) == 0) {
            (void)ranks_run(3, 60, faults[i].body, NULL);
            plugins_close();
            return 3;
        }
    fprintf(stderr, "which fault?\n");
    return 2;
}
