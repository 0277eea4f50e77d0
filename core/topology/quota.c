/* Reads the limits of cgroups(7). Version 2 has cpu.max in every group from this
 * process's up to the root; version 1 has a separate hierarchy for each controller. */
#include "topology/quota.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/read.h"

#define MOUNT "/sys/fs/cgroup"

/* The first line of a file; 0 if there is none. */
static int read_limit_line(const char *folder, const char *name, char *line,
                           size_t room) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return 0;
    return dlc_read_line(path, line, room) > 0;
}

/* The quota of a group in cores, from "150000 100000" or "max 100000"; 0: no limit. */
static double group_v2(const char *folder) {
    char line[128];
    double quota = 0, period = 0;
    if (!read_limit_line(folder, "cpu.max", line, sizeof line) ||
        sscanf(line, "%lf %lf", &quota, &period) != 2)
        return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The quota of a group in cores; the file contains -1 if there is no limit. */
static double group_v1(const char *folder) {
    char line[128];
    double quota = 0, period = 0;
    if (!read_limit_line(folder, "cpu.cfs_quota_us", line, sizeof line) ||
        sscanf(line, "%lf", &quota) != 1 ||
        !read_limit_line(folder, "cpu.cfs_period_us", line, sizeof line) ||
        sscanf(line, "%lf", &period) != 1)
        return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The smallest limit of a group and its ancestors. Inside a container the path may be
 * one of the host; a folder that doesn't exist has no limit. */
static double climb(const char *mount, const char *group,
                    double (*limit)(const char *folder)) {
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof folder)
        return 0;
    double least = 0;
    for (;;) {
        double here = limit(folder);
        if (here > 0 && (least <= 0 || here < least))
            least = here;
        char *slash = strrchr(folder, '/');
        if (!slash || slash < folder + strlen(mount))
            return least;
        *slash = '\0';
    }
}

/* Whether `name` is in a comma-separated list. */
static int listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return 1;
    }
    return 0;
}

/* A kind of limit: how version 2 gives it, and version 1 in its controller's folder. */
typedef struct limited {
    const char *controller;
    double (*v2)(const char *folder);
    double (*v1)(const char *folder);
} limited;

static double least_limit(const char *root, const limited *what) {
    char path[PATH_MAX], mount[PATH_MAX];
    dlc_read_lines lines;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!dlc_read_lines_open(path, &lines))
        return 0;
    double least = 0;
    /* "0::/user.slice" (version 2), "4:cpu,cpuacct:/docker/ab" (version 1) */
    for (char *line; (line = dlc_read_lines_next(&lines));) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        double here = 0;
        if (!*controllers) {
            snprintf(mount, sizeof mount, "%s" MOUNT, root);
            here = climb(mount, group, what->v2);
        } else if (listed(controllers, what->controller)) {
            snprintf(mount, sizeof mount, "%s" MOUNT "/%s", root, what->controller);
            here = climb(mount, group, what->v1);
        }
        if (here > 0 && (least <= 0 || here < least))
            least = here;
    }
    dlc_read_lines_close(&lines);
    return least;
}

double dlc_quota_cores(const char *root) {
    static const limited cpu = {.controller = "cpu", // "cpu" is the controller's name
                                .v2 = group_v2,
                                .v1 = group_v1};
    return least_limit(root, &cpu);
}

/* ---- Memory ---------------------------------------------------------------------- */

/* The number of bytes in a file; 0 (no limit) for "max" and, as in version 1, for a
 * number larger than any machine's memory. */
static double bytes_in(const char *folder, const char *name) {
    const double beyond = 0x1p60;
    char line[128];
    double bytes = 0;
    if (!read_limit_line(folder, name, line, sizeof line) ||
        sscanf(line, "%lf", &bytes) != 1)
        return 0;
    return bytes > 0 && bytes < beyond ? bytes : 0;
}

static double memory_v2(const char *folder) {
    return bytes_in(folder, "memory.max");
}

static double memory_v1(const char *folder) {
    return bytes_in(folder, "memory.limit_in_bytes");
}

/* What a group may still take; 1 byte if it has taken all. Cache of files can be freed,
 * which the inactive part of it at least is. */
static double left_of(const char *folder, double limit, const char *used,
                      const char *inactive) {
    char path[PATH_MAX], text[8192];
    double taken = bytes_in(folder, used), cache = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (limit <= 0 || taken <= 0)
        return 0;
    const char *at = dlc_read_text(path, text, sizeof text) ? strstr(text, inactive)
                                                            : NULL;
    if (at)
        (void)sscanf(at + strlen(inactive), "%lf", &cache);
    double left = limit - taken + (cache < taken ? cache : taken);
    return left > 1 ? left : 1;
}

static double free_v2(const char *folder) {
    return left_of(folder, memory_v2(folder), "memory.current", "inactive_file ");
}

static double free_v1(const char *folder) {
    return left_of(folder, memory_v1(folder), "memory.usage_in_bytes",
                   "total_inactive_file ");
}

/* The less of what the machine has, by /proc/meminfo, and what the groups allow. */
static double least_memory(const char *root, const char *name, const limited *memory) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    double machine = (double)dlc_read_kilobytes(path, name);
    double group = least_limit(root, memory);
    return group > 0 && (machine <= 0 || group < machine) ? group : machine;
}

double dlc_quota_memory(const char *root) {
    static const limited memory = {"memory", memory_v2, memory_v1};
    return least_memory(root, "MemTotal", &memory);
}

double dlc_quota_memory_free(const char *root) {
    static const limited memory = {"memory", free_v2, free_v1};
    return least_memory(root, "MemAvailable", &memory);
}
