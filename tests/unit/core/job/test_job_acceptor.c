/* Tests the handshake, and what else may connect to the hub besides agents: garbage,
 * silent and slow clients, floods, and clients without the secret. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "job/channel.h"
#include "job/hub/acceptor.h"
#include "job/hub/address.h"
#include "job/hub/agent.h"
#include "job_fixture.h"
#include "support/sanitized.h"
#include "support/test.h"

static const dlc_secret no_secret;

static dlc_secret secret_of(const char *text) {
    dlc_secret secret = {.length = strlen(text)};
    memcpy(secret.bytes, text, secret.length);
    return secret;
}

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

/* ---- Proofs ------------------------------------------------------------------ */

/* Different lists of parts give different proofs, and so do different secrets. (RFC
 * 4231, test case 2, would need a bare HMAC.) */
TEST(parts_are_kept_apart) {
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

/* A flipped bit anywhere in the three messages is detected by one side or the other. */
TEST(every_bit_counts) {
    dlc_secret secret = secret_of("a secret that is long");
    dlc_challenge challenge;
    dlc_hello hello = {.rank = 1, .ranks = 2, .pid = 77, .version = "1"};
    dlc_welcome welcome = {.verdict = DLC_JOIN_WELCOME};
    ck_assert_int_eq(dlc_challenge_make(&secret, &challenge), DLC_OK);
    ck_assert_int_eq(dlc_hello_make(&secret, &challenge, &hello), DLC_OK);
    ck_assert(dlc_hello_is_valid(&secret, &challenge, &hello));
    ck_assert_int_eq(dlc_welcome_make(&secret, &challenge, &hello, &welcome), DLC_OK);
    ck_assert(dlc_welcome_is_valid(&secret, &challenge, &hello, &welcome));
    for (size_t bit = 0; bit < 8 * sizeof challenge; bit++) {
        dlc_challenge turned = challenge;
        ((unsigned char *)&turned)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert(!dlc_hello_is_valid(&secret, &turned, &hello));
        ck_assert(!dlc_welcome_is_valid(&secret, &turned, &hello, &welcome));
    }
    for (size_t bit = 0; bit < 8 * sizeof hello; bit++) {
        dlc_hello turned = hello;
        ((unsigned char *)&turned)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert(!dlc_hello_is_valid(&secret, &challenge, &turned));
    }
    for (size_t bit = 0; bit < 8 * sizeof welcome; bit++) {
        dlc_welcome turned = welcome;
        ((unsigned char *)&turned)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert(!dlc_welcome_is_valid(&secret, &challenge, &hello, &turned));
    }
}

/* A proof is worthless when it is reflected or replayed. */
TEST(no_reflection_no_replay) {
    dlc_secret secret = secret_of("a secret that is long");
    dlc_challenge first, second;
    dlc_hello hello = {.rank = 1, .ranks = 2};
    dlc_welcome welcome = {.verdict = DLC_JOIN_WELCOME};
    ck_assert_int_eq(dlc_challenge_make(&secret, &first), DLC_OK);
    ck_assert_int_eq(dlc_challenge_make(&secret, &second), DLC_OK);
    ck_assert(memcmp(first.nonce, second.nonce, sizeof first.nonce) != 0);
    ck_assert_int_eq(dlc_hello_make(&secret, &first, &hello), DLC_OK);
    ck_assert(!dlc_hello_is_valid(&secret, &second, &hello));
    memcpy(welcome.proof, hello.proof, sizeof welcome.proof);
    memcpy(welcome.magic, hello.magic, sizeof welcome.magic);
    ck_assert(!dlc_welcome_is_valid(&secret, &first, &hello, &welcome));
    /* A client without the secret gets no proof to learn from. */
    unsigned char zeros[DLC_PROOF_BYTES] = {0};
    welcome.verdict = DLC_JOIN_SECRET;
    ck_assert_int_eq(dlc_welcome_make(&secret, &first, &hello, &welcome), DLC_OK);
    ck_assert_mem_eq(welcome.proof, zeros, sizeof zeros);
}

TEST(secrets_are_random) {
    dlc_secret a, b;
    ck_assert_int_eq(dlc_secret_make(&a), DLC_OK);
    ck_assert_int_eq(dlc_secret_make(&b), DLC_OK);
    ck_assert_uint_eq(a.length, 64);
    ck_assert(memcmp(a.bytes, b.bytes, a.length) != 0);
}

/* ---- An acceptor driven by the test ------------------------------------------ */

typedef struct server {
    dlc_acceptor acceptor;
    dlc_address address;
    dlc_secret secret;
    int verified, admitted, fd;
    dlc_join_verdict refusal; /* 0: rank 1 is welcome */
    uint32_t number;          /* that comes with a refusal */
} server;

static dlc_join_verdict verify(void *context, const dlc_hello *hello,
                               dlc_welcome *welcome) {
    server *s = context;
    s->verified++;
    if (s->refusal) {
        welcome->number = s->number;
        snprintf(welcome->text, sizeof welcome->text, "9.9");
        return s->refusal;
    }
    return hello->rank == 1 ? DLC_JOIN_WELCOME : DLC_JOIN_RANKS;
}

static void admit(void *context, const dlc_hello *hello, int fd) {
    server *s = context;
    ck_assert_uint_eq(hello->rank, 1);
    if (s->admitted++)
        close(s->fd);
    s->fd = fd;
}

static void server_open_at(server *s, const dlc_secret *secret, dlc_address *list,
                           int count) {
    int listener;
    memset(s, 0, sizeof *s);
    s->secret = *secret;
    ck_assert_int_eq(dlc_address_listen("x", list, count, &listener, &s->address),
                     DLC_OK);
    dlc_acceptor_open(&s->acceptor, listener, &s->secret);
    s->acceptor.verify = verify;
    s->acceptor.admit = admit;
    s->acceptor.context = s;
}

static void server_open(server *s, const dlc_secret *secret) {
    dlc_address list[DLC_ADDRESSES_MAX];
    int count;
    ck_assert_int_eq(dlc_address_resolve("127.0.0.1", 0, list, &count), DLC_OK);
    server_open_at(s, secret, list, count);
}

static void server_close(server *s) {
    if (s->admitted)
        close(s->fd);
    dlc_acceptor_close(&s->acceptor);
}

/* Handles events as the hub does; fails if that takes long. */
static void server_step(server *s, int times) {
    for (int i = 0; i < times; i++) {
        struct pollfd polled[DLC_ACCEPTOR_POLLED];
        dlc_acceptor_poll_set(&s->acceptor, polled);
        ck_assert_int_ge(poll(polled, DLC_ACCEPTOR_POLLED, 5), 0);
        uint64_t start = dlc_now_ns();
        dlc_acceptor_handle_events(&s->acceptor, polled);
        if (!under_valgrind())
            ck_assert_double_lt(dlc_since(start), 2);
    }
}

static int pending(const server *s) {
    int count = 0;
    for (int i = 0; i < DLC_ACCEPTOR_PENDING; i++)
        count += s->acceptor.pending[i].fd >= 0;
    return count;
}

static int connect_client(const server *s) {
    int fd = dlc_address_connect(&s->address, 1000);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Reads exactly `length` bytes; returns 0 if the other side closes before. */
static int read_all(server *s, int fd, void *to, size_t length) {
    size_t got = 0;
    for (int i = 0; got < length && i < 2000; i++) {
        server_step(s, 1);
        ssize_t done = recv(fd, (char *)to + got, length - got, MSG_DONTWAIT);
        if (done == 0 || (done < 0 && errno != EAGAIN))
            return 0;
        got += done > 0 ? (size_t)done : 0;
    }
    return got == length;
}

/* Does the agent's side of the handshake; returns the verdict, or -1 if the acceptor
 * closes the connection. */
static int join(server *s, const dlc_secret *secret, uint32_t rank) {
    dlc_challenge challenge;
    dlc_hello hello = {.rank = rank, .ranks = 2};
    dlc_welcome welcome;
    int fd = connect_client(s), verdict = -1;
    if (read_all(s, fd, &challenge, sizeof challenge) &&
        dlc_hello_make(secret, &challenge, &hello) == DLC_OK &&
        send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello &&
        read_all(s, fd, &welcome, sizeof welcome)) {
        verdict = (int)welcome.verdict;
        if (welcome.verdict != DLC_JOIN_SECRET)
            ck_assert(dlc_welcome_is_valid(secret, &challenge, &hello, &welcome));
    }
    close(fd);
    return verdict;
}

TEST_EACH(joining, 2) {
    dlc_secret secret = secret_of("a secret that is long");
    dlc_secret wrong = secret_of("a secret that is wrong");
    server s;
    server_open(&s, _i ? &secret : &no_secret);
    ck_assert_int_eq(join(&s, &s.secret, 1), DLC_JOIN_WELCOME);
    ck_assert_int_eq(join(&s, &s.secret, 0), DLC_JOIN_RANKS);
    ck_assert_int_eq(s.verified, 2);
    ck_assert_int_eq(s.admitted, 1);
    if (_i) {
        ck_assert_int_eq(join(&s, &wrong, 1), DLC_JOIN_SECRET);
        ck_assert_int_eq(join(&s, &no_secret, 1), DLC_JOIN_SECRET);
        ck_assert_int_eq(s.verified, 2); /* they are not even looked at */
    }
    ck_assert_int_eq(pending(&s), 0);
    server_close(&s);
}

/* Does the handshake, blocking, in a process of another user; returns the verdict. */
static int join_as(const server *s, uid_t user) {
    dlc_challenge challenge;
    dlc_hello hello = {.rank = 1, .ranks = 2};
    dlc_welcome welcome;
    struct pollfd polled = {.events = POLLIN};
    if (setuid(user))
        return 90;
    polled.fd = dlc_address_connect(&s->address, 1000);
    if (poll(&polled, 1, 5000) != 1 ||
        recv(polled.fd, &challenge, sizeof challenge, 0) != (ssize_t)sizeof challenge ||
        dlc_hello_make(&s->secret, &challenge, &hello) != DLC_OK ||
        send(polled.fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello ||
        poll(&polled, 1, 5000) != 1 ||
        recv(polled.fd, &welcome, sizeof welcome, 0) != (ssize_t)sizeof welcome)
        return 91;
    return (int)welcome.verdict;
}

/* A process of another user is admitted only with the secret. */
TEST_EACH(other_users, 2) {
    dlc_secret secret = secret_of("a secret that is long");
    server s;
    int status = 0;
    if (geteuid() != 0)
        return; /* only root can change its user */
    server_open(&s, _i ? &secret : &no_secret);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid)
        _exit(join_as(&s, 65534));
    while (waitpid(pid, &status, WNOHANG) == 0)
        server_step(&s, 1);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), _i ? DLC_JOIN_WELCOME : DLC_JOIN_SECRET);
    ck_assert_int_eq(s.admitted, _i);
    server_close(&s);
}

/* ---- The agent's side ------------------------------------------------------------ */

/* Runs dlc_connect in a process of its own; returns its exit code, and what it says in
 * `text`. */
static int connect_as_agent(server *s, const dlc_secret *secret, char *text,
                            size_t room) {
    const dlc_connect_args args = {.list = &s->address,
                                   .count = 1,
                                   .secret = secret,
                                   .rank = 1,
                                   .ranks = 2,
                                   .timeout = 5};
    char at[DLC_ADDRESS_TEXT];
    int ends[2], status = 0, fd;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        dlc_status joined = dlc_connect(&args, &fd, at);
        (void)!write(ends[1], dlc_detail(),
                     joined == DLC_OK ? 0 : strlen(dlc_detail()));
        _exit(joined == DLC_OK ? 0 : dlc_exit_code(joined));
    }
    close(ends[1]);
    while (waitpid(pid, &status, WNOHANG) == 0)
        server_step(s, 1);
    ssize_t got = read(ends[0], text, room - 1);
    text[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const struct {
    dlc_join_verdict refusal;
    uint32_t number;
    int code;
    const char *says;
} refusals[] = {
    {DLC_JOIN_WELCOME, 0, 0, ""},
    {DLC_JOIN_VERSION, 0, 2, "rank 0 runs dlcore 9.9, rank 1 runs "},
    {DLC_JOIN_RANKS, 7, 2, "rank 1 expects 2 ranks (WORLD_SIZE), rank 0 expects 7"},
    {DLC_JOIN_TAKEN, 77, 2,
     "rank 1 has been started twice: this process came after pid 77"},
    {DLC_JOIN_OVER, 2, 2, "rank 1 joined too late"},
    {DLC_JOIN_OVER, 1, 5, "rank 1 joined too late"},
    {(dlc_join_verdict)99, 0, 2, "rank 0 refused rank 1 (verdict 99)"},
};

/* The reason of each verdict is told, with and without a secret. */
TEST_EACH(refusals_are_told, COUNT(refusals)) {
    dlc_secret secret = secret_of("a secret that is long");
    char text[512];
    for (int secured = 0; secured < 2; secured++) {
        server s;
        server_open(&s, secured ? &secret : &no_secret);
        s.refusal = refusals[_i].code ? refusals[_i].refusal : (dlc_join_verdict)0;
        s.number = refusals[_i].number;
        int code = connect_as_agent(&s, &s.secret, text, sizeof text);
        ck_assert_msg(code == refusals[_i].code && strstr(text, refusals[_i].says),
                      "%d: %s", code, text);
        ck_assert_int_eq(s.admitted, code == 0);
        server_close(&s);
    }
}

/* An agent joins no hub off loopback without a secret, whatever that one asks for. */
TEST(off_loopback) {
    dlc_secret secret = secret_of("a secret that is long");
    dlc_address list[DLC_ADDRESSES_MAX];
    char text[512];
    int count;
    server s;
    ck_assert_int_eq(dlc_address_list_own(0, list, &count), DLC_OK);
    if (dlc_address_is_loopback(&list[0]))
        return; /* this machine has no other */
    server_open_at(&s, &no_secret, list, count);
    ck_assert_int_eq(connect_as_agent(&s, &no_secret, text, sizeof text), 2);
    ck_assert_msg(strstr(text, "except on loopback, ranks need a secret"), "%s", text);
    ck_assert_int_eq(s.verified, 0);
    server_close(&s);
    server_open_at(&s, &secret, list, count);
    ck_assert_int_eq(connect_as_agent(&s, &secret, text, sizeof text), 0);
    ck_assert_int_eq(s.admitted, 1);
    server_close(&s);
}

static const struct {
    const char *address;
    int is_loopback;
} loopbacks[] = {{"127.0.0.1", 1},   {"127.255.255.254", 1}, {"126.0.0.1", 0},
                 {"128.0.0.127", 0}, {"10.0.0.127", 0},      {"::1", 1},
                 {"::2", 0},         {"fd88::1", 0},         {"0.0.0.0", 0}};

TEST_EACH(loopback_addresses, COUNT(loopbacks)) {
    dlc_address list[DLC_ADDRESSES_MAX];
    int count;
    ck_assert_int_eq(dlc_address_resolve(loopbacks[_i].address, 7, list, &count),
                     DLC_OK);
    ck_assert_msg(dlc_address_is_loopback(&list[0]) == loopbacks[_i].is_loopback, "%s",
                  loopbacks[_i].address);
    ck_assert_uint_eq(dlc_address_port(&list[0]), 7);
}

/* What scanners on a network send to any open port. */
static const char *const garbage[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                      "\n",
                                      "",
                                      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                                      "dlc-job",
                                      "dlc-joc\n and more of the like"};

TEST_EACH(garbage_is_dropped, COUNT(garbage)) {
    server s;
    server_open(&s, &no_secret);
    int fd = connect_client(&s);
    size_t length = strlen(garbage[_i]);
    ck_assert_int_eq(send(fd, garbage[_i], length, MSG_NOSIGNAL), (ssize_t)length);
    server_step(&s, 20);
    if (length >= sizeof((dlc_hello *)0)->magic) /* no need to wait for the rest */
        ck_assert_int_eq(pending(&s), 0);
    shutdown(fd, SHUT_WR);
    server_step(&s, 20);
    ck_assert_int_eq(pending(&s), 0);
    ck_assert_int_eq(join(&s, &no_secret, 1), DLC_JOIN_WELCOME);
    close(fd);
    server_close(&s);
}

/* Whatever follows a hello is not read before the verdict, and not after a refusal. */
TEST(more_than_a_hello) {
    static char flood[1 << 20];
    server s;
    server_open(&s, &no_secret);
    int fd = connect_client(&s);
    dlc_challenge challenge;
    dlc_hello hello = {.rank = 5, .ranks = 2};
    ck_assert(read_all(&s, fd, &challenge, sizeof challenge));
    ck_assert_int_eq(dlc_hello_make(&no_secret, &challenge, &hello), DLC_OK);
    memcpy(flood, &hello, sizeof hello);
    for (int i = 0; i < 50; i++) {
        (void)!send(fd, flood, sizeof flood, MSG_NOSIGNAL | MSG_DONTWAIT);
        server_step(&s, 1);
    }
    ck_assert_int_eq(s.verified, 1);
    ck_assert_int_eq(pending(&s), 0);
    ck_assert_int_eq(join(&s, &no_secret, 1), DLC_JOIN_WELCOME);
    close(fd);
    server_close(&s);
}

/* A client that sends a byte now and then is dropped after five seconds. */
TEST(slow_clients_time_out) {
    server s;
    server_open(&s, &no_secret);
    int silent = connect_client(&s), slow = connect_client(&s);
    dlc_hello hello;
    memset(&hello, 0, sizeof hello);
    memcpy(hello.magic, "dlc-job\n", 8);
    uint64_t start = dlc_now_ns();
    for (size_t i = 0; pending(&s) || i < 5; i++) {
        if (i < sizeof hello)
            (void)!send(slow, (char *)&hello + i, 1, MSG_NOSIGNAL);
        server_step(&s, 20);
        ck_assert_double_lt(dlc_since(start), 25);
    }
    ck_assert_double_ge(dlc_since(start), 4.9);
    close(silent);
    close(slow);
    server_close(&s);
}

/* Has the acceptor not closed the connection yet? */
static int is_open(int fd) {
    char some[256];
    ssize_t got = 0;
    do
        got = recv(fd, some, sizeof some, MSG_DONTWAIT);
    while (got > 0);
    return got < 0 && errno == EAGAIN;
}

/* More connections than there are slots: the oldest are dropped. */
TEST(floods_do_not_block_others) {
    enum { FLOOD = 400 };
    int fd[FLOOD];
    server s;
    server_open(&s, &no_secret);
    for (int i = 0; i < FLOOD; i++) {
        fd[i] = connect_client(&s);
        if (i % 10 == 0)
            server_step(&s, 1);
        ck_assert_int_le(pending(&s), DLC_ACCEPTOR_PENDING);
    }
    ck_assert_int_eq(join(&s, &no_secret, 1), DLC_JOIN_WELCOME);
    ck_assert(!is_open(fd[0]));
    ck_assert(is_open(fd[FLOOD - 1]));
    for (int i = 0; i < FLOOD; i++)
        close(fd[i]);
    server_step(&s, 50);
    ck_assert_int_eq(pending(&s), 0);
    server_close(&s);
}

/* Without free descriptors, a pending connection is dropped for a new one. */
TEST(out_of_descriptors) {
    struct rlimit limit;
    int fd[40];
    server s;
    server_open(&s, &no_secret);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 40; i++)
        fd[i] = connect_client(&s);
    rlim_t before = limit.rlim_cur;
    int next = dup(STDERR_FILENO);
    close(next);
    limit.rlim_cur = (rlim_t)next + 20; /* for 20 of the 40 */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    server_step(&s, 20);
    ck_assert_int_ge(pending(&s), 1);
    ck_assert_int_le(pending(&s), 20);
    limit.rlim_cur = before;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(join(&s, &no_secret, 1), DLC_JOIN_WELCOME);
    for (int i = 0; i < 40; i++)
        close(fd[i]);
    server_close(&s);
}

/* ---- Whole jobs -------------------------------------------------------------- */

static int join_main(dlc_job *job, void *argument) {
    (void)argument;
    shared_enter(job);
    for (int i = 0; i < 50; i++)
        if (dlc_job_barrier(job) != DLC_OK)
            return 1;
    return 0;
}

static int connect_to_port(int port) {
    dlc_address list[DLC_ADDRESSES_MAX];
    int count;
    ck_assert_int_eq(dlc_address_resolve("127.0.0.1", (uint16_t)port, list, &count),
                     DLC_OK);
    for (int i = 0; i < 1000; i++) {
        int fd = dlc_address_connect(&list[0], 1000);
        if (fd >= 0)
            return fd;
        usleep(10000);
    }
    return -1;
}

TEST(a_job_starts_despite_garbage) {
    external_job job = {.ranks = 3, .port = free_port()};
    int fd[100];
    external_start_rank(&job, 0, NULL, NULL, join_main, NULL);
    for (int i = 0; i < 100; i++) {
        fd[i] = connect_to_port(job.port);
        ck_assert_int_ge(fd[i], 0);
        const char *text = garbage[i % 6];
        (void)!send(fd[i], text, strlen(text), MSG_NOSIGNAL);
    }
    external_start_rank(&job, 1, NULL, NULL, join_main, NULL);
    external_start_rank(&job, 2, NULL, NULL, join_main, NULL);
    external_wait(&job, 0);
    for (int i = 0; i < 100; i++)
        close(fd[i]);
    external_free(&job);
}

/* When all ranks have joined, the hub stops listening. */
static int quiet_main(dlc_job *job, void *argument) {
    const int *port = argument;
    dlc_address list[DLC_ADDRESSES_MAX];
    int count;
    if (dlc_job_barrier(job) != DLC_OK ||
        dlc_address_resolve("127.0.0.1", (uint16_t)*port, list, &count) != DLC_OK)
        return 1;
    usleep(50000);
    int fd = dlc_address_connect(&list[0], 1000);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 2 : dlc_exit_code(dlc_job_barrier(job));
}

TEST(the_listener_closes) {
    external_job job = {.ranks = 2, .port = free_port()};
    external_start_rank(&job, 0, NULL, NULL, quiet_main, &job.port);
    external_start_rank(&job, 1, NULL, NULL, quiet_main, &job.port);
    external_wait(&job, 0);
    external_free(&job);
}

/* A connection may have got the port of another job's rank 0 from the system. */
TEST(port_of_a_connection) {
    dlc_address list[DLC_ADDRESSES_MAX], at, taken = {.length = sizeof taken.socket};
    int count, listener, other;
    ck_assert_int_eq(dlc_address_resolve("127.0.0.1", 0, list, &count), DLC_OK);
    ck_assert_int_eq(dlc_address_listen("x", list, count, &listener, &at), DLC_OK);
    int fd = dlc_address_connect(&at, 1000);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(getsockname(fd, &taken.socket.any, &taken.length), 0);
    ck_assert_int_eq(dlc_address_listen("x", &taken, 1, &other, &at), DLC_OK);
    close(other);
    close(fd);
    close(listener);
}
