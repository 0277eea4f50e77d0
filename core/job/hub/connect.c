/* Connects to the hub, does the agent's side of the handshake, and retries while rank 0
 * may not have been started yet. */
#include "job/hub/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/* Every step of an attempt returns DLC_OK, DLC_ERR_AGAIN with the reason in the detail,
 * or another error if retrying is pointless. */

static dlc_status read_exactly(int fd, void *buffer, size_t length, uint64_t until) {
    size_t got = 0;
    while (got < length) {
        if (dlc_wait_readable(fd, until) == 0)
            return dlc_fail(DLC_ERR_AGAIN, "it does not answer");
        ssize_t done = recv(fd, (char *)buffer + got, length - got, MSG_DONTWAIT);
        if (done < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (done <= 0)
            return dlc_fail(DLC_ERR_AGAIN, "it closed the connection: %s",
                            done ? strerror(errno) : "end of file");
        got += (size_t)done;
    }
    return DLC_OK;
}

static dlc_status check_challenge(const dlc_connect_args *args,
                                  const dlc_address *address,
                                  const dlc_challenge *challenge) {
    char text[DLC_ADDRESS_TEXT];
    dlc_address_text(address, text);
    if (!dlc_magic_is_valid(challenge->magic))
        return dlc_fail(DLC_ERR_AGAIN, "what listens there is not dlcore");
    if (challenge->protocol != DLC_PROTOCOL)
        return dlc_fail(DLC_ERR_CONFIG,
                        "rank 0 at %s runs a different version of dlcore; this is %s",
                        text, DLC_VERSION);
    int has_secret = args->secret->length > 0;
    if (challenge->secured && !has_secret)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "rank 0 at %s has a secret, and this rank has none: " DLC_SET_SECRET, text);
    if (!challenge->secured && has_secret)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "rank 0 at %s has no secret, but this rank has: " DLC_SET_SECRET, text);
    if (!has_secret && !dlc_address_is_loopback(address))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "rank 0 is at %s: except on loopback, ranks need a secret; " DLC_SET_SECRET,
            text);
    return DLC_OK;
}

static dlc_status refusal(const dlc_connect_args *args, const dlc_welcome *welcome) {
    const char *said = welcome->text;
    switch (welcome->verdict) {
    case DLC_JOIN_VERSION:
        return dlc_fail(DLC_ERR_CONFIG, "rank 0 runs dlcore %s, rank %d runs %s", said,
                        args->rank, DLC_VERSION);
    case DLC_JOIN_RANKS:
        return dlc_fail(DLC_ERR_CONFIG,
                        "rank %d expects %d ranks (WORLD_SIZE), rank 0 expects %u",
                        args->rank, args->ranks, welcome->number);
    case DLC_JOIN_TAKEN:
        return dlc_fail(
            DLC_ERR_CONFIG,
            "rank %d has been started twice: this process came after pid %u "
            "on %s; each needs a RANK of its own",
            args->rank, welcome->number, said);
    case DLC_JOIN_OVER:
        return dlc_fail(welcome->number == 2 ? DLC_ERR_CONFIG : DLC_ERR_PEER,
                        "rank %d joined too late: the job had already ended, for the "
                        "reason that rank 0 has printed",
                        args->rank);
    default:
        return dlc_fail(DLC_ERR_CONFIG, "rank 0 refused rank %d (verdict %u)",
                        args->rank, welcome->verdict);
    }
}

static dlc_status shake_hands(const dlc_connect_args *args, const dlc_address *address,
                              int fd, uint64_t until) {
    dlc_challenge challenge = {.protocol = 0};
    dlc_welcome welcome = {.verdict = 0};
    dlc_hello hello = {.rank = (uint32_t)args->rank,
                       .ranks = (uint32_t)args->ranks,
                       .pid = (uint32_t)getpid()};
    uint64_t soon = dlc_awake_ns() + 5000000000u; /* the hub sends first, and at once */
    DLC_TRY(
        read_exactly(fd, &challenge, sizeof challenge, soon < until ? soon : until));
    DLC_TRY(check_challenge(args, address, &challenge));
    if (!args->secret->length && !dlc_socket_is_same_user(fd))
        return dlc_fail(DLC_ERR_AGAIN, "what listens there belongs to another user");
    snprintf(hello.version, sizeof hello.version, "%s", DLC_VERSION);
    dlc_host_name(hello.host, sizeof hello.host);
    DLC_TRY(dlc_hello_make(args->secret, &challenge, &hello));
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        return dlc_fail(DLC_ERR_AGAIN, "it closed the connection: %s", strerror(errno));
    DLC_TRY(read_exactly(fd, &welcome, sizeof welcome, until));
    int is_ours = dlc_magic_is_valid(welcome.magic);
    if (is_ours && welcome.verdict == DLC_JOIN_SECRET)
        return dlc_fail(DLC_ERR_CONFIG, "rank 0 %s than rank %d: " DLC_SET_SECRET,
                        args->secret->length ? "has a different secret"
                                             : "belongs to a different user",
                        args->rank);
    if (!is_ours || !dlc_welcome_is_valid(args->secret, &challenge, &hello, &welcome))
        return dlc_fail(DLC_ERR_CONFIG, "what answers there does not know the job's "
                                        "secret");
    welcome.text[sizeof welcome.text - 1] = '\0';
    return welcome.verdict == DLC_JOIN_WELCOME ? DLC_OK : refusal(args, &welcome);
}

static dlc_status try_address(const dlc_connect_args *args, const dlc_address *address,
                              uint64_t until, int *fd) {
    int connected = dlc_address_connect(address, 1000);
    dlc_awake_blocked();
    if (connected < 0)
        return dlc_fail(DLC_ERR_AGAIN, "%s", strerror(errno));
    dlc_status status = shake_hands(args, address, connected, until);
    if (status == DLC_OK)
        *fd = connected;
    else
        close(connected);
    return status;
}

/* ---- Attempts ------------------------------------------------------------------- */

/* After this time a user wonders why nothing happens. */
#define QUIET_WAIT_S 5.0

dlc_retry dlc_retry_start(int rank, double timeout) {
    return (dlc_retry){
        .rank = rank, .timeout = timeout, .since = dlc_awake_ns(), .pause_ms = 10};
}

int dlc_retry_again(dlc_retry *retry, const char *what) {
    double waited = dlc_between(retry->since, dlc_awake_ns());
    if (waited >= retry->timeout)
        return 0;
    if (waited >= QUIET_WAIT_S && !retry->has_said++)
        dlc_info("rank %d waits for %s: %s", retry->rank, what, dlc_detail());
    (void)poll(NULL, 0, retry->pause_ms);
    retry->pause_ms = retry->pause_ms < 200 ? 2 * retry->pause_ms : 200;
    return 1;
}

static dlc_status try_addresses(const dlc_connect_args *args, uint64_t until, int *fd,
                                char text[DLC_ADDRESS_TEXT]) {
    dlc_address resolved[DLC_ADDRESSES_MAX];
    const dlc_address *list = args->host ? resolved : args->list;
    int count = args->count;
    if (args->host) {
        (void)snprintf(text, DLC_ADDRESS_TEXT, "%s", args->host);
        if (dlc_address_resolve(args->host, args->port, resolved, &count) != DLC_OK)
            return DLC_ERR_AGAIN;
    }
    dlc_status status = DLC_ERR_AGAIN;
    for (int i = 0; i < count && status == DLC_ERR_AGAIN; i++) {
        dlc_address_text(&list[i], text);
        status = try_address(args, &list[i], until, fd);
    }
    return status;
}

dlc_status dlc_connect(const dlc_connect_args *args, int *fd,
                       char text[DLC_ADDRESS_TEXT]) {
    dlc_retry retry = dlc_retry_start(args->rank, args->timeout);
    uint64_t until = retry.since + (uint64_t)(args->timeout * 1e9);
    dlc_status status;
    do
        status = try_addresses(args, until, fd, text);
    while (status == DLC_ERR_AGAIN && dlc_retry_again(&retry, text));
    if (status != DLC_ERR_AGAIN)
        return status;
    return dlc_fail(DLC_ERR_PEER,
                    "rank %d could not reach rank 0 at %s within %g s ([parallel] "
                    "rendezvous_timeout): %s",
                    args->rank, text, args->timeout, dlc_detail());
}
