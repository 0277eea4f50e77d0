/* Tests lists of hosts, the message that tells a host what to start, and what comes
 * back from there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "job/launch/hosts.h"
#include "job/launch/remote.h"
#include "support/test.h"

/* ---- Lists ----------------------------------------------------------------------- */

/* "name ranks, ..." */
static void write_hosts(const dlc_hosts *hosts, char *text, size_t room) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < hosts->count; i++)
        length += (size_t)snprintf(text + length, room - length, "%s%s %d",
                                   i ? ", " : "", hosts->list[i].name,
                                   hosts->list[i].ranks);
}

static const struct {
    const char *text, *means;
    int ranks;
} right[] = {
    {"a", "a 1", 1},
    {"a:4,b:4", "a 4, b 4", 8},
    {"me@a.example:2,b", "me@a.example 2, b 1", 3},
    {"10.0.0.1:1024", "10.0.0.1 1024", 1024},
    {"[fd88::1]:3,[fd88::2]", "fd88::1 3, fd88::2 1", 4},
    {"fd88::1", "fd88::1 1", 1},
    {"node-1,node-10", "node-1 1, node-10 1", 2},
    {"node-10,node-1,node", "node-10 1, node-1 1, node 1", 3},
    {"ab:2,a:3,abc", "ab 2, a 3, abc 1", 6},
    {"[fd88::1]:1023,[fd88::11]", "fd88::1 1023, fd88::11 1", 1024},
    {"node-10,node-1,node-10:2", "node-10 3, node-1 1", 4},
    {"a,ab,a", "a 2, ab 1", 3},
    {"a,b,b:2", "a 1, b 3", 4},
    {"[::1],::1", "::1 2", 2},
};

TEST_EACH(lists, COUNT(right)) {
    dlc_hosts hosts;
    char text[256];
    ck_assert_int_eq(dlc_hosts_parse(right[_i].text, &hosts), DLC_OK);
    write_hosts(&hosts, text, sizeof text);
    ck_assert_str_eq(text, right[_i].means);
    ck_assert_int_eq(hosts.ranks, right[_i].ranks);
    dlc_hosts_free(&hosts);
}

static const char *const wrong[] = {
    "",     "a:0",  "a:-1",   "a:1025", "a:1,b:1024", "a:1,a:1024",    "a:",
    "a: 1", "a:2x", "a: b",   ":1",     "a:1023,b,c", "a:512,b,a:512", "a b",
    "-p1",  "[::1", "[::1]x", "[]:1",   "a,",         "a:99999999999"};

TEST_EACH(wrong_lists, COUNT(wrong)) {
    dlc_hosts hosts = {.count = 77};
    dlc_status status = dlc_hosts_parse(wrong[_i], &hosts);
    ck_assert_msg(status == DLC_ERR_CONFIG && hosts.count == 77, "%s", wrong[_i]);
}

/* ---- Files -------------------------------------------------------------------------
 */

static const struct {
    const char *lines, *means; /* NULL: refused, and `says` is why */
    const char *says;
} files[] = {
    {"a\nb:4\n", "a 1, b 4", NULL},
    {"a\na\n\nb\na\nb\n", "a 3, b 2", NULL}, /* PBS_NODEFILE */
    {"a 4\nb\t2 # here\n# all\n", "a 4, b 2", NULL},
    {"a slots=4 max_slots=8\nb  slots=2\n", "a 4, b 2", NULL},
    {"a 4 all.q@a UNDEFINED\nb 2 all.q@b <NULL>\n", "a 4, b 2", NULL},
    {"[fd88::1] slots=3\nfd88::2 2\n[fd88::1]:1\n", "fd88::1 4, fd88::2 2", NULL},
    {"a:4 4\n", NULL, "line 1: 'a:4': the number of ranks is given twice"},
    {"a\nb 0\n", NULL, "line 2: 'b': a job has 1 to 1024 ranks"},
    {"a 99999999999\n", NULL, "line 1: 'a': a job has"},
    {"a four\n", NULL, "line 1: 'four': after the host may follow"},
    {"a slots=\n", NULL, "line 1: 'a': a job has"},
    {"a slots=2 b\n", NULL, "line 1: 'b': after slots=RANKS"},
    {"# nothing\n", NULL, "names no host"},
    {"", NULL, "names no host"},
    {"a\nab slots=2\n\n# c\nabc:3 # of them\n", "a 1, ab 2, abc 3", NULL},
    {"\tb slots=1024\r\n", "b 1024", NULL},
    {"a slots=0\n", NULL, "line 1: 'a': a job has"},
    {"a slots=1025\n", NULL, "line 1: 'a': a job has"},
    {"a slots=1024\nb\n", NULL, "line 2: 'b': a job has"},
    {"a slots=2x\n", NULL, "line 1: 'a': a job has"},
    {"a cores=2\n", NULL, "line 1: 'cores=2': after the host"},
};

TEST_EACH(host_files, COUNT(files)) {
    dlc_hosts hosts = {.count = 77};
    char text[256], path[] = "/tmp/hosts-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    size_t length = strlen(files[_i].lines);
    ck_assert_int_eq(write(fd, files[_i].lines, length), (ssize_t)length);
    close(fd);
    dlc_status status = dlc_hosts_read(path, &hosts);
    unlink(path);
    if (files[_i].says) {
        ck_assert_int_eq(status, DLC_ERR_CONFIG);
        ck_assert_int_eq(hosts.count, 77);
        ck_assert_ptr_nonnull(strstr(dlc_detail(), files[_i].says));
        return;
    }
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    write_hosts(&hosts, text, sizeof text);
    ck_assert_str_eq(text, files[_i].means);
    dlc_hosts_free(&hosts);
}

/* ---- The message to a host ---------------------------------------------------------
 */

static char *environment[] = {"A=1", "B=two\nlines", "C=", NULL};
static char *arguments[] = {"/bin/program", "train", "", "a b", NULL};
static const dlc_remote_start start = {.folder = "/some where",
                                       .first = 3,
                                       .local_ranks = 2,
                                       .ranks = 8,
                                       .environment = environment,
                                       .arguments = arguments};

/* Reads the first `length` bytes of a message. */
static dlc_status read_back(const char *bytes, size_t length, dlc_remote_start *read) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], bytes, length), (ssize_t)length);
    close(ends[1]);
    dlc_status status = dlc_remote_start_read(ends[0], read);
    close(ends[0]);
    return status;
}

static void check_lists(char **a, char **b) {
    for (; *a && *b; a++, b++)
        ck_assert_str_eq(*a, *b);
    ck_assert(!*a && !*b);
}

TEST(message) {
    dlc_text text = {0};
    dlc_remote_start read;
    dlc_remote_start_write(&start, &text);
    ck_assert_int_eq(read_back(text.bytes, text.length, &read), DLC_OK);
    ck_assert_str_eq(read.folder, start.folder);
    ck_assert_int_eq(read.first, 3);
    ck_assert_int_eq(read.local_ranks, 2);
    ck_assert_int_eq(read.ranks, 8);
    check_lists(read.environment, environment);
    check_lists(read.arguments, arguments);
    dlc_remote_start_free(&read);

    /* Cut off anywhere, it is refused; what was read is freed. */
    for (size_t length = 0; length < text.length; length++)
        ck_assert_int_eq(read_back(text.bytes, length, &read), DLC_ERR_PEER);
    /* With any byte changed it is refused or read, and nothing is lost. */
    for (size_t at = 0; at < text.length; at++) {
        text.bytes[at] ^= 1;
        if (read_back(text.bytes, text.length, &read) == DLC_OK)
            dlc_remote_start_free(&read);
        text.bytes[at] ^= 1;
    }
    dlc_text_free(&text);
}

/* ---- Output ---------------------------------------------------------------------- */

static const struct {
    const char *printed, *passed_on;
    int has_started;
} outputs[] = {
    {DLC_REMOTE_STARTED "result\n", "result\n", 1},
    {"welcome\n" DLC_REMOTE_STARTED, "welcome\n", 1},
    {"\1dlcore \1\1dlcore node\nend", "\1dlcore \1end", 1},
    {DLC_REMOTE_STARTED DLC_REMOTE_STARTED, DLC_REMOTE_STARTED, 1}, /* a job's own */
    {"dlcore node\n", "dlcore node\n", 0},
    {"", "", 0},
};

/* Passes on what the launcher has printed, all at once or byte by byte. */
static int pass_on(const char *printed, size_t at_once) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    dlc_remote_output output = {.fd = ends[0]};
    for (size_t left = strlen(printed), part; left; left -= part, printed += part) {
        part = left < at_once ? left : at_once;
        ck_assert_int_eq(write(ends[1], printed, part), (ssize_t)part);
        ck_assert_int_eq(dlc_remote_output_pass_on(&output), 1);
    }
    close(ends[1]);
    ck_assert_int_eq(dlc_remote_output_pass_on(&output), 0);
    ck_assert_int_eq(output.fd, -1);
    return dlc_remote_output_has_started(&output);
}

TEST_EACH(output, COUNT(outputs)) {
    for (size_t at_once = 1; at_once <= 1000; at_once += 999) {
        char passed[64] = "";
        int ends[2], kept = dup(STDOUT_FILENO);
        ck_assert_int_eq(pipe(ends), 0);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[1]);
        int has_started = pass_on(outputs[_i].printed, at_once);
        dup2(kept, STDOUT_FILENO);
        close(kept);
        ck_assert_int_eq(read(ends[0], passed, sizeof passed - 1),
                         (ssize_t)strlen(outputs[_i].passed_on));
        close(ends[0]);
        ck_assert_str_eq(passed, outputs[_i].passed_on);
        ck_assert_int_eq(has_started, outputs[_i].has_started);
    }
}
