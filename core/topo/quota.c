/* See quota.h. cgroups(7): version 2 has cpu.max in every group from ours up to
 * the root; version 1 has a hierarchy of its own for the controller "cpu". */
#include "topo/quota.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MOUNT "/sys/fs/cgroup"

/* The first line of a file; 0 if there is none. */
static int read_line(const char *folder, const char *name, char *line, int bytes) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    int found = fgets(line, bytes, file) != NULL;
    fclose(file);
    return found;
}

/* "max 100000", "150000 100000". */
static double group_v2(const char *folder) {
    char line[128];
    double quota = 0, period = 0;
    if (!read_line(folder, "cpu.max", line, sizeof line) ||
        sscanf(line, "%lf %lf", &quota, &period) != 2)
        return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* -1 where there is no limit. */
static double group_v1(const char *folder) {
    char line[128];
    double quota = 0, period = 0;
    if (!read_line(folder, "cpu.cfs_quota_us", line, sizeof line) ||
        sscanf(line, "%lf", &quota) != 1 ||
        !read_line(folder, "cpu.cfs_period_us", line, sizeof line) ||
        sscanf(line, "%lf", &period) != 1)
        return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The smallest limit of the group and of those above it. Inside a container the
 * path may be one of the world outside: what isn't there has no limit. */
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

/* Is `name` one of the names of `list`, which are joined by commas? */
static int listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return 1;
    }
    return 0;
}

double dlc_quota_read(const char *root) {
    char path[PATH_MAX], mount[PATH_MAX], line[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    double least = 0;
    /* "0::/user.slice" (version 2), "4:cpu,cpuacct:/docker/ab" (version 1) */
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        double here = 0;
        if (!*controllers) {
            snprintf(mount, sizeof mount, "%s" MOUNT, root);
            here = climb(mount, group, group_v2);
        } else if (listed(controllers, "cpu")) { // "cpu" is the kernel's controller
            snprintf(mount, sizeof mount, "%s" MOUNT "/cpu", root);
            here = climb(mount, group, group_v1);
        }
        if (here > 0 && (least <= 0 || here < least))
            least = here;
    }
    fclose(file);
    return least;
}
