/* A group of ranks in one thread, for layers that reduce over ranks in a pass. What a
 * rank gives depends on its own samples alone, so each pass is run twice: when it is
 * recorded, a rank's block is kept and those of others are zero; when it is replayed,
 * all blocks are there. */
#ifndef FAKE_GROUP_H
#define FAKE_GROUP_H

#include <dlcore/layer.h>

enum { FAKE_RANKS = 4 };

typedef struct fake_group fake_group;

typedef struct fake_rank {
    dlc_layer_group table;
    fake_group *group;
    int calls; /* of all_gather */
} fake_rank;

struct fake_group {
    fake_rank rank[FAKE_RANKS];
    dlc_memory merges; /* target memory */
    int replays;
    size_t bytes; /* of a block */
    unsigned char *block[FAKE_RANKS];
};

/* `merges`: ranks-1 of them, in host memory. */
void fake_group_open(fake_group *group, int32_t ranks, const dlc_merge *merges);
void fake_group_close(fake_group *group);

#endif
