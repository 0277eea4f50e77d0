/* Finds the adapters that all ranks have alike, and opens an endpoint over each. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ucx.h"

/* An Ethernet adapter, as ranks compare them. */
typedef struct adapter {
    char name[16];
    uint32_t address, mask;
    int32_t mbit; /* as the driver says; -1: it does not know */
} adapter;

enum { ADAPTERS = 2 * RAILS };
typedef struct adapters {
    adapter at[ADAPTERS];
    int32_t others; /* there are adapters that are no Ethernet */
} adapters;

/* ---- What an adapter is ---------------------------------------------------------- */

static int read_number(const char *name, const char *what, int none) {
    char path[64];
    int number = none;
    (void)snprintf(path, sizeof path, "/sys/class/net/%.15s/%s", name, what);
    FILE *file = fopen(path, "re");
    if (!file)
        return none;
    if (fscanf(file, "%d", &number) != 1)
        number = none;
    (void)fclose(file);
    return number;
}

static int has_hardware(const char *name) {
    char path[64];
    (void)snprintf(path, sizeof path, "/sys/class/net/%.15s/device", name);
    return access(path, F_OK) == 0;
}

/* Whether one of the adapters below this one leads to hardware: a bond's, a VLAN's, or
 * a bridge's ports. */
static int stands_on_hardware(const char *name, int levels) {
    static const char below[] = "lower_";
    char path[64];
    int found = 0;
    (void)snprintf(path, sizeof path, "/sys/class/net/%.15s", name);
    DIR *folder = levels > 0 ? opendir(path) : NULL;
    if (!folder)
        return 0;
    for (struct dirent *entry; !found && (entry = readdir(folder));) {
        const char *lower = entry->d_name + sizeof below - 1;
        if (strncmp(entry->d_name, below, sizeof below - 1) == 0)
            found = has_hardware(lower) || stands_on_hardware(lower, levels - 1);
    }
    (void)closedir(folder);
    return found;
}

/* Whether an adapter may reach another machine. The bridges of containers and virtual
 * machines (docker0, virbr0) do not. In a container, an adapter is one end of a pair,
 * and has the number of the other as its link. */
static int leads_out(const char *name) {
    enum { ETHERNET = 1, LEVELS = 4 };
    return read_number(name, "type", ETHERNET) != ETHERNET || has_hardware(name) ||
           stands_on_hardware(name, LEVELS) ||
           read_number(name, "iflink", 0) != read_number(name, "ifindex", 0);
}

/* ---- Which adapters ------------------------------------------------------------ */

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
        its->mbit = read_number(its->name, "speed", -1);
        return 1;
    }
    return 0;
}

/* Takes the next of "tcp/eth1, rc_mlx5/mlx5_0:1". Returns where the one after it
 * begins; NULL: there is none. */
static const char *next_device(const char *at, char transport[16], char name[64]) {
    size_t length = strcspn(at, ","), kind = strcspn(at, "/,");
    transport[0] = name[0] = '\0';
    if (!*at)
        return NULL;
    if (kind < length) {
        (void)snprintf(transport, 16, "%.*s", (int)kind, at);
        (void)snprintf(name, 64, "%.*s", (int)(length - kind - 1), at + kind + 1);
    }
    at += length;
    return at + strspn(at, ", ");
}

/* Lists the Ethernet adapters that lead out, by network, so that all ranks have the
 * same order. */
static void list_adapters(const char *names, adapters *list) {
    *list = (adapters){.others = 0};
    adapter *found = list->at;
    struct ifaddrs *all = NULL;
    char transport[16], name[64];
    int count = 0;
    if (getifaddrs(&all) != 0)
        return;
    for (const char *at = names; (at = next_device(at, transport, name)) != NULL;) {
        adapter its = {.mbit = -1};
        if (strcmp(transport, "tcp") != 0 || strlen(name) >= sizeof its.name) {
            list->others = 1;
            continue;
        }
        memcpy(its.name, name, strlen(name));
        if (count == ADAPTERS || !leads_out(name) || !find_network(all, &its))
            continue;
        int place = count++;
        for (; place > 0 && found[place - 1].address > its.address; place--)
            found[place] = found[place - 1];
        found[place] = its;
    }
    freeifaddrs(all);
}

/* Whether two ranks have equal adapters in one network. */
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
        if (all[r].others)
            return 0;
        for (int32_t k = 0; k < r; k++, b = DLC_NEXT(b))
            if (!connects(&all[r].at[which], &all[k].at[which], a->node == b->node))
                return 0;
    }
    return 1;
}

/* Whether another machine has the address of this adapter, too: it cannot be reached
 * there. Networks inside of every machine are like that. */
static int is_ambiguous(const dlc_transport_args *args, const adapters *all,
                        const char *name) {
    const dlc_rank_info *mine = args->rank_info, *other = mine;
    const adapter *its = all[args->rank].at;
    int i = 0;
    while (i < ADAPTERS && strcmp(its[i].name, name) != 0)
        i++;
    for (int32_t r = 0; r < args->rank; r++)
        mine = DLC_NEXT(mine);
    for (int32_t r = 0; i < ADAPTERS && r < args->ranks; r++, other = DLC_NEXT(other))
        for (int k = 0; k < ADAPTERS && other->node != mine->node; k++)
            if (all[r].at[k].address == its[i].address)
                return 1;
    return 0;
}

/* Names the devices that may reach the other machines, if some do not, in the syntax of
 * UCX_NET_DEVICES; "": all of them may, or none does. */
static void name_outward(const dlc_transport_args *args, const adapters *all,
                         const char *names, char devices[DEVICES]) {
    char transport[16], name[64], before[64] = "";
    size_t used = 0;
    int left_out = 0;
    devices[0] = '\0';
    for (const char *at = names; (at = next_device(at, transport, name)) != NULL;) {
        int is_ethernet = strcmp(transport, "tcp") == 0;
        if (is_ethernet && (!leads_out(name) || is_ambiguous(args, all, name)))
            left_out = 1;
        else if (strcmp(name, before) != 0 && used + strlen(name) + 2 < DEVICES)
            used += (size_t)snprintf(devices + used, DEVICES - used, "%s%s",
                                     used > 0 ? "," : "", name);
        (void)snprintf(before, sizeof before, "%s", name); /* one for each transport */
    }
    if (!left_out)
        devices[0] = '\0';
}

dlc_status rails_choose(const dlc_transport_args *args, const char *names, int most,
                        char devices[DEVICES], rail_names rails) {
    adapters mine, *all = host->alloc((size_t)args->ranks * sizeof mine);
    int count = 0;
    memset(rails, 0, sizeof(rail_names));
    if (!all)
        return DLC_ERR_NOMEM;
    list_adapters(names, &mine);
    dlc_status status = args->oob_all_gather(args->job, &mine, sizeof mine, all);
    for (int i = 0; status == DLC_OK && i < ADAPTERS && count < most; i++)
        if (is_rail(args, all, i))
            (void)snprintf(rails[count++], sizeof *rails, "%s", all[0].at[i].name);
    if (status == DLC_OK)
        name_outward(args, all, names, devices);
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
