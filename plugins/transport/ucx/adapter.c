/* Which network adapter a rank uses: the nearest one, which the core has spread over
 * the ranks of a machine, where all ranks of the group reach each other by it; or all
 * adapters that are equal, or all that may reach other machines (rails_open.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ucx.h"

/* The adapter that all ranks of a group of several machines have, by its name; "": they
 * have none, or different ones, which may be of different networks. */
static void common_adapter(const dlc_transport_args *args, char name[32]) {
    const dlc_rank_info *first = args->rank_info, *info = first;
    name[0] = '\0';
    for (int32_t r = 0; r < args->ranks; r++, info = DLC_NEXT(info)) {
        if (!DLC_HAS(info, adapter) || !info->adapter[0] ||
            strncmp(info->adapter, first->adapter, sizeof info->adapter) != 0)
            return;
    }
    (void)snprintf(name, 32, "%.31s", first->adapter);
}

/* Looks in "rc_mlx5/mlx5_0:1, tcp/eth0" for a device of this name, with its port. */
static int find_device(const char *list, const char *name, char device[DEVICES]) {
    size_t length = strlen(name);
    for (const char *at = list; (at = strchr(at, '/')) != NULL;) {
        size_t whole = strcspn(++at, ", ");
        if (whole < 64 && strncmp(at, name, length) == 0 &&
            (whole == length || at[length] == ':')) {
            (void)snprintf(device, DEVICES, "%.*s", (int)whole, at);
            return 1;
        }
    }
    return 0;
}

/* What UCX can use; "" if the user has chosen. */
static void list_devices(const dlc_transport_args *args, char names[DEVICES]) {
    const char *given = args->settings ? host->get_string(args->settings, "net_devices")
                                       : "";
    ucp_context_h context;
    names[0] = '\0';
    if ((given && given[0]) || getenv("UCX_NET_DEVICES") ||
        context_open(args->settings, "", args->ranks, 1, &context) != DLC_OK)
        return;
    names_of_context(context, 1, names, DEVICES);
    ucx.cleanup(context);
}

static int have_one_node(const dlc_transport_args *args) {
    const dlc_rank_info *first = args->rank_info, *info = first;
    for (int32_t r = 0; r < args->ranks; r++, info = DLC_NEXT(info))
        if (info->node != first->node)
            return 0;
    return 1;
}

dlc_status adapter_choose(const dlc_transport_args *args, char devices[DEVICES],
                          rail_names rails) {
    int most = DLC_CAN(args->device_ops, queues) ? 1 : RAILS; /* staged messages: one */
    char name[32], names[DEVICES];
    devices[0] = '\0';
    memset(rails, 0, sizeof(rail_names));
    if (have_one_node(args))
        return DLC_OK;
    common_adapter(args, name);
    list_devices(args, names);
    if (!name[0])
        return rails_choose(args, names, most, devices, rails);
    if (names[0] && !find_device(names, name, devices))
        host->log(DLC_LOG_DEBUG, "UCX cannot use %s, the nearest adapter", name);
    return DLC_OK;
}
