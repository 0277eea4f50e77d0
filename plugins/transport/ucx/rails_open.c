/* Finds the adapters that all ranks have alike, and opens an endpoint over each. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ucx.h"

/* An adapter, as ranks compare them. */
typedef struct adapter {
    char name[16];
    uint32_t address, mask;
    int32_t mbit; /* as the driver says; -1: it does not know */
} adapter;

typedef struct adapters {
    adapter at[RAILS];
} adapters;

/* ---- Which adapters ------------------------------------------------------------ */

static int32_t read_speed(const char *name) {
    char path[64];
    int mbit = -1;
    (void)snprintf(path, sizeof path, "/sys/class/net/%.15s/speed", name);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    if (fscanf(file, "%d", &mbit) != 1)
        mbit = -1;
    (void)fclose(file);
    return mbit;
}

/* Finds the IPv4 network of an adapter that is up. */
static int find_network(const struct ifaddrs *all, adapter *its) {
    for (; all; all = all->ifa_next) {
        struct sockaddr_in address, mask;
        if (!all->ifa_addr || !all->ifa_netmask ||
            all->ifa_addr->sa_family != AF_INET || !(all->ifa_flags & IFF_UP) ||
            strcmp(all->ifa_name, its->name) != 0)
            continue;
        memcpy(&address, all->ifa_addr, sizeof address);
        memcpy(&mask, all->ifa_netmask, sizeof mask);
        its->address = ntohl(address.sin_addr.s_addr);
        its->mask = ntohl(mask.sin_addr.s_addr);
        its->mbit = read_speed(its->name);
        return 1;
    }
    return 0;
}

/* Lists the adapters of "tcp/eth1, tcp/eth0" by network, so that all ranks have the
 * same order. None if there is anything but Ethernet. */
static void list_adapters(const char *names, adapters *list) {
    adapter *found = list->at;
    struct ifaddrs *all = NULL;
    int count = 0;
    *list = (adapters){.at = {{.mbit = 0}}};
    if (getifaddrs(&all) != 0)
        return;
    for (const char *at = names; *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ",");
        adapter its = {.mbit = -1};
        if (strncmp(at, "tcp/", 4) != 0 || length - 4 >= sizeof its.name) {
            *list = (adapters){.at = {{.mbit = 0}}};
            break;
        }
        memcpy(its.name, at + 4, length - 4);
        at += length;
        if (count == RAILS || !find_network(all, &its))
            continue;
        int place = count++;
        for (; place > 0 && found[place - 1].address > its.address; place--)
            found[place] = found[place - 1];
        found[place] = its;
    }
    freeifaddrs(all);
}

/* Whether two ranks have equal adapters in one network. Bridges of containers have the
 * same address on every machine. */
static int connects(const adapter *a, const adapter *b, int same_node) {
    return strcmp(a->name, b->name) == 0 && a->mask == b->mask && a->mbit == b->mbit &&
           (a->address & a->mask) == (b->address & b->mask) &&
           (a->address == b->address) == same_node;
}

/* Whether adapter `which` connects all ranks, and is as fast as the first. */
static int is_rail(const dlc_transport_args *args, const adapters *all, int which) {
    const dlc_rank_info *a = args->rank_info;
    if (!all[0].at[which].name[0] || all[0].at[which].mbit != all[0].at[0].mbit)
        return 0;
    for (int32_t r = 0; r < args->ranks; r++, a = DLC_NEXT(a)) {
        const dlc_rank_info *b = args->rank_info;
        for (int32_t k = 0; k < r; k++, b = DLC_NEXT(b))
            if (!connects(&all[r].at[which], &all[k].at[which], a->node == b->node))
                return 0;
    }
    return 1;
}

dlc_status rails_choose(const dlc_transport_args *args, const char *names,
                        rail_names rails) {
    adapters mine = {.at = {{.mbit = 0}}},
             *all = host->alloc((size_t)args->ranks * sizeof mine);
    int count = 0;
    memset(rails, 0, sizeof(rail_names));
    if (!all)
        return DLC_ERR_NOMEM;
    list_adapters(names, &mine);
    dlc_status status = args->oob_all_gather(args->job, &mine, sizeof mine, all);
    for (int i = 0; status == DLC_OK && i < RAILS; i++)
        if (is_rail(args, all, i))
            (void)snprintf(rails[count++], sizeof *rails, "%s", all[0].at[i].name);
    host->free(all);
    return status;
}

/* ---- Further endpoints ---------------------------------------------------------- */

static dlc_status watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0
               ? DLC_OK
               : host->fail(DLC_ERR_IO, "UCX cannot wait for several adapters");
}

dlc_status rails_open(dlc_endpoint *e, rail_names names) {
    dlc_endpoint **last = &e->rail;
    dlc_status status = DLC_OK;
    if (!names[1][0])
        return DLC_OK;
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->epoll_fd < 0)
        return host->fail(DLC_ERR_IO, "UCX cannot wait for several adapters");
    for (int i = 1; status == DLC_OK && i < RAILS && names[i][0]; i++) {
        status = endpoint_open_rail(e, names[i], last);
        if (status == DLC_OK)
            status = watch(e->epoll_fd, (*last)->event_fd);
        if (status == DLC_OK)
            last = &(*last)->rail;
    }
    if (status == DLC_OK)
        status = watch(e->epoll_fd, e->event_fd);
    e->event_fd = e->epoll_fd; /* sleeping waits for all workers */
    return status;
}

void rails_close(dlc_endpoint *e) {
    endpoint_close(e->rail);
    if (e->epoll_fd > 0)
        (void)close(e->epoll_fd);
}
