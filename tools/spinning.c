/* Looks for another dlcore job on the cores of this process, and sets how long the
 * threads of OpenMP spin. Called once, by main(), before plugins are loaded. */
#include "spinning.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* About 0.1 ms. Longer waits are no faster on an idle machine, and waste the core if
 * another process wants it (measured: seven times slower beside two busy processes). */
#define SPINS_ALONE "5000"
/* Two jobs of two threads on two cores: half as fast with spinning as without. */
#define SPINS_SHARED "0"

static long other_job; /* its process; 0: none was found */

/* Does process `pid` run this command? The kernel keeps 15 letters of a name. */
static int is_dlcore(const char *pid) {
    static const char own[] = "dlcore\n";
    char path[64], name[16];
    (void)snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, name, sizeof name);
    close(fd);
    return got == (ssize_t)(sizeof own - 1) && memcmp(name, own, sizeof own - 1) == 0;
}

static int shares_cores(pid_t pid, const cpu_set_t *own) {
    cpu_set_t its, both;
    if (sched_getaffinity(pid, sizeof its, &its) != 0)
        return 0;
    CPU_AND(&both, own, &its);
    return CPU_COUNT(&both) > 0;
}

/* Another launcher starts the ranks of one job as processes that look like other jobs.
 */
static int is_launched_by_another(void) {
    static const char *const names[] = {"RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return 1;
    return 0;
}

/* A job that starts later is not seen, but sees this one. */
static long find_other_job(void) {
    cpu_set_t own;
    long found = 0;
    DIR *folder = opendir("/proc");
    if (!folder)
        return 0;
    if (sched_getaffinity(0, sizeof own, &own) == 0)
        for (struct dirent *entry; !found && (entry = readdir(folder));) {
            long pid = strtol(entry->d_name, NULL, 10);
            if (pid > 0 && pid != getpid() && is_dlcore(entry->d_name) &&
                shares_cores((pid_t)pid, &own))
                found = pid;
        }
    closedir(folder);
    return found;
}

void dlc_tool_limit_spinning(void) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (!is_launched_by_another())
        other_job = find_other_job();
    setenv("GOMP_SPINCOUNT", other_job ? SPINS_SHARED : SPINS_ALONE, 0);
}

void dlc_tool_report_spinning(void) {
    if (other_job)
        dlc_debug(
            "process %ld is another dlcore job on these cores: waiting threads sleep "
            "instead of spinning (GOMP_SPINCOUNT=" SPINS_SHARED ")",
            other_job);
}
