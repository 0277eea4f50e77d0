/* Tests what the command writes to stdout and stderr: control characters are escaped,
 * characters survive being written in parts, and a write that fails is reported. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "streams.h"
#include "support/scratch.h"
#include "support/test.h"

static char shown[4096];

/* Writes the parts, one at a time, in a child whose stdout is `out`; its stderr is put
 * into `shown`. Returns its exit code. */
static int write_in_child(int out, const char *const *parts, int exit_code) {
    int pipes[2], status = 0;
    size_t used = 0;
    ck_assert_int_eq(pipe(pipes), 0);
    (void)fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (dup2(out >= 0 ? out : pipes[1], STDOUT_FILENO) < 0 ||
            dup2(pipes[1], STDERR_FILENO) < 0)
            _exit(99);
        close(pipes[0]);
        close(pipes[1]);
        dlc_tool_guard_streams();
        for (; *parts; parts++) {
            fputs(*parts, stdout);
            (void)fflush(stdout);
        }
        exit(exit_code); // NOLINT(concurrency-mt-unsafe)
    }
    close(pipes[1]);
    for (ssize_t got;
         (got = read(pipes[0], shown + used, sizeof shown - 1 - used)) > 0;)
        used += (size_t)got;
    shown[used] = '\0';
    close(pipes[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const struct {
    const char *parts[4], *shown;
} cases[] = {
    {{"plain\tand\nlines\n"}, "plain\tand\nlines\n"},
    {{"a\x1b[31mb\r"}, "a\\x1b[31mb\\r"},
    {{"\xc3\xa9", "\xc3", "\xa9"}, "\xc3\xa9\xc3\xa9"},
    {{"\xf0\x9f", "\x98", "\x80!"}, "\xf0\x9f\x98\x80!"},
    {{"a\xc3"}, "a\\xc3"},                       /* no second half */
    {{"\xf0\x9f\x98", "x"}, "\\xf0\\x9f\\x98x"}, /* nor the last quarter */
};

TEST_EACH(characters_are_whole_or_escaped, COUNT(cases)) {
    ck_assert_int_eq(write_in_child(-1, cases[_i].parts, 0), 0);
    ck_assert_str_eq(shown, cases[_i].shown);
}

/* Longer than what is escaped at a time, with characters across its pieces. */
TEST(long_lines) {
    char text[2002];
    const char *const parts[] = {text, NULL};
    text[0] = 'x';
    for (size_t i = 1; i + 1 < sizeof text - 1; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    text[sizeof text - 1] = '\0';
    ck_assert_int_eq(write_in_child(-1, parts, 0), 0);
    ck_assert_str_eq(shown, text);
}

TEST(a_full_disk_is_reported) {
    static const char *const parts[] = {"result\n", NULL}, *const nothing[] = {NULL};
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(full, 0);
    ck_assert_int_eq(write_in_child(full, parts, 0), 1);
    ck_contains(shown, "stdout could not be written: No space left on device");
    ck_assert_int_eq(write_in_child(full, parts, 5), 5); /* failed anyway */
    ck_assert_str_eq(shown, "");
    ck_assert_int_eq(write_in_child(full, nothing, 0), 0);
    close(full);
}

/* What plugins print goes to stderr, by stdio or by descriptor; results stay whole. */
TEST(stdout_is_reserved) {
    char out[] = "/tmp/out-XXXXXX", err[] = "/tmp/err-XXXXXX", text[256] = "";
    int files[] = {mkstemp(out), mkstemp(err)}, status = 0;
    (void)fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (dup2(files[0], STDOUT_FILENO) < 0 || dup2(files[1], STDERR_FILENO) < 0)
            _exit(99);
        dlc_tool_guard_streams();
        fputs("before\n", dlc_tool_out());
        dlc_tool_reserve_stdout();
        dlc_tool_reserve_stdout();
        printf("by stdio\n");
        (void)!write(STDOUT_FILENO, "by number\n", 10);
        fputs("result\n", dlc_tool_out());
        exit(0); // NOLINT(concurrency-mt-unsafe)
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_ge(pread(files[0], text, sizeof text - 1, 0), 0);
    ck_assert_str_eq(text, "before\nresult\n");
    memset(text, 0, sizeof text);
    ck_assert_int_ge(pread(files[1], text, sizeof text - 1, 0), 0);
    ck_assert_str_eq(text, "by stdio\nby number\n");
    for (int i = 0; i < 2; i++) {
        close(files[i]);
        unlink(i ? err : out);
    }
}
