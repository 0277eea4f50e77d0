/* The dlcore command of this build, run as a user would. */
#ifndef TEST_COMMAND_H
#define TEST_COMMAND_H

#include <stddef.h>
#include <sys/types.h>

typedef struct command_result {
    int exit_code; /* 128+n when signal n ended it; -1 when it had to be killed */
    char *out, *err;
} command_result;

/* Runs `dlcore` with the arguments (a NULL-terminated list) in `folder` (NULL: the
 * current one) and waits at most `seconds`. Free the result with command_free. */
command_result command_run(int seconds, const char *folder,
                           const char *const *arguments);
void command_free(command_result *result);

/* Starts it without waiting, with its output in `folder`/out and `folder`/err; the
 * caller ends it and calls command_wait. */
pid_t command_start(const char *folder, const char *const *arguments);
/* Waits at most `seconds`; returns the exit code as in command_result. */
int command_wait(pid_t pid, int seconds);

#define COMMAND(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
