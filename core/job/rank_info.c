/* Gathers a rank's own details, and derives nodes, devices and shares of cores from the
 * details of all ranks. */
#include "job/rank_info.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/read.h"

static unsigned long long inode_of(const char *path) {
    struct stat found;
    return stat(path, &found) ? 0 : (unsigned long long)found.st_ino;
}

/* The kernel's boot id; the host name where the kernel does not provide one. */
static void read_boot(const char *host, char *text, size_t room) {
    if (!dlc_read_line("/proc/sys/kernel/random/boot_id", text, room))
        snprintf(text, room, "%s", host);
}

static void rank_info_make(const dlc_rank_args *args, dlc_rank_info *info) {
    info->size = sizeof *info;
    info->package = info->numa = -1;
    info->pid = (uint32_t)getpid();
    info->uid = (uint32_t)geteuid();
    if (gethostname(info->host, sizeof info->host - 1))
        snprintf(info->host, sizeof info->host, "localhost");
    snprintf(info->device, sizeof info->device, "%s", args->device ? args->device : "");
}

dlc_status dlc_rank_details_make(const dlc_rank_args *args, dlc_rank_details *details) {
    memset(details, 0, sizeof *details);
    rank_info_make(args, &details->info);
    details->settings_bytes = strlen(args->settings);
    details->settings_digest = XXH64(args->settings, details->settings_bytes, 0);
    read_boot(details->info.host, details->boot, sizeof details->boot);
    snprintf(details->node, sizeof details->node, "%s %s %llu %llu", details->boot,
             details->info.host, inode_of("/proc/self/ns/pid"),
             inode_of("/proc/self/ns/net"));
    return dlc_cores_share(args->cores, 0, 1, &details->usable);
}

void dlc_rank_details_number_nodes(dlc_rank_details *all, int ranks) {
    int32_t nodes = 0;
    for (int r = 0; r < ranks; r++) {
        int first = 0;
        while (strcmp(all[first].node, all[r].node) != 0)
            first++; /* ends at r at the latest */
        all[r].info.node = first < r ? all[first].info.node : nodes++;
    }
}

/* A container with a network of its own is a node, but shares the machine's devices. */
static int is_on_machine(const dlc_rank_details *a, const dlc_rank_details *b) {
    return strcmp(a->boot, b->boot) == 0;
}

int32_t dlc_rank_details_device(const dlc_rank_details *all,
                                const dlc_rank_args *args) {
    int local = args->local_rank;
    if (args->devices < 1)
        return 0;
    if (local < 0)
        for (int r = local = 0; r < args->rank; r++)
            local += is_on_machine(&all[r], &all[args->rank]);
    int i = local % args->devices;
    return args->device_index ? args->device_index[i] : i;
}

static int same_cores(const dlc_rank_details *a, const dlc_rank_details *b) {
    return strcmp(a->boot, b->boot) == 0 &&
           memcmp(a->usable.cpus, b->usable.cpus, sizeof a->usable.cpus) == 0;
}

void dlc_rank_details_core_share(const dlc_rank_details *all, int ranks, int rank,
                                 int *index, int *count) {
    *index = *count = 0;
    for (int r = 0; r < ranks; r++) {
        if (!same_cores(&all[r], &all[rank]))
            continue;
        *index += r < rank;
        ++*count;
    }
}
