/* Keeps the working directory, and raises the limit of open files. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

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
