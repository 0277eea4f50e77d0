/* The transport of examples/tcp, but on rank 1 a bit of each larger message arrives as
 * another: the last of the exponent of the first float. */
#include <sys/socket.h>

#include <dlcore/transport.h>

static ssize_t receive(int fd, void *buffer, size_t bytes, int flags);
static dlc_status open_tcp(const dlc_transport_args *args, dlc_endpoint **endpoint);

static int32_t own_rank;

enum { LARGE = 256 }; /* bytes; shorter messages are not all of gradients */

static dlc_status(tcp_open)(const dlc_transport_args *args, dlc_endpoint **endpoint) {
    own_rank = args->rank;
    return open_tcp(args, endpoint);
}

#define PLUGIN_VERSION "1.0.0"
#define recv(fd, buffer, bytes, flags) receive(fd, buffer, bytes, flags)
#define tcp_open(args, endpoint) open_tcp(args, endpoint)
#include "../../examples/tcp/tcp.c"
#undef recv

static ssize_t receive(int fd, void *buffer, size_t bytes, int flags) {
    ssize_t got = recv(fd, buffer, bytes, flags);
    if (own_rank == 1 && got > 0 && bytes >= LARGE)
        ((unsigned char *)buffer)[2] ^= 0x80;
    return got;
}
