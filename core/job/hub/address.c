/* Resolves, lists and formats addresses; listens and connects; finds the user of the
 * other end of a connection. */
#include "job/hub/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/read.h"

static void set_port(dlc_address *address, uint16_t port) {
    if (address->socket.any.sa_family == AF_INET6)
        address->socket.v6.sin6_port = htons(port);
    else
        address->socket.v4.sin_port = htons(port);
}

uint16_t dlc_address_port(const dlc_address *address) {
    return ntohs(address->socket.any.sa_family == AF_INET6
                     ? address->socket.v6.sin6_port
                     : address->socket.v4.sin_port);
}

int dlc_address_is_loopback(const dlc_address *address) {
    if (address->socket.any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&address->socket.v6.sin6_addr);
    return ntohl(address->socket.v4.sin_addr.s_addr) >> 24 == 127;
}

int dlc_address_hides_machine(const char *host, const dlc_address *list, int count) {
    struct in6_addr parsed;
    int loopback = 0;
    if (inet_pton(AF_INET, host, &parsed) == 1 ||
        inet_pton(AF_INET6, host, &parsed) == 1 || strncmp(host, "localhost", 9) == 0 ||
        strncmp(host, "ip6-l", 5) == 0) /* ip6-localhost, ip6-loopback */
        return 0;
    for (int i = 0; i < count; i++)
        loopback |= dlc_address_is_loopback(&list[i]);
    return loopback;
}

void dlc_address_text(const dlc_address *address, char text[DLC_ADDRESS_TEXT]) {
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->socket.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &address->socket.v6.sin6_addr, host, sizeof host);
        snprintf(text, DLC_ADDRESS_TEXT, "[%s]:%u", host,
                 (unsigned)dlc_address_port(address));
    } else {
        inet_ntop(AF_INET, &address->socket.v4.sin_addr, host, sizeof host);
        snprintf(text, DLC_ADDRESS_TEXT, "%s:%u", host,
                 (unsigned)dlc_address_port(address));
    }
}

/* ---- Lists of addresses --------------------------------------------------------- */

static void add_address(const struct sockaddr *found, uint16_t port,
                        dlc_address list[DLC_ADDRESSES_MAX], int *count) {
    if (!found || *count == DLC_ADDRESSES_MAX)
        return;
    dlc_address made = {.length = 0};
    if (found->sa_family == AF_INET)
        made.length = sizeof made.socket.v4;
    else if (found->sa_family == AF_INET6)
        made.length = sizeof made.socket.v6;
    else
        return;
    memcpy(&made.socket, found, made.length);
    set_port(&made, port);
    list[(*count)++] = made;
}

dlc_status dlc_address_resolve(const char *host, uint16_t port,
                               dlc_address list[DLC_ADDRESSES_MAX], int *count) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    dlc_awake_blocked();
    if (rc)
        return dlc_fail(DLC_ERR_CONFIG, "no address is known for the host '%s': %s",
                        host, rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    *count = 0;
    for (const struct addrinfo *one = found; one; one = one->ai_next)
        add_address(one->ai_addr, port, list, count);
    freeaddrinfo(found);
    return *count ? DLC_OK
                  : dlc_fail(DLC_ERR_CONFIG, "the host '%s' has no internet address",
                             host);
}

dlc_status dlc_address_list_own(uint16_t port, dlc_address list[DLC_ADDRESSES_MAX],
                                int *count) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all))
        return dlc_fail(DLC_ERR_IO, "cannot list this machine's addresses: %s",
                        strerror(errno));
    *count = 0;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || !(one->ifa_flags & IFF_UP) ||
            one->ifa_flags & IFF_LOOPBACK)
            continue;
        /* A link-local address means nothing on another machine. */
        if (one->ifa_addr->sa_family == AF_INET6 &&
            IN6_IS_ADDR_LINKLOCAL(
                &((const struct sockaddr_in6 *)(const void *)one->ifa_addr)->sin6_addr))
            continue;
        add_address(one->ifa_addr, port, list, count);
    }
    freeifaddrs(all);
    return *count ? DLC_OK : dlc_address_resolve("127.0.0.1", port, list, count);
}

/* ---- Sockets -------------------------------------------------------------------- */

void dlc_socket_tune(int fd) {
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Lets a socket listen at this one's port, unless this one does: Linux asks both. */
static void share_port(int fd) {
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

/* The listening socket, or -1 with errno. */
static int listen_at_address(const dlc_address *address) {
    int off = 0;
    int fd = socket(address->socket.any.sa_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* Connections of an earlier job may still be in TIME_WAIT. */
    share_port(fd);
    if (address->socket.any.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, &address->socket.any, address->length) == 0 &&
        listen(fd, SOMAXCONN) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void bound_address(int fd, dlc_address *address) {
    address->length = sizeof address->socket;
    (void)getsockname(fd, &address->socket.any, &address->length);
}

static dlc_status listen_failed(int error, const dlc_address *address) {
    char text[DLC_ADDRESS_TEXT];
    dlc_address_text(address, text);
    if (error == EADDRINUSE)
        return dlc_fail(DLC_ERR_CONFIG,
                        "another process already listens at %s: give the job a port of "
                        "its own with MASTER_PORT (torchrun: --master_port) or with "
                        "DLCORE_PORT, the same for all ranks",
                        text);
    return dlc_fail(DLC_ERR_IO, "cannot listen at %s: %s", text, strerror(error));
}

dlc_status dlc_address_listen(const char *host, const dlc_address *list, int count,
                              int *listener, dlc_address *address) {
    int error = EADDRNOTAVAIL, last = 0;
    for (int i = 0; i < count; i++) {
        int fd = listen_at_address(&list[i]);
        if (fd >= 0) {
            *listener = fd;
            bound_address(fd, address);
            return DLC_OK;
        }
        /* "Address in use" is more helpful than "not an address of this machine". */
        if (error == EADDRNOTAVAIL || errno == EADDRINUSE)
            error = errno;
        last = i;
    }
    if (error == EADDRNOTAVAIL) {
        char text[DLC_ADDRESS_TEXT];
        dlc_address_text(&list[last], text);
        return dlc_fail(DLC_ERR_CONFIG,
                        "rank 0 must run on MASTER_ADDR, but %s (%s) is not an address "
                        "of this machine",
                        host, text);
    }
    return listen_failed(error, &list[last]);
}

dlc_status dlc_address_listen_all(int *listener, uint16_t *port) {
    dlc_address all = {.length = sizeof all.socket.v6}, bound;
    all.socket.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                          .sin6_addr = IN6ADDR_ANY_INIT};
    set_port(&all, *port);
    int fd = listen_at_address(&all);
    if (fd < 0 && errno != EADDRINUSE) { /* without IPv6 */
        all.length = sizeof all.socket.v4;
        all.socket.v4 = (struct sockaddr_in){.sin_family = AF_INET};
        set_port(&all, *port);
        fd = listen_at_address(&all);
    }
    if (fd < 0)
        return listen_failed(errno, &all);
    bound_address(fd, &bound);
    *port = dlc_address_port(&bound);
    *listener = fd;
    return DLC_OK;
}

/* Leaves no TIME_WAIT behind. */
static void close_without_trace(int fd) {
    const struct linger none = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(fd);
}

/* Connecting to a local port at which nobody listens can connect a socket to itself. */
static int is_its_own_peer(int fd) {
    dlc_address here = {.length = sizeof here.socket};
    dlc_address there = {.length = sizeof there.socket};
    return !getsockname(fd, &here.socket.any, &here.length) &&
           !getpeername(fd, &there.socket.any, &there.length) &&
           here.length == there.length &&
           memcmp(&here.socket, &there.socket, here.length) == 0;
}

int dlc_address_connect(const dlc_address *address, int ms) {
    int fd = socket(address->socket.any.sa_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* The system may give this end the port that rank 0 is about to listen at. */
    share_port(fd);
    int error = 0;
    socklen_t length = sizeof error;
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    if (connect(fd, &address->socket.any, address->length)) {
        error = errno;
        if (error == EINPROGRESS) {
            error = poll(&polled, 1, ms) == 1 ? 0 : ETIMEDOUT;
            if (!error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length))
                error = errno;
        }
    }
    if (!error && is_its_own_peer(fd))
        error = ECONNREFUSED;
    if (error) {
        close_without_trace(fd);
        errno = error;
        return -1;
    }
    dlc_socket_tune(fd);
    return fd;
}

/* ---- The user of the other end ---------------------------------------------------
 * TCP carries no credentials, but both ends of a loopback connection are in this
 * machine's table of sockets. */

/* Formats an address as the table does: its 32-bit words in hexadecimal, in memory
 * order, and the port. */
static void socket_table_text(const dlc_address *address, char *text, size_t room) {
    const unsigned char *bytes = (const unsigned char *)&address->socket.v4.sin_addr;
    size_t words = 1;
    int length = 0;
    if (address->socket.any.sa_family == AF_INET6) {
        bytes = (const unsigned char *)&address->socket.v6.sin6_addr;
        words = 4;
    }
    for (size_t i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, bytes + i * sizeof word, sizeof word);
        length += snprintf(text + length, room - (size_t)length, "%08" PRIX32, word);
    }
    snprintf(text + length, room - (size_t)length, ":%04X",
             (unsigned)dlc_address_port(address));
}

/* The user of the socket between `mine` and `theirs` in the table at `path`; -1: none.
 */
static long find_socket_owner(const char *path, const char *mine, const char *theirs) {
    char *line, local[64], remote[64];
    long owner = -1, uid;
    dlc_read_lines table;
    if (!dlc_read_lines_open(path, &table))
        return -1;
    while (owner < 0 && (line = dlc_read_lines_next(&table)))
        if (sscanf(line, " %*s %63s %63s %*s %*s %*s %*s %ld", local, remote, &uid) ==
                3 &&
            strcmp(local, mine) == 0 && strcmp(remote, theirs) == 0)
            owner = uid;
    dlc_read_lines_close(&table);
    return owner;
}

int dlc_socket_is_same_user(int fd) {
    dlc_address here = {.length = sizeof here.socket};
    dlc_address there = {.length = sizeof there.socket};
    char mine[64], theirs[64];
    if (getsockname(fd, &here.socket.any, &here.length) ||
        getpeername(fd, &there.socket.any, &there.length))
        return 0;
    socket_table_text(&here, mine, sizeof mine);
    socket_table_text(&there, theirs, sizeof theirs);
    const char *path = here.socket.any.sa_family == AF_INET6 ? "/proc/net/tcp6"
                                                             : "/proc/net/tcp";
    long owner = find_socket_owner(path, theirs, mine);
    return owner == 0 || (owner > 0 && (uid_t)owner == geteuid());
}
