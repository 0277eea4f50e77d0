/* Tests the client of PMI-1 against launchers that answer wrongly, late or not at all.
 * Right answers are those of real ones: tests/job/launchers.sh. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status.h"
#include "job/launch/pmi.h"
#include "support/test.h"

/* What a launcher answers to one request after the other; NULL: it hangs up. */
typedef struct launcher {
    int fd;
    const char *const *answers;
    char seen[1024]; /* all requests */
} launcher;

static void read_request(launcher *self, size_t *length) {
    while (*length + 1 < sizeof self->seen &&
           read(self->fd, self->seen + *length, 1) == 1)
        if (self->seen[(*length)++] == '\n')
            return;
}

static void *answer(void *context) {
    launcher *self = context;
    size_t length = 0;
    for (const char *const *next = self->answers; *next; next++) {
        read_request(self, &length);
        size_t bytes = strlen(*next);
        ck_assert_int_eq(write(self->fd, *next, bytes), (ssize_t)bytes);
    }
    read_request(self, &length);
    close(self->fd);
    return NULL;
}

/* Joins, publishes and reads a text, and leaves. */
static dlc_status take_part(dlc_pmi *pmi, char *text, size_t room) {
    char *value = NULL;
    DLC_TRY(dlc_pmi_open(0.3, pmi));
    DLC_TRY(dlc_pmi_put(pmi, "dlcore.hub", "secret,[::1]:1"));
    DLC_TRY(dlc_pmi_barrier(pmi));
    DLC_TRY(dlc_pmi_get(pmi, "dlcore.hub", &value));
    (void)snprintf(text, room, "%s", value);
    return dlc_pmi_finalize(pmi);
}

static dlc_status run(launcher *self, const char *const *answers, char *text,
                      size_t room) {
    int pair[2];
    char number[16];
    pthread_t thread;
    dlc_pmi pmi;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    *self = (launcher){.fd = pair[0], .answers = answers};
    (void)snprintf(number, sizeof number, "%d", pair[1]);
    setenv("PMI_FD", number, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, answer, self), 0);
    dlc_status status = take_part(&pmi, text, room);
    dlc_pmi_close(&pmi);
    pthread_join(thread, NULL);
    return status;
}

#define INIT "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define SPACE "cmd=my_kvsname kvsname=kvs_7_0\n"
#define PUT "cmd=put_result rc=0 msg=success\n"
#define BARRIER "cmd=barrier_out\n"

TEST(right_answers) {
    static const char *const answers[] = {
        INIT,
        SPACE,
        PUT,
        BARRIER,
        "cmd=get_result rc=0 msg=success value=a=b,c\n",
        "cmd=finalize_ack\n",
        NULL};
    launcher self;
    char text[64] = "";
    setenv("PMI_RANK", "0", 1);
    ck_assert_int_eq(run(&self, answers, text, sizeof text), DLC_OK);
    ck_assert_str_eq(text, "a=b,c");
    ck_assert_str_eq(self.seen,
                     "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_my_kvsname\n"
                     "cmd=put kvsname=kvs_7_0 key=dlcore.hub value=secret,[::1]:1\n"
                     "cmd=barrier_in\ncmd=get kvsname=kvs_7_0 key=dlcore.hub\n"
                     "cmd=finalize\n");
    /* No library in this process joins a second time. */
    ck_assert_ptr_null(getenv("PMI_FD"));
    ck_assert_ptr_null(getenv("PMI_RANK"));
}

static char long_line[2 * DLC_PMI_LINE_MAX];

static const struct {
    const char *answers[6];
    const char *says;
} wrong[] = {
    {{NULL}, "closed the connection"},
    {{"\n", NULL}, "not the one expected"},
    {{"cmd=response_to_initx rc=0\n", NULL}, "not the one expected"},
    {{"cmd=response_to_init rc=-1 pmi_version=9\n", NULL}, "refuses a request"},
    {{"cmd=response_to_init", NULL}, "within 0.3 s"},
    {{INIT, "cmd=my_kvsname rc=0\n", NULL}, "no key-value space"},
    {{INIT, "cmd=my_kvsname kvsnam=x\n", NULL}, "no key-value space"},
    {{INIT, long_line, NULL}, "too long"},
    {{INIT, SPACE, "cmd=put_result rc=-1 msg=key_too_long\n", NULL}, "key_too_long"},
    {{INIT, SPACE, PUT, NULL}, "closed the connection"},
    {{INIT, SPACE, PUT, BARRIER, "cmd=get_result rc=0 msg=success\n", NULL},
     "no text of rank 0"},
};

TEST_EACH(wrong_answers, COUNT(wrong)) {
    launcher self;
    char text[64] = "";
    memset(long_line, 'x', sizeof long_line - 1);
    ck_assert_int_ne(run(&self, wrong[_i].answers, text, sizeof text), DLC_OK);
    ck_assert_msg(strstr(dlc_detail(), wrong[_i].says), "%s", dlc_detail());
}
