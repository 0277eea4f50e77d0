/* Tests the output of ranks: whole lines, none lost, no rank blocked. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job_fixture.h"
#include "support/sanitized.h"
#include "support/test.h"

static void write_all(int fd, const char *bytes, size_t length) {
    while (length) {
        ssize_t done = write(fd, bytes, length);
        if (done <= 0)
            return;
        bytes += done;
        length -= (size_t)done;
    }
}

static void line_text(char *text, size_t room, int rank, int number) {
    snprintf(text, room, "%d: line %d%s", rank, number,
             number % 5 ? "" : ", a longer one than the others");
}

/* The newline at the end of `line`. */
static char *find_end(const dlc_text *text, char *line) {
    return memchr(line, '\n', text->length - (size_t)(line - text->bytes));
}

static int lines_main(dlc_job *job, void *argument) {
    const int *lines = argument;
    int rank = dlc_job_rank(job);
    for (int i = 0; i < *lines; i++) {
        char text[128];
        line_text(text, sizeof text, rank, i);
        /* Rank 0's stdout is a pipe here, and fully buffered. */
        fprintf(rank && i % 2 ? stdout : stderr, "%s\n", text);
    }
    return 0;
}

static const struct {
    int ranks, lines;
} line_cases[] = {{2, 100000}, {4, 5000}, {1, 100}, {8, 100}};

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

TEST_EACH(all_lines_whole_and_in_order, COUNT(line_cases)) {
    dlc_text text;
    int ranks = line_cases[_i].ranks, lines = line_cases[_i].lines;
    if (under_valgrind() && lines > 1000)
        lines = 1000;
    int next[8] = {0};
    ck_assert_int_eq(process_run(ranks, lines_main, &lines, &text), 0);
    char *line = text.bytes, *end;
    for (; (end = find_end(&text, line)); line = end + 1) {
        *end = '\0';
        int rank = strncmp(line, "[rank ", 6) ? 0 : atoi(line + 6);
        char expected[128];
        ck_assert_int_lt(rank, ranks);
        line_text(expected, sizeof expected, rank, next[rank]++);
        const char *words = rank ? strchr(line, ']') + 2 : line;
        if (strcmp(words, expected) != 0)
            ck_abort_msg("'%s' is not '%s'", line, expected);
    }
    for (int r = 0; r < ranks; r++)
        ck_assert_int_eq(next[r], lines);
    dlc_text_free(&text);
}

/* ---- Odd lines ------------------------------------------------------------------ */

#define LONG 100000

static int long_main(dlc_job *job, void *argument) {
    (void)argument;
    if (dlc_job_rank(job) == 0)
        return 0;
    char *bytes = malloc(LONG);
    if (!bytes)
        return 1;
    for (int i = 0; i < LONG; i++)
        bytes[i] = (char)('a' + i % 26);
    write_all(STDOUT_FILENO, bytes, LONG); /* without a newline */
    free(bytes);
    return 0;
}

TEST(long_line_in_pieces) {
    dlc_text text;
    ck_assert_int_eq(process_run(2, long_main, NULL, &text), 0);
    int got = 0;
    char *line = text.bytes, *end;
    for (; (end = find_end(&text, line)); line = end + 1) {
        ck_assert(!strncmp(line, "[rank 1] ", 9));
        ck_assert_int_lt(end - line, 4096);
        for (char *c = line + 9; c < end; c++)
            if (*c != 'a' + got++ % 26)
                ck_abort_msg("byte %d is wrong", got - 1);
    }
    ck_assert_int_eq(got, LONG);
    ck_assert_int_eq(text.bytes[text.length - 1], '\n');
    dlc_text_free(&text);
}

static int odd_main(dlc_job *job, void *argument) {
    const char *const *bytes = argument;
    if (dlc_job_rank(job) == 1)
        write_all(STDERR_FILENO, *bytes, strlen(*bytes));
    return 0;
}

static const char *const odd[][2] = {
    {"", ""},
    {"\n", "[rank 1] \n"},
    {"\n\nx", "[rank 1] \n[rank 1] \n[rank 1] x\n"},
    {"no end", "[rank 1] no end\n"},
    {"a\r\nb\n", "[rank 1] a\r\n[rank 1] b\n"},
};

TEST_EACH(odd_lines, COUNT(odd)) {
    dlc_text text;
    const char *bytes = odd[_i][0];
    ck_assert_int_eq(process_run(2, odd_main, &bytes, &text), 0);
    ck_assert_str_eq(dlc_text_string(&text), odd[_i][1]);
    dlc_text_free(&text);
}

/* ---- Last output ----------------------------------------------------------------- */

static int die_main(dlc_job *job, void *argument) {
    (void)argument;
    if (dlc_job_rank(job) == 1) {
        printf("so far\nmy last words\n");
        fputs("and half a li", stderr);
        raise(SIGKILL);
    }
    return dlc_exit_code(dlc_job_barrier(job));
}

TEST(last_output_comes_before_the_report) {
    dlc_text text;
    ck_assert_int_eq(process_run(2, die_main, NULL, &text), 5);
    const char *words = strstr(
        text.bytes,
        "[rank 1] so far\n[rank 1] my last words\n[rank 1] and half a li\n");
    const char *report = strstr(text.bytes, "was killed by signal 9");
    ck_assert_msg(words && report && words < report, "%s", text.bytes);
    dlc_text_free(&text);
}

/* ---- Destinations ------------------------------------------------------------ */

static int streams_main(dlc_job *job, void *argument) {
    (void)argument;
    printf("%d to stdout\n", dlc_job_rank(job));
    fprintf(stderr, "%d to stderr\n", dlc_job_rank(job));
    return 0;
}

static void read_whole(FILE *file, char *text, size_t room) {
    rewind(file);
    size_t length = fread(text, 1, room - 1, file);
    text[length] = '\0';
    fclose(file);
}

/* Only rank 0 writes to stdout: it may be a JSON document. */
TEST(stdout_is_rank_0s) {
    FILE *out = tmpfile(), *err = tmpfile();
    ck_assert(out && err);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        dlc_job_options options = {.ranks = 3};
        int code = 98;
        printf("before\n");
        dlc_status status = dlc_job_run(&options, streams_main, NULL, &code);
        exit(status == DLC_OK ? code : 97);
    }
    char text[1024];
    job_process process = {.pid = pid,
                           .output = open("/dev/null", O_RDONLY | O_CLOEXEC)};
    ck_assert_int_eq(process_wait(&process), 0);
    dlc_text_free(&process.text);
    read_whole(out, text, sizeof text);
    ck_assert_str_eq(text, "before\n0 to stdout\n");
    read_whole(err, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "[rank 1] 1 to stdout\n"));
    ck_assert_ptr_nonnull(strstr(text, "[rank 1] 1 to stderr\n"));
    ck_assert_ptr_nonnull(strstr(text, "[rank 2] 2 to stdout\n"));
    ck_assert_ptr_nonnull(strstr(text, "[rank 2] 2 to stderr\n"));
    ck_assert_ptr_nonnull(strstr(text, "0 to stderr\n"));
}

/* If the output is not read (a paused pager), the abort notice is sent all the same. */
static int flood_main(dlc_job *job, void *argument) {
    (void)argument;
    int rank = dlc_job_rank(job);
    shared_enter(job);
    if (rank == 1)
        for (int i = 0; i < 20000; i++)
            printf("line %d\n", i);
    dlc_status status = DLC_OK;
    while (status == DLC_OK) {
        usleep(1000);
        status = dlc_job_check(job);
    }
    if (rank == 0)
        atomic_store(&shared->count, 1);
    return dlc_exit_code(status);
}

TEST(output_is_not_read) {
    job_process process = process_start(3, flood_main, NULL);
    shared_wait_ranks(3);
    usleep(100000); /* pipes are full now */
    kill(atomic_load(&shared->pid[2]), SIGKILL);
    shared_wait_for(&shared->count, 1);
    ck_assert_int_eq(process_wait(&process), 5);
    ck_assert_ptr_nonnull(strstr(process.text.bytes, "[rank 1] line 0\n"));
    ck_assert_ptr_nonnull(strstr(process.text.bytes, "was killed by signal 9"));
    dlc_text_free(&process.text);
}
