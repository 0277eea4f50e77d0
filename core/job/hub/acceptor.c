/* Accepts connections without blocking, reads their hellos, checks them and replies;
 * drops whatever is too slow, too old or not dlcore. */
#include "job/hub/acceptor.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/hub/address.h"
#include "job/supervise.h"

/* How many connections are accepted before other events are handled. */
#define ACCEPTED_AT_ONCE 16

void dlc_acceptor_open(dlc_acceptor *acceptor, int listener, const dlc_secret *secret) {
    memset(acceptor, 0, sizeof *acceptor);
    acceptor->listener = listener;
    acceptor->secret = secret;
    for (int i = 0; i < DLC_ACCEPTOR_PENDING; i++)
        acceptor->pending[i].fd = -1;
}

void dlc_acceptor_close(dlc_acceptor *acceptor) {
    dlc_close(&acceptor->listener);
    for (int i = 0; i < DLC_ACCEPTOR_PENDING; i++)
        dlc_close(&acceptor->pending[i].fd);
}

/* ---- New connections ------------------------------------------------------------ */

static int drop_oldest(dlc_acceptor *acceptor) {
    dlc_pending *oldest = NULL;
    for (int i = 0; i < DLC_ACCEPTOR_PENDING; i++) {
        dlc_pending *one = &acceptor->pending[i];
        if (one->fd >= 0 && (!oldest || one->since < oldest->since))
            oldest = one;
    }
    if (oldest)
        dlc_close(&oldest->fd);
    return oldest != NULL;
}

static dlc_pending *free_pending(dlc_acceptor *acceptor) {
    for (;;) {
        for (int i = 0; i < DLC_ACCEPTOR_PENDING; i++)
            if (acceptor->pending[i].fd < 0)
                return &acceptor->pending[i];
        drop_oldest(acceptor);
    }
}

static void begin_handshake(dlc_acceptor *acceptor, int fd) {
    dlc_pending *one = free_pending(acceptor);
    *one = (dlc_pending){.fd = fd, .since = dlc_now_ns()};
    dlc_socket_tune(fd);
    /* The send buffer of a new connection holds this much, or something is wrong. */
    if (dlc_challenge_make(acceptor->secret, &one->challenge) != DLC_OK ||
        send(fd, &one->challenge, sizeof one->challenge, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)sizeof one->challenge)
        dlc_close(&one->fd);
}

static void accept_some(dlc_acceptor *acceptor) {
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        int fd = accept4(acceptor->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            begin_handshake(acceptor, fd);
            continue;
        }
        /* Out of descriptors: the new connection cannot even be refused, so a pending
         * one is dropped. */
        if (errno != EMFILE && errno != ENFILE)
            return;
        acceptor->out_of_files = 1;
        if (!drop_oldest(acceptor))
            return;
    }
}

/* ---- Pending connections -------------------------------------------------------- */

/* Whether the client knows the secret or, without one, is a process of the same user.
 */
static int is_authentic(const dlc_acceptor *acceptor, const dlc_pending *one) {
    return dlc_hello_is_valid(acceptor->secret, &one->challenge, &one->hello) &&
           (acceptor->secret->length || dlc_socket_is_same_user(one->fd));
}

static void answer_hello(dlc_acceptor *acceptor, dlc_pending *one) {
    dlc_welcome welcome = {.verdict = DLC_JOIN_SECRET};
    if (is_authentic(acceptor, one))
        welcome.verdict = acceptor->verify(acceptor->context, &one->hello, &welcome);
    else if (!acceptor->warned++)
        dlc_warn("a process that %s tried to join the job as rank %u",
                 acceptor->secret->length ? "does not know the secret"
                                          : "belongs to another user",
                 one->hello.rank);
    if (dlc_welcome_make(acceptor->secret, &one->challenge, &one->hello, &welcome) !=
            DLC_OK ||
        send(one->fd, &welcome, sizeof welcome, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)sizeof welcome ||
        welcome.verdict != DLC_JOIN_WELCOME) {
        dlc_close(&one->fd);
        return;
    }
    int fd = one->fd;
    one->fd = -1;
    acceptor->admit(acceptor->context, &one->hello, fd);
}

static void read_hello(dlc_acceptor *acceptor, dlc_pending *one) {
    ssize_t got = recv(one->fd, (char *)&one->hello + one->got,
                       sizeof one->hello - one->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        dlc_close(&one->fd);
        return;
    }
    one->got += (size_t)got;
    if (one->got >= sizeof one->hello.magic && !dlc_magic_is_valid(one->hello.magic)) {
        dlc_close(&one->fd);
        return;
    }
    if (one->got < sizeof one->hello)
        return;
    /* Terminate the strings, whatever was sent. */
    one->hello.version[sizeof one->hello.version - 1] = '\0';
    one->hello.host[sizeof one->hello.host - 1] = '\0';
    answer_hello(acceptor, one);
}

void dlc_acceptor_poll_set(const dlc_acceptor *acceptor, struct pollfd *polled) {
    polled[0] = (struct pollfd){.fd = acceptor->listener, .events = POLLIN};
    for (int i = 0; i < DLC_ACCEPTOR_PENDING; i++)
        polled[1 + i] = (struct pollfd){.fd = acceptor->pending[i].fd,
                                        .events = POLLIN};
}

void dlc_acceptor_handle_events(dlc_acceptor *acceptor, const struct pollfd *polled) {
    uint64_t now = dlc_now_ns();
    for (int i = 0; i < DLC_ACCEPTOR_PENDING; i++) {
        dlc_pending *one = &acceptor->pending[i];
        if (one->fd < 0)
            continue;
        if (polled[1 + i].fd == one->fd && polled[1 + i].revents)
            read_hello(acceptor, one);
        else if (now - one->since > DLC_ACCEPTOR_TIMEOUT_NS)
            dlc_close(&one->fd);
    }
    if (acceptor->listener >= 0 && polled[0].fd == acceptor->listener &&
        polled[0].revents)
        accept_some(acceptor);
}
