/* See place.h. */
#include "job/place.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned long long inode_of(const char *path) {
    struct stat found;
    return stat(path, &found) ? 0 : (unsigned long long)found.st_ino;
}

/* Where the kernel doesn't tell, the host's name has to do. */
static void read_boot(const char *host, char *text, size_t room) {
    snprintf(text, room, "%s", host);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file)
        return;
    if (fgets(text, (int)room, file))
        text[strcspn(text, "\n")] = '\0';
    (void)fclose(file);
}

static void place_make(const dlc_rank_args *args, dlc_place *place) {
    place->size = sizeof *place;
    place->package = place->numa = -1;
    place->pid = (uint32_t)getpid();
    place->uid = (uint32_t)geteuid();
    if (gethostname(place->host, sizeof place->host - 1))
        snprintf(place->host, sizeof place->host, "localhost");
    snprintf(place->device, sizeof place->device, "%s",
             args->device ? args->device : "");
}

dlc_status dlc_card_make(const dlc_rank_args *args, dlc_card *card) {
    memset(card, 0, sizeof *card);
    place_make(args, &card->place);
    read_boot(card->place.host, card->boot, sizeof card->boot);
    snprintf(card->node, sizeof card->node, "%s %s %llu %llu", card->boot,
             card->place.host, inode_of("/proc/self/ns/pid"),
             inode_of("/proc/self/ns/net"));
    return dlc_cores_share(args->cores, 0, 1, &card->usable);
}

void dlc_cards_number(dlc_card *cards, int ranks) {
    int32_t nodes = 0;
    for (int r = 0; r < ranks; r++) {
        int first = 0;
        while (strcmp(cards[first].node, cards[r].node) != 0)
            first++; /* at the latest at r */
        cards[r].place.node = first < r ? cards[first].place.node : nodes++;
    }
}

/* A container with a network of its own is a node, but has the machine's devices. */
static int is_on_machine(const dlc_card *a, const dlc_card *b) {
    return strcmp(a->boot, b->boot) == 0;
}

int32_t dlc_cards_device(const dlc_card *cards, const dlc_rank_args *args) {
    int local = args->local_rank;
    if (args->devices < 1)
        return 0;
    if (local < 0)
        for (int r = local = 0; r < args->rank; r++)
            local += is_on_machine(&cards[r], &cards[args->rank]);
    int i = local % args->devices;
    return args->device_index ? args->device_index[i] : i;
}

static int same_cores(const dlc_card *a, const dlc_card *b) {
    return strcmp(a->boot, b->boot) == 0 &&
           memcmp(a->usable.cpus, b->usable.cpus, sizeof a->usable.cpus) == 0;
}

void dlc_cards_share(const dlc_card *cards, int ranks, int rank, int *index,
                     int *count) {
    *index = *count = 0;
    for (int r = 0; r < ranks; r++) {
        if (!same_cores(&cards[r], &cards[rank]))
            continue;
        *index += r < rank;
        ++*count;
    }
}
