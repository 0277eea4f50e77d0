/* Addresses and sockets of the rendezvous: IPv4 and IPv6. */
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

/* All addresses of a host's name, or of a number written out. */
dlc_status dlc_address_find(const char *host, uint16_t port,
                            dlc_address list[DLC_ADDRESSES_MAX], int *count);
/* Those of this machine that others can reach; without any, loopback. */
dlc_status dlc_address_own(uint16_t port, dlc_address list[DLC_ADDRESSES_MAX],
                           int *count);
int dlc_address_is_loopback(const dlc_address *address);
uint16_t dlc_address_port(const dlc_address *address);
/* "10.0.0.1:29500", "[::1]:29500" */
void dlc_address_text(const dlc_address *address, char text[DLC_ADDRESS_TEXT]);

/* Listens at the first address of the list that is this machine's; *address is it, with
 * the port that was taken. `host` is for messages. */
dlc_status dlc_address_listen(const char *host, const dlc_address *list, int count,
                              int *listener, dlc_address *address);
/* The same for every address of the machine, at any port. */
dlc_status dlc_address_listen_all(int *listener, uint16_t *port);
/* A connection, or -1 with errno. Doesn't wait longer than `ms`. */
int dlc_address_connect(const dlc_address *address, int ms);

/* What every connection of a job is set to: small messages go at once. */
void dlc_socket_tune(int fd);

/* Is the other end of this loopback connection a process of the same user, or root's?
 * The kernel's table of sockets tells. */
int dlc_socket_is_ours(int fd);

#endif
