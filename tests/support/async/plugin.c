/* The plugin's descriptor. Options and capabilities are copied from the cpu's plugins
 * when it is loaded. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "async.h"

const dlc_host *host;

static dlc_feature features[] = {
#define X(name_) \
    {.size = sizeof(dlc_feature), \
     .kind = DLC_KIND_LAYER, \
     .name = #name_, \
     .help = "the cpu's, run on a queue", \
     .device = "async"},
    ASYNC_TYPES(X)
#undef X
        {.size = sizeof(dlc_feature),
         .kind = DLC_KIND_DEVICE,
         .name = "async",
         .help = "the cpu behind asynchronous queues",
         .options = device_options,
         .ops = &device_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "async",
     .help = "memory of ranks on one machine, stream-ordered",
     .device = "async",
     .caps = DLC_TRANSPORT_PAIRWISE | DLC_TRANSPORT_DEVICE_MEMORY |
             DLC_TRANSPORT_CAPTURABLE,
     .ops = &transport_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "locking",
     .help = "the same, for ranks that may lock memory, if ASYNC_LOCKING is set",
     .device = "async",
     .caps = DLC_TRANSPORT_PAIRWISE | DLC_TRANSPORT_DEVICE_MEMORY |
             DLC_TRANSPORT_CAPTURABLE,
     .ops = &locking_ops},
    DLC_FEATURES_END,
};

static const dlc_plugin *cpu[3]; /* the cpu device, its layers, its transport */
static char problem[512];        /* why they cannot be opened */

/* A plugin of this build; NULL with `problem` set if it cannot be used. */
static const dlc_plugin *open_cpu_plugin(const char *name) {
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s.so", ASYNC_PLUGIN_DIR, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const dlc_plugin *plugin = library ? dlsym(library, DLC_PLUGIN_SYMBOL) : NULL;
    if (!plugin)
        (void)snprintf(problem, sizeof problem, "%s", dlerror());
    return plugin;
}

/* The host reads the descriptor before it calls load(). */
__attribute__((constructor)) static void fill(void) {
    static const char *const names[] = {"device-cpu", "layers-onednn",
                                        "transport-p2p-tree"};
    for (int i = 0; i < 3; i++)
        if (!(cpu[i] = open_cpu_plugin(names[i])))
            return;
    device_fill(cpu[0]->features->ops);
    for (dlc_feature *f = features; f->name; f++)
        if (f->kind == DLC_KIND_TRANSPORT)
            transport_fill(cpu[2]->features, f);
    if (!layers_fill(cpu[1]->features, features))
        (void)snprintf(problem, sizeof problem, "the cpu's family lacks a layer type");
}

#if !defined \
    __SANITIZE_THREAD__ /* it does not support forking a process that has threads */
static sem_t runs;

static void *idle(void *unused) {
    (void)sem_post(&runs);
    for (;;)
        (void)pause();
    return unused;
}

/* Starts a thread when the plugin is loaded, as libcuda does, to test that it gets none
 * of the process's signals. It runs when this returns: a sanitizer allocates while a
 * thread starts, and a process forked at that moment would hold the allocator's lock
 * for ever. */
static dlc_status start_thread(void) {
    pthread_t thread;
    if (sem_init(&runs, 0, 0) != 0 || pthread_create(&thread, NULL, idle, NULL) != 0 ||
        pthread_detach(thread) != 0)
        return host->fail(DLC_ERR_NOMEM, "cannot start the async device's thread");
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
    if (problem[0])
        return host->fail(DLC_ERR_UNAVAILABLE, "%s", problem);
    dlc_status began = start_thread();
    if (began != DLC_OK)
        return began;
    for (int i = 0; i < 3; i++) {
        dlc_status status = cpu[i]->load(host);
        if (status != DLC_OK)
            return status;
    }
    return DLC_OK;
}

DLC_PLUGIN("async", "1", "BSD-2-Clause", features, load);
