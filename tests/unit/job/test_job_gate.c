/* The handshake, and what comes to the hub's door besides agents: garbage, silence,
 * floods, and people who know much but not the secret. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "job/address.h"
#include "job/frame.h"
#include "job/gate.h"
#include "session.h"

static const dlc_secret no_secret;

static dlc_secret secret_of(const char *text) {
    dlc_secret secret = {.length = strlen(text)};
    memcpy(secret.bytes, text, secret.length);
    return secret;
}

/* ---- Proofs ------------------------------------------------------------------ */

/* RFC 4231, test case 2, would need a bare HMAC; here it is that parts cannot be
 * confused, and that all of them count. */
START_TEST(parts_are_kept_apart) {
    dlc_secret secret = secret_of("a secret that is long");
    unsigned char a[DLC_PROOF_BYTES], b[DLC_PROOF_BYTES], c[DLC_PROOF_BYTES];
    dlc_part one[] = {{"ab", 2}, {"c", 1}}, other[] = {{"a", 1}, {"bc", 2}};
    ck_assert_int_eq(dlc_secret_prove(&secret, one, 2, a), DLC_OK);
    ck_assert_int_eq(dlc_secret_prove(&secret, other, 2, b), DLC_OK);
    ck_assert_int_eq(dlc_secret_prove(&secret, one, 2, c), DLC_OK);
    ck_assert(dlc_proofs_equal(a, c));
    ck_assert(!dlc_proofs_equal(a, b));
    secret.bytes[0] ^= 1;
    ck_assert_int_eq(dlc_secret_prove(&secret, one, 2, c), DLC_OK);
    ck_assert(!dlc_proofs_equal(a, c));
}
END_TEST

/* Any bit of what was agreed on, turned on its way, is noticed by one side or the
 * other. */
START_TEST(every_bit_counts) {
    dlc_secret secret = secret_of("a secret that is long");
    dlc_challenge challenge;
    dlc_hello hello = {.rank = 1, .ranks = 2, .pid = 77, .digest = 5, .version = "1"};
    dlc_welcome welcome = {.verdict = DLC_JOIN_WELCOME};
    ck_assert_int_eq(dlc_challenge_make(&secret, &challenge), DLC_OK);
    ck_assert_int_eq(dlc_hello_make(&secret, &challenge, &hello), DLC_OK);
    ck_assert(dlc_hello_is_right(&secret, &challenge, &hello));
    ck_assert_int_eq(dlc_welcome_make(&secret, &challenge, &hello, &welcome), DLC_OK);
    ck_assert(dlc_welcome_is_right(&secret, &challenge, &hello, &welcome));
    for (size_t bit = 0; bit < 8 * sizeof challenge; bit++) {
        dlc_challenge turned = challenge;
        ((unsigned char *)&turned)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert(!dlc_hello_is_right(&secret, &turned, &hello));
        ck_assert(!dlc_welcome_is_right(&secret, &turned, &hello, &welcome));
    }
    for (size_t bit = 0; bit < 8 * sizeof hello; bit++) {
        dlc_hello turned = hello;
        ((unsigned char *)&turned)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert(!dlc_hello_is_right(&secret, &challenge, &turned));
    }
    for (size_t bit = 0; bit < 8 * sizeof welcome; bit++) {
        dlc_welcome turned = welcome;
        ((unsigned char *)&turned)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert(!dlc_welcome_is_right(&secret, &challenge, &hello, &turned));
    }
}
END_TEST

/* What one side says proves nothing when it is sent back, or sent again. */
START_TEST(no_reflection_no_replay) {
    dlc_secret secret = secret_of("a secret that is long");
    dlc_challenge first, second;
    dlc_hello hello = {.rank = 1, .ranks = 2};
    dlc_welcome welcome = {.verdict = DLC_JOIN_WELCOME};
    ck_assert_int_eq(dlc_challenge_make(&secret, &first), DLC_OK);
    ck_assert_int_eq(dlc_challenge_make(&secret, &second), DLC_OK);
    ck_assert(memcmp(first.nonce, second.nonce, sizeof first.nonce) != 0);
    ck_assert_int_eq(dlc_hello_make(&secret, &first, &hello), DLC_OK);
    ck_assert(!dlc_hello_is_right(&secret, &second, &hello));
    memcpy(welcome.proof, hello.proof, sizeof welcome.proof);
    memcpy(welcome.magic, hello.magic, sizeof welcome.magic);
    ck_assert(!dlc_welcome_is_right(&secret, &first, &hello, &welcome));
    /* Who doesn't know the secret gets no proof to learn from. */
    unsigned char zeros[DLC_PROOF_BYTES] = {0};
    welcome.verdict = DLC_JOIN_SECRET;
    ck_assert_int_eq(dlc_welcome_make(&secret, &first, &hello, &welcome), DLC_OK);
    ck_assert_mem_eq(welcome.proof, zeros, sizeof zeros);
}
END_TEST

START_TEST(secrets_are_random) {
    dlc_secret a, b;
    ck_assert_int_eq(dlc_secret_make(&a), DLC_OK);
    ck_assert_int_eq(dlc_secret_make(&b), DLC_OK);
    ck_assert_uint_eq(a.length, 64);
    ck_assert(memcmp(a.bytes, b.bytes, a.length) != 0);
}
END_TEST

/* ---- A gate, driven here ----------------------------------------------------- */

typedef struct door {
    dlc_gate gate;
    dlc_address address;
    dlc_secret secret;
    int judged, entered, fd;
} door;

static dlc_join_verdict judge(void *context, const dlc_hello *hello,
                              dlc_welcome *welcome) {
    door *d = context;
    (void)welcome;
    d->judged++;
    return hello->rank == 1 ? DLC_JOIN_WELCOME : DLC_JOIN_RANKS;
}

static void enter(void *context, const dlc_hello *hello, int fd) {
    door *d = context;
    ck_assert_uint_eq(hello->rank, 1);
    if (d->entered++)
        close(d->fd);
    d->fd = fd;
}

static void door_open(door *d, const dlc_secret *secret) {
    dlc_address list[DLC_ADDRESSES_MAX];
    int count, listener;
    memset(d, 0, sizeof *d);
    d->secret = *secret;
    ck_assert_int_eq(dlc_address_find("127.0.0.1", 0, list, &count), DLC_OK);
    ck_assert_int_eq(dlc_address_listen("x", list, count, &listener, &d->address),
                     DLC_OK);
    dlc_gate_open(&d->gate, listener, &d->secret);
    d->gate.judge = judge;
    d->gate.enter = enter;
    d->gate.context = d;
}

static void door_close(door *d) {
    if (d->entered)
        close(d->fd);
    dlc_gate_close(&d->gate);
}

/* Some turns, as the hub takes them; fails if one of them takes long. */
static void door_turn(door *d, int times) {
    for (int i = 0; i < times; i++) {
        struct pollfd polled[DLC_GATE_POLLED];
        dlc_gate_poll_set(&d->gate, polled);
        ck_assert_int_ge(poll(polled, DLC_GATE_POLLED, 5), 0);
        uint64_t start = dlc_now_ns();
        dlc_gate_turn(&d->gate, polled);
        if (!session_is_slow())
            ck_assert_double_lt(dlc_since(start), 2);
    }
}

static int pending(const door *d) {
    int count = 0;
    for (int i = 0; i < DLC_GATE_PENDING; i++)
        count += d->gate.pending[i].fd >= 0;
    return count;
}

static int knock(const door *d) {
    int fd = dlc_address_connect(&d->address, 1000);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Reads exactly that much, or 0 if the other side hangs up before. */
static int read_all(door *d, int fd, void *to, size_t length) {
    size_t got = 0;
    for (int i = 0; got < length && i < 2000; i++) {
        door_turn(d, 1);
        ssize_t done = recv(fd, (char *)to + got, length - got, MSG_DONTWAIT);
        if (done == 0 || (done < 0 && errno != EAGAIN))
            return 0;
        got += done > 0 ? (size_t)done : 0;
    }
    return got == length;
}

/* The whole of an agent's side; -1 where the gate hangs up. */
static int join(door *d, const dlc_secret *secret, uint32_t rank) {
    dlc_challenge challenge;
    dlc_hello hello = {.rank = rank, .ranks = 2};
    dlc_welcome welcome;
    int fd = knock(d), verdict = -1;
    if (read_all(d, fd, &challenge, sizeof challenge) &&
        dlc_hello_make(secret, &challenge, &hello) == DLC_OK &&
        send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello &&
        read_all(d, fd, &welcome, sizeof welcome)) {
        verdict = (int)welcome.verdict;
        if (welcome.verdict != DLC_JOIN_SECRET)
            ck_assert(dlc_welcome_is_right(secret, &challenge, &hello, &welcome));
    }
    close(fd);
    return verdict;
}

START_TEST(joining) {
    dlc_secret secret = secret_of("a secret that is long");
    dlc_secret wrong = secret_of("a secret that is wrong");
    door d;
    door_open(&d, _i ? &secret : &no_secret);
    ck_assert_int_eq(join(&d, &d.secret, 1), DLC_JOIN_WELCOME);
    ck_assert_int_eq(join(&d, &d.secret, 0), DLC_JOIN_RANKS);
    ck_assert_int_eq(d.judged, 2);
    ck_assert_int_eq(d.entered, 1);
    if (_i) {
        ck_assert_int_eq(join(&d, &wrong, 1), DLC_JOIN_SECRET);
        ck_assert_int_eq(join(&d, &no_secret, 1), DLC_JOIN_SECRET);
        ck_assert_int_eq(d.judged, 2); /* nobody was asked about them */
    }
    ck_assert_int_eq(pending(&d), 0);
    door_close(&d);
}
END_TEST

/* Blocking, in a process of its own: the verdict. */
static int join_as(const door *d, uid_t user) {
    dlc_challenge challenge;
    dlc_hello hello = {.rank = 1, .ranks = 2};
    dlc_welcome welcome;
    struct pollfd polled = {.events = POLLIN};
    if (setuid(user))
        return 90;
    polled.fd = dlc_address_connect(&d->address, 1000);
    if (poll(&polled, 1, 5000) != 1 ||
        recv(polled.fd, &challenge, sizeof challenge, 0) != (ssize_t)sizeof challenge ||
        dlc_hello_make(&d->secret, &challenge, &hello) != DLC_OK ||
        send(polled.fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello ||
        poll(&polled, 1, 5000) != 1 ||
        recv(polled.fd, &welcome, sizeof welcome, 0) != (ssize_t)sizeof welcome)
        return 91;
    return (int)welcome.verdict;
}

/* Without a secret another user is not let in; with it he is. */
START_TEST(other_users) {
    dlc_secret secret = secret_of("a secret that is long");
    door d;
    int status = 0;
    if (geteuid() != 0)
        return; /* nobody to be but oneself */
    door_open(&d, _i ? &secret : &no_secret);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid)
        _exit(join_as(&d, 65534));
    while (waitpid(pid, &status, WNOHANG) == 0)
        door_turn(&d, 1);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), _i ? DLC_JOIN_WELCOME : DLC_JOIN_SECRET);
    ck_assert_int_eq(d.entered, _i);
    door_close(&d);
}
END_TEST

/* What others on a network send to any port that they find. */
static const char *const garbage[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                      "\n",
                                      "",
                                      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                                      "dlc-job",
                                      "dlc-joc\n and more of the like"};

START_TEST(garbage_is_dropped) {
    door d;
    door_open(&d, &no_secret);
    int fd = knock(&d);
    size_t length = strlen(garbage[_i]);
    ck_assert_int_eq(send(fd, garbage[_i], length, MSG_NOSIGNAL), (ssize_t)length);
    door_turn(&d, 20);
    shutdown(fd, SHUT_WR);
    door_turn(&d, 20);
    ck_assert_int_eq(pending(&d), 0);
    ck_assert_int_eq(join(&d, &no_secret, 1), DLC_JOIN_WELCOME);
    close(fd);
    door_close(&d);
}
END_TEST

/* More than a hello: not read before there is a verdict, and then not at all. */
START_TEST(too_much) {
    static char flood[1 << 20];
    door d;
    door_open(&d, &no_secret);
    int fd = knock(&d);
    dlc_challenge challenge;
    dlc_hello hello = {.rank = 5, .ranks = 2};
    ck_assert(read_all(&d, fd, &challenge, sizeof challenge));
    ck_assert_int_eq(dlc_hello_make(&no_secret, &challenge, &hello), DLC_OK);
    memcpy(flood, &hello, sizeof hello);
    for (int i = 0; i < 50; i++) {
        (void)!send(fd, flood, sizeof flood, MSG_NOSIGNAL | MSG_DONTWAIT);
        door_turn(&d, 1);
    }
    ck_assert_int_eq(d.judged, 1);
    ck_assert_int_eq(pending(&d), 0);
    ck_assert_int_eq(join(&d, &no_secret, 1), DLC_JOIN_WELCOME);
    close(fd);
    door_close(&d);
}
END_TEST

/* A byte now and then: five seconds, whatever comes. */
START_TEST(slow_ones_run_out_of_time) {
    door d;
    door_open(&d, &no_secret);
    int silent = knock(&d), slow = knock(&d);
    dlc_hello hello;
    memset(&hello, 0, sizeof hello);
    memcpy(hello.magic, "dlc-job\n", 8);
    uint64_t start = dlc_now_ns();
    for (size_t i = 0; pending(&d) || i < 5; i++) {
        if (i < sizeof hello)
            (void)!send(slow, (char *)&hello + i, 1, MSG_NOSIGNAL);
        door_turn(&d, 20);
        ck_assert_double_lt(dlc_since(start), 25);
    }
    ck_assert_double_ge(dlc_since(start), 4.9);
    close(silent);
    close(slow);
    door_close(&d);
}
END_TEST

/* So many that nobody else would get a place if they kept theirs. */
START_TEST(floods_don_t_keep_others_out) {
    enum { FLOOD = 400 };
    int fd[FLOOD];
    door d;
    door_open(&d, &no_secret);
    for (int i = 0; i < FLOOD; i++) {
        fd[i] = knock(&d);
        if (i % 10 == 0)
            door_turn(&d, 1);
        ck_assert_int_le(pending(&d), DLC_GATE_PENDING);
    }
    ck_assert_int_eq(join(&d, &no_secret, 1), DLC_JOIN_WELCOME);
    for (int i = 0; i < FLOOD; i++)
        close(fd[i]);
    door_turn(&d, 50);
    ck_assert_int_eq(pending(&d), 0);
    door_close(&d);
}
END_TEST

/* No descriptor left for who comes: those that wait make room. */
START_TEST(out_of_descriptors) {
    struct rlimit limit;
    int fd[40];
    door d;
    door_open(&d, &no_secret);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 40; i++)
        fd[i] = knock(&d);
    rlim_t before = limit.rlim_cur;
    int next = dup(STDERR_FILENO);
    close(next);
    limit.rlim_cur = (rlim_t)next + 20; /* for 20 of the 40 */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    door_turn(&d, 20);
    ck_assert_int_ge(pending(&d), 1);
    ck_assert_int_le(pending(&d), 20);
    limit.rlim_cur = before;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(join(&d, &no_secret, 1), DLC_JOIN_WELCOME);
    for (int i = 0; i < 40; i++)
        close(fd[i]);
    door_close(&d);
}
END_TEST

/* ---- A job with such visitors ------------------------------------------------ */

static int meet_main(dlc_job *job, void *argument) {
    (void)argument;
    board_enter(job);
    for (int i = 0; i < 50; i++)
        if (dlc_job_barrier(job) != DLC_OK)
            return 1;
    return 0;
}

static int visit(int port) {
    dlc_address list[DLC_ADDRESSES_MAX];
    int count;
    ck_assert_int_eq(dlc_address_find("127.0.0.1", (uint16_t)port, list, &count),
                     DLC_OK);
    for (int i = 0; i < 1000; i++) {
        int fd = dlc_address_connect(&list[0], 1000);
        if (fd >= 0)
            return fd;
        usleep(10000);
    }
    return -1;
}

START_TEST(a_job_meets_all_the_same) {
    outside_job job = {.ranks = 3, .port = free_port()};
    int fd[100];
    outside_start_rank(&job, 0, NULL, NULL, meet_main, NULL);
    for (int i = 0; i < 100; i++) {
        fd[i] = visit(job.port);
        ck_assert_int_ge(fd[i], 0);
        const char *text = garbage[i % 6];
        (void)!send(fd[i], text, strlen(text), MSG_NOSIGNAL);
    }
    outside_start_rank(&job, 1, NULL, NULL, meet_main, NULL);
    outside_start_rank(&job, 2, NULL, NULL, meet_main, NULL);
    outside_end(&job, 0);
    for (int i = 0; i < 100; i++)
        close(fd[i]);
    outside_free(&job);
}
END_TEST

/* When all are in, nobody listens any more. */
static int quiet_main(dlc_job *job, void *argument) {
    const int *port = argument;
    dlc_address list[DLC_ADDRESSES_MAX];
    int count;
    if (dlc_job_barrier(job) != DLC_OK ||
        dlc_address_find("127.0.0.1", (uint16_t)*port, list, &count) != DLC_OK)
        return 1;
    usleep(50000);
    int fd = dlc_address_connect(&list[0], 1000);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 2 : dlc_exit_code(dlc_job_barrier(job));
}

START_TEST(the_gate_closes) {
    outside_job job = {.ranks = 2, .port = free_port()};
    outside_start_rank(&job, 0, NULL, NULL, quiet_main, &job.port);
    outside_start_rank(&job, 1, NULL, NULL, quiet_main, &job.port);
    outside_end(&job, 0);
    outside_free(&job);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("gate");
    tcase_add_test(tests, parts_are_kept_apart);
    tcase_add_test(tests, every_bit_counts);
    tcase_add_test(tests, no_reflection_no_replay);
    tcase_add_test(tests, secrets_are_random);
    tcase_add_loop_test(tests, joining, 0, 2);
    tcase_add_loop_test(tests, other_users, 0, 2);
    tcase_add_loop_test(tests, garbage_is_dropped, 0, sizeof garbage / sizeof *garbage);
    tcase_add_test(tests, too_much);
    tcase_add_test(tests, slow_ones_run_out_of_time);
    tcase_add_test(tests, floods_don_t_keep_others_out);
    tcase_add_test(tests, out_of_descriptors);
    tcase_add_test(tests, a_job_meets_all_the_same);
    tcase_add_test(tests, the_gate_closes);
    return run_tests("job: gate", tests);
}
