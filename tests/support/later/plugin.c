/* The descriptor. What the cpu's plugins say of themselves (options, capabilities) is
 * filled in when this one is loaded: they are asked for it then. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "later.h"

const dlc_host *host;

static dlc_feature features[] = {
#define X(name_) \
    {.size = sizeof(dlc_feature), \
     .kind = DLC_KIND_LAYER, \
     .name = #name_, \
     .help = "the cpu's, done later", \
     .device = "later"},
    LATER_TYPES(X)
#undef X
        {.size = sizeof(dlc_feature),
         .kind = DLC_KIND_DEVICE,
         .name = "later",
         .help = "the cpu, behind queues that do their work later",
         .caps = DLC_DEVICE_ASYNC | DLC_DEVICE_SHARES,
         .options = device_options,
         .ops = &device_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "later",
     .help = "memory of ranks on one machine, by work for a queue",
     .device = "later",
     .caps = DLC_TRANSPORT_PAIRWISE | DLC_TRANSPORT_DEVICE_MEMORY |
             DLC_TRANSPORT_RECORDS,
     .ops = &transport_ops},
    DLC_FEATURES_END,
};

/* A plugin of this build; NULL with the sentence set where it cannot be used. */
static const dlc_plugin *open_near(const char *name) {
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s.so", LATER_NEAR_DIR, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const dlc_plugin *plugin = library ? dlsym(library, DLC_PLUGIN_SYMBOL) : NULL;
    if (!plugin) {
        (void)host->fail(DLC_ERR_UNAVAILABLE, "%s: %s", path, dlerror());
        return NULL;
    }
    return plugin->load(host) == DLC_OK ? plugin : NULL;
}

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    const dlc_plugin *cpu = open_near("device-cpu");
    const dlc_plugin *onednn = cpu ? open_near("layers-onednn") : NULL;
    const dlc_plugin *p2p = onednn ? open_near("transport-p2p-tree") : NULL;
    if (!p2p)
        return DLC_ERR_UNAVAILABLE;
    device_fill(cpu->features->ops);
    for (dlc_feature *f = features; f->name; f++)
        if (f->kind == DLC_KIND_TRANSPORT)
            transport_fill(p2p->features, f);
    if (!layers_fill(onednn->features, features))
        return host->fail(DLC_ERR_UNAVAILABLE, "the cpu lacks a type of layer");
    return DLC_OK;
}

const dlc_plugin dlc_plugin_v1 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "later",
    .version = "1",
    .license = "BSD-2-Clause",
    .features = features,
    .load = load,
};
