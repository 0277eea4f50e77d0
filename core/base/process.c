/* Keeps the working directory, raises the limit of open files, and reads /proc. */
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/read.h"

/* ---- This process -------------------------------------------------------------- */

static int folder = -1;

void dlc_process_begin(void) {
    struct rlimit files;
    if (folder < 0)
        folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

void dlc_process_return(void) {
    if (folder >= 0)
        (void)!fchdir(folder);
}

const char *dlc_files_limit(char text[DLC_FILES_TEXT]) {
    struct rlimit files;
    text[0] = '\0';
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        (void)snprintf(text, DLC_FILES_TEXT,
                       " (this process may have %llu open files: see ulimit -n)",
                       (unsigned long long)files.rlim_cur);
    return text;
}

const char *dlc_files_reason(int error, char text[DLC_FILES_TEXT]) {
    text[0] = '\0';
    return error == EMFILE ? dlc_files_limit(text) : text;
}

/* ---- Another process ----------------------------------------------------------- */

char dlc_process_state_at(const char *path) {
    char line[256];
    /* The name is in parentheses and may contain anything, parentheses too. */
    const char *end = dlc_read_text(path, line, sizeof line) ? strrchr(line, ')')
                                                             : NULL;
    return end && end[1] == ' ' && end[2] ? end[2] : '?';
}

dlc_process_threads dlc_process_threads_read(pid_t pid) {
    char path[320], line[128];
    dlc_process_threads found = {.busy_ns = 0};
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (!threads)
        return found;
    for (const struct dirent *entry; (entry = readdir(threads));) {
        uint64_t ran, waited;
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid,
                       entry->d_name);
        if (dlc_read_text(path, line, sizeof line) &&
            sscanf(line, "%" SCNu64 " %" SCNu64, &ran, &waited) == 2) {
            found.busy_ns += ran + waited;
            if (waited > found.longest_wait)
                found.longest_wait = waited;
        }
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid,
                       entry->d_name);
        found.waits_for_disk |= dlc_process_state_at(path) == 'D';
    }
    closedir(threads);
    return found;
}
