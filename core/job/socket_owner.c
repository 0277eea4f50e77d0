/* Finds the user of the other end of a loopback connection (dlc_socket_is_same_user).
 * TCP carries no credentials, but both ends are in this machine's table of sockets. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/read.h"
#include "job/address.h"

/* Formats an address as the table does: its 32-bit words in hexadecimal, in memory
 * order, and the port. */
static void table_text(const dlc_address *address, char *text, size_t room) {
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
static long find_owner(const char *path, const char *mine, const char *theirs) {
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
    table_text(&here, mine, sizeof mine);
    table_text(&there, theirs, sizeof theirs);
    const char *path = here.socket.any.sa_family == AF_INET6 ? "/proc/net/tcp6"
                                                             : "/proc/net/tcp";
    long owner = find_owner(path, theirs, mine);
    return owner == 0 || (owner > 0 && (uid_t)owner == geteuid());
}
