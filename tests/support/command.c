/* Runs the dlcore command as a child process, with its output in files. */
#include "support/command.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 64 };

static void redirect(const char *path, int to) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(126);
    close(fd);
}

static pid_t start(const char *folder, const char *const *arguments, const char *out,
                   const char *err) {
    const char *binary = getenv("DLCORE_BIN");
    ck_assert_msg(binary != NULL, "DLCORE_BIN is not set: run the tests with ctest");
    char *argv[ARGUMENTS_MAX] = {strdup("dlcore")};
    for (int i = 0; arguments[i] && i + 2 < ARGUMENTS_MAX; i++)
        argv[i + 1] = strdup(arguments[i]);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (folder && chdir(folder) != 0)
            _exit(126);
        redirect(out, STDOUT_FILENO);
        redirect(err, STDERR_FILENO);
        execv(binary, argv);
        _exit(127);
    }
    for (int i = 0; argv[i]; i++)
        free(argv[i]);
    return pid;
}

pid_t command_start(const char *folder, const char *const *arguments) {
    return start(folder, arguments, "out", "err");
}

int command_wait(pid_t pid, int seconds) {
    const struct timespec pause = {.tv_nsec = 2000000};
    int status = 0;
    for (int64_t tries = (int64_t)seconds * 500; tries > 0; tries--) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        ck_assert_int_eq(ended, 0);
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

static char *read_whole(const char *path) {
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    size_t room = 1 << 20, length = 0;
    char *text = calloc(1, room);
    ck_assert_ptr_nonnull(text);
    length = fread(text, 1, room - 1, file);
    text[length] = '\0';
    fclose(file);
    unlink(path);
    return text;
}

command_result command_run(int seconds, const char *folder,
                           const char *const *arguments) {
    char out[64], err[64];
    snprintf(out, sizeof out, "/tmp/dlcore-test-%d.out", (int)getpid());
    snprintf(err, sizeof err, "/tmp/dlcore-test-%d.err", (int)getpid());
    pid_t pid = start(folder, arguments, out, err);
    command_result result = {.exit_code = command_wait(pid, seconds)};
    result.out = read_whole(out);
    result.err = read_whole(err);
    return result;
}

void command_free(command_result *result) {
    free(result->out);
    free(result->err);
}
