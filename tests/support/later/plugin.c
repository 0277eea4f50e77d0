/* The descriptor. What the cpu's plugins say of themselves (options, capabilities) is
 * filled in when this one is opened. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static const dlc_plugin *near[3]; /* the cpu, its layers, its transport */
static char trouble[512];         /* why they could not be opened */

/* A plugin of this build; NULL with `trouble` set where it cannot be used. */
static const dlc_plugin *open_near(const char *name) {
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s.so", LATER_NEAR_DIR, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const dlc_plugin *plugin = library ? dlsym(library, DLC_PLUGIN_SYMBOL) : NULL;
    if (!plugin)
        (void)snprintf(trouble, sizeof trouble, "%s", dlerror());
    return plugin;
}

/* A host looks at the descriptor before it calls load(). */
__attribute__((constructor)) static void fill(void) {
    static const char *const names[] = {"device-cpu", "layers-onednn",
                                        "transport-p2p-tree"};
    for (int i = 0; i < 3; i++)
        if (!(near[i] = open_near(names[i])))
            return;
    device_fill(near[0]->features->ops);
    for (dlc_feature *f = features; f->name; f++)
        if (f->kind == DLC_KIND_TRANSPORT)
            transport_fill(near[2]->features, f);
    if (!layers_fill(near[1]->features, features))
        (void)snprintf(trouble, sizeof trouble, "the cpu lacks a type of layer");
}

#if !defined __SANITIZE_THREAD__ /* which lets no process fork that has threads */
static sem_t runs;

static void *idle(void *unused) {
    (void)sem_post(&runs);
    for (;;)
        (void)pause();
    return unused;
}

/* As libcuda has one from its loading on: it may not be given this process's signals.
 * It runs when this returns: a sanitizer allocates while a thread begins, and a process
 * that is forked just then has the allocator's lock for ever. */
static dlc_status start_thread(void) {
    pthread_t thread;
    if (sem_init(&runs, 0, 0) != 0 || pthread_create(&thread, NULL, idle, NULL) != 0 ||
        pthread_detach(thread) != 0)
        return host->fail(DLC_ERR_NOMEM, "no thread for the later device");
    while (sem_wait(&runs) != 0)
        continue;
    return DLC_OK;
}
#else
static dlc_status start_thread(void) {
    return DLC_OK;
}
#endif

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    if (trouble[0])
        return host->fail(DLC_ERR_UNAVAILABLE, "%s", trouble);
    dlc_status began = start_thread();
    if (began != DLC_OK)
        return began;
    for (int i = 0; i < 3; i++) {
        dlc_status status = near[i]->load(host);
        if (status != DLC_OK)
            return status;
    }
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
