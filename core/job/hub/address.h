/* Addresses and TCP sockets by which agents find the hub, IPv4 and IPv6. */
#ifndef DLC_JOB_ADDRESS_H
#define DLC_JOB_ADDRESS_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

typedef struct dlc_address {
    socklen_t length;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } socket;
} dlc_address;

#define DLC_ADDRESSES_MAX 16
#define DLC_ADDRESS_TEXT 80

/* All addresses of a host, given by name or as a numeric address. Blocks on DNS. */
dlc_status dlc_address_resolve(const char *host, uint16_t port,
                               dlc_address list[DLC_ADDRESSES_MAX], int *count);
/* The addresses of this machine that others can reach; loopback if there are none. */
dlc_status dlc_address_list_own(uint16_t port, dlc_address list[DLC_ADDRESSES_MAX],
                                int *count);
int dlc_address_is_loopback(const dlc_address *address);
/* Whether `host` is a name, and not one for loopback, that means loopback here: Debian
 * and Ubuntu list a machine's own name so in /etc/hosts. */
int dlc_address_hides_machine(const char *host, const dlc_address *list, int count);
uint16_t dlc_address_port(const dlc_address *address);
/* "10.0.0.1:29500", "[::1]:29500" */
void dlc_address_text(const dlc_address *address, char text[DLC_ADDRESS_TEXT]);

/* Listens at the first address of the list that belongs to this machine; *address is
 * that one, with the port that was bound. `host` is for messages. The listener is the
 * caller's, non-blocking. */
dlc_status dlc_address_listen(const char *host, const dlc_address *list, int count,
                              int *listener, dlc_address *address);
/* Listens at every address of this machine, at *port; 0: at any free one, which is set.
 */
dlc_status dlc_address_listen_all(int *listener, uint16_t *port);
/* Connects within `ms` milliseconds: a non-blocking socket, the caller's, or -1 with
 * errno. */
int dlc_address_connect(const dlc_address *address, int ms);

/* Sets the options that every connection of a job has: small messages are sent at once.
 */
void dlc_socket_tune(int fd);

/* Whether the other end of this loopback connection is a process of the same user or of
 * root, by the kernel's table of sockets. */
int dlc_socket_is_same_user(int fd);

#endif
