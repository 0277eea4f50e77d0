/* Where ranks are: which of them share a machine, and its cores. */
#ifndef DLC_JOB_PLACE_H
#define DLC_JOB_PLACE_H

#include "job/rank.h"

/* What a rank tells all others of itself, before anything else. */
typedef struct dlc_card {
    dlc_place place;
    /* Ranks that differ in this cannot map each other's memory: boot, host name, and
     * the namespaces of processes and networks. A container with a network of its own
     * is a machine. */
    char node[256];
    char boot[64];       /* of the kernel: those who share it share its cores ... */
    dlc_core_set usable; /* ... where they may use the same ones */
} dlc_card;

dlc_status dlc_card_make(const dlc_rank_args *args, dlc_card *card);

/* Numbers the nodes in the order of their first ranks. */
void dlc_cards_number(dlc_card *cards, int ranks);
/* Of the devices in `args`, the one for that rank. */
int32_t dlc_cards_device(const dlc_card *cards, const dlc_rank_args *args);
/* Which of the ranks that may use the same cores `rank` is, and how many they are. An
 * outer launcher that has bound each rank to other cores thus keeps its way. */
void dlc_cards_share(const dlc_card *cards, int ranks, int rank, int *index,
                     int *count);

#endif
