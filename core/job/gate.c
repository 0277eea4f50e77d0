/* See gate.h. */
#include "job/gate.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/address.h"

/* Connections that are taken in before others have their turn. */
#define ACCEPTED_AT_ONCE 16

void dlc_gate_open(dlc_gate *gate, int listener, const dlc_secret *secret) {
    memset(gate, 0, sizeof *gate);
    gate->listener = listener;
    gate->secret = secret;
    for (int i = 0; i < DLC_GATE_PENDING; i++)
        gate->pending[i].fd = -1;
}

static void drop(dlc_pending *pending) {
    if (pending->fd >= 0)
        close(pending->fd);
    pending->fd = -1;
}

void dlc_gate_close(dlc_gate *gate) {
    if (gate->listener >= 0)
        close(gate->listener);
    gate->listener = -1;
    for (int i = 0; i < DLC_GATE_PENDING; i++)
        drop(&gate->pending[i]);
}

/* ---- Those who come ------------------------------------------------------------ */

static int drop_oldest(dlc_gate *gate) {
    dlc_pending *oldest = NULL;
    for (int i = 0; i < DLC_GATE_PENDING; i++) {
        dlc_pending *one = &gate->pending[i];
        if (one->fd >= 0 && (!oldest || one->since < oldest->since))
            oldest = one;
    }
    if (oldest)
        drop(oldest);
    return oldest != NULL;
}

static dlc_pending *free_place(dlc_gate *gate) {
    for (;;) {
        for (int i = 0; i < DLC_GATE_PENDING; i++)
            if (gate->pending[i].fd < 0)
                return &gate->pending[i];
        drop_oldest(gate);
    }
}

static void begin(dlc_gate *gate, int fd) {
    dlc_pending *one = free_place(gate);
    *one = (dlc_pending){.fd = fd, .since = dlc_now_ns()};
    dlc_socket_tune(fd);
    /* A new connection takes this much at once, or is not worth having. */
    if (dlc_challenge_make(gate->secret, &one->challenge) != DLC_OK ||
        send(fd, &one->challenge, sizeof one->challenge, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)sizeof one->challenge)
        drop(one);
}

static void accept_some(dlc_gate *gate) {
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        int fd = accept4(gate->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            begin(gate, fd);
            continue;
        }
        /* Out of descriptors: the one that came cannot be turned away either, so one
         * that waits has to go. */
        if ((errno != EMFILE && errno != ENFILE) || !drop_oldest(gate))
            return;
    }
}

/* ---- Those who wait ------------------------------------------------------------ */

/* Knows the secret, or, without one, is a process of the same user. */
static int may_speak(const dlc_gate *gate, const dlc_pending *one) {
    return dlc_hello_is_right(gate->secret, &one->challenge, &one->hello) &&
           (gate->secret->length || dlc_socket_is_ours(one->fd));
}

static void answer(dlc_gate *gate, dlc_pending *one) {
    dlc_welcome welcome = {.verdict = DLC_JOIN_SECRET};
    if (may_speak(gate, one))
        welcome.verdict = gate->judge(gate->context, &one->hello, &welcome);
    else if (!gate->warned++)
        dlc_warn("somebody who %s tried to join the job as rank %u",
                 gate->secret->length ? "does not know the secret" : "is another user",
                 one->hello.rank);
    if (dlc_welcome_make(gate->secret, &one->challenge, &one->hello, &welcome) !=
            DLC_OK ||
        send(one->fd, &welcome, sizeof welcome, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)sizeof welcome) {
        drop(one);
        return;
    }
    int fd = one->fd;
    if (welcome.verdict != DLC_JOIN_WELCOME) {
        drop(one);
        return;
    }
    one->fd = -1;
    gate->enter(gate->context, &one->hello, fd);
}

static void read_hello(dlc_gate *gate, dlc_pending *one) {
    ssize_t got = recv(one->fd, (char *)&one->hello + one->got,
                       sizeof one->hello - one->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        drop(one);
        return;
    }
    one->got += (size_t)got;
    if (one->got >= sizeof one->hello.magic && !dlc_magic_is_right(one->hello.magic)) {
        drop(one);
        return;
    }
    if (one->got < sizeof one->hello)
        return;
    /* Texts end, whatever was sent. */
    one->hello.version[sizeof one->hello.version - 1] = '\0';
    one->hello.host[sizeof one->hello.host - 1] = '\0';
    answer(gate, one);
}

void dlc_gate_poll_set(const dlc_gate *gate, struct pollfd *polled) {
    polled[0] = (struct pollfd){.fd = gate->listener, .events = POLLIN};
    for (int i = 0; i < DLC_GATE_PENDING; i++)
        polled[1 + i] = (struct pollfd){.fd = gate->pending[i].fd, .events = POLLIN};
}

void dlc_gate_turn(dlc_gate *gate, const struct pollfd *polled) {
    uint64_t now = dlc_now_ns();
    for (int i = 0; i < DLC_GATE_PENDING; i++) {
        dlc_pending *one = &gate->pending[i];
        if (one->fd < 0)
            continue;
        if (polled[1 + i].fd == one->fd && polled[1 + i].revents)
            read_hello(gate, one);
        else if (now - one->since > DLC_GATE_PATIENCE_NS)
            drop(one);
    }
    if (gate->listener >= 0 && polled[0].fd == gate->listener && polled[0].revents)
        accept_some(gate);
}
