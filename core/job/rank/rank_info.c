/* Gathers a rank's own details, derives nodes, devices and shares of cores from the
 * details of all ranks, and compares their settings. */
#include "job/rank/rank_info.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/read.h"
#include "job/supervise.h"

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
    dlc_host_name(info->host, sizeof info->host);
    snprintf(info->device, sizeof info->device, "%s",
             args->options->device ? args->options->device : "");
}

static const char *settings_text(const dlc_rank_args *args) {
    return args->options->settings ? args->options->settings : "";
}

dlc_status dlc_rank_details_make(const dlc_rank_args *args, dlc_rank_details *details) {
    memset(details, 0, sizeof *details);
    rank_info_make(args, &details->info);
    details->settings_bytes = strlen(settings_text(args));
    details->settings_digest = XXH64(settings_text(args), details->settings_bytes, 0);
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
    const dlc_job_options *options = args->options;
    int local = args->local_rank;
    if (options->devices < 1)
        return 0;
    if (local < 0)
        for (int r = local = 0; r < args->rank; r++)
            local += is_on_machine(&all[r], &all[args->rank]);
    int i = local % options->devices;
    return options->device_index ? options->device_index[i] : i;
}

static int have_same_cores(const dlc_rank_details *a, const dlc_rank_details *b) {
    return is_on_machine(a, b) &&
           memcmp(a->usable.cpus, b->usable.cpus, sizeof a->usable.cpus) == 0;
}

void dlc_rank_details_core_share(const dlc_rank_details *all, int ranks, int rank,
                                 int *index, int *count) {
    *index = *count = 0;
    for (int r = 0; r < ranks; r++) {
        if (!have_same_cores(&all[r], &all[rank]))
            continue;
        *index += r < rank;
        ++*count;
    }
}

/* ---- Settings ------------------------------------------------------------------- */

/* "[section] key = value", or "[section]". */
typedef struct line {
    const char *text;
    int name, length; /* up to the value, and all */
} line;

static line settings_line_at(const char *text) {
    line found = {.text = text, .length = (int)strcspn(text, "\n")};
    const char *value = memmem(text, (size_t)found.length, " = ", 3);
    found.name = value ? (int)(value - text) : found.length;
    return found;
}

static int have_same_name(const line *a, const line *b) {
    return a->name == b->name && memcmp(a->text, b->text, (size_t)a->name) == 0;
}

static int is_in(const line *wanted, const char *settings) {
    while (*settings) {
        line one = settings_line_at(settings);
        if (have_same_name(wanted, &one))
            return 1;
        settings += one.length;
        settings += *settings == '\n';
    }
    return 0;
}

enum { SHOWN = 160 }; /* characters of a line */

static int shown(int length) {
    return length < SHOWN ? length : SHOWN;
}

static dlc_status say_difference(int rank, const char *host, const char *first,
                                 const char *other) {
    size_t begin = 0;
    for (size_t i = 0; first[i] && first[i] == other[i]; i++)
        if (first[i] == '\n')
            begin = i + 1;
    line a = settings_line_at(first + begin), b = settings_line_at(other + begin);
    int is_extra = a.length && !is_in(&a, other);
    const line *one = is_extra ? &a : &b;
    if (have_same_name(&a, &b) && a.length > a.name && b.length > b.name)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "rank %d (host %s) has a different net.ini or command line than "
            "rank 0: %.*s there, %.*s on rank 0",
            rank, host, shown(b.length), b.text, shown(a.length - a.name - 3),
            a.text + a.name + 3);
    return dlc_fail(
        DLC_ERR_CONFIG,
        "rank %d (host %s) has a different net.ini or command line than rank "
        "0: %.*s is %s",
        rank, host, shown(one->length), one->text,
        is_extra           ? "only on rank 0"
        : is_in(&b, first) ? "at another place"
                           : "only there");
}

dlc_status dlc_settings_check(dlc_job *job, const dlc_rank_args *args,
                              const dlc_rank_details *details) {
    int ranks = args->ranks, rank = args->rank, r = 1;
    while (r < ranks && details[r].settings_digest == details[0].settings_digest)
        r++;
    if (r >= ranks)
        return DLC_OK;
    size_t bytes[] = {details[0].settings_bytes, details[r].settings_bytes};
    char *first = dlc_alloc(bytes[0] + 1, 1), *other = dlc_alloc(bytes[1] + 1, 1);
    dlc_status status = first && other ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK && rank == 0)
        memcpy(first, settings_text(args), bytes[0]);
    if (status == DLC_OK && rank == r)
        memcpy(other, settings_text(args), bytes[1]);
    if (status == DLC_OK)
        status = dlc_job_broadcast(job, 0, first, bytes[0]);
    if (status == DLC_OK)
        status = dlc_job_broadcast(job, r, other, bytes[1]);
    if (status == DLC_OK)
        status = say_difference(r, details[r].info.host, first, other);
    dlc_free(first);
    dlc_free(other);
    return status;
}
