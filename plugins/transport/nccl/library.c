/* Loads NCCL, and contains what differs between its versions. */
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libnccl.so.2"

nccl_calls nccl;

static char problem[256]; /* "": loaded */
static char version[32];

static int find(void *library, const char *name, void *place) {
    void *found = dlsym(library, name);
    memcpy(place, &found, sizeof found);
    return found != NULL;
}

static void find_calls(void *library) {
    static const struct {
        const char *name;
        size_t at;
    } calls[] = {
#define X(call) {"nccl" #call, offsetof(nccl_calls, call)},
        NCCL_CALLS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!find(library, calls[i].name, (char *)&nccl + calls[i].at)) {
            (void)snprintf(problem, sizeof problem,
                           "%s has no %s: NCCL 2.14 or later is needed", LIBRARY,
                           calls[i].name);
            return;
        }
    if (!find(library, "ncclCommRegister", &nccl.CommRegister) ||
        !find(library, "ncclCommDeregister", &nccl.CommDeregister))
        nccl.CommRegister = NULL;
}

/* Decodes NCCL_VERSION of nccl.h. */
static void read_version(void) {
    int code = 0;
    if (nccl.GetVersion(&code) != ncclSuccess) {
        (void)snprintf(problem, sizeof problem, "%s does not report its version",
                       LIBRARY);
        return;
    }
    int base = code >= 10000 ? 10000 : 1000;
    (void)snprintf(version, sizeof version, "%d.%d.%d", code / base, code % base / 100,
                   code % 100);
}

static void open_once(void) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        (void)snprintf(problem, sizeof problem, "%s", dlerror());
        return;
    }
    find_calls(library);
    if (!problem[0])
        read_version();
}

const char *library_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, open_once);
    return problem[0] ? problem : NULL;
}

const char *library_version(void) {
    return version;
}
