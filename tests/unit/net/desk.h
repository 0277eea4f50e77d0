/* Messages between threads of one process, in place of a transport's: what a net whose
 * layers are split needs (dlc_mail). */
#ifndef TEST_NET_DESK_H
#define TEST_NET_DESK_H

#include <pthread.h>

#include <dlcore/solver.h>

enum { DESK_RANKS = 4 };

typedef struct desk_letter desk_letter;

typedef struct desk desk;

/* One rank's place at it. */
typedef struct desk_seat {
    desk *desk;
    int32_t rank;
    int32_t node[DESK_RANKS];
    int woken; /* the next wait is over at once */
    dlc_mail mail;
} desk_seat;

struct desk {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int32_t ranks;
    desk_seat seat[DESK_RANKS];
    desk_letter *first[DESK_RANKS][DESK_RANKS]; /* [from][to], oldest first */
    int64_t sent;                               /* letters, ever */
};

void desk_open(desk *at, int32_t ranks);
/* Letters that nobody has fetched; then it is closed. */
int desk_close(desk *at);

#endif
