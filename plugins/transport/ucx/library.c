/* Loads UCX, and contains what differs between its versions: log and signal handlers,
 * known problems. The calls are the same from 1.13 on; symbols beside them may be
 * missing. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/log_def.h>

#include "library.h"
#include "ucx.h"

#define LIBRARY "libucp.so.0"

ucx_calls ucx;

static char problem[256]; /* "": loaded */
static atomic_int quiet;  /* number of callers that asked for it */

static dlc_log_level level_of(ucs_log_level_t level) {
    if (level <= UCS_LOG_LEVEL_WARN && !atomic_load(&quiet))
        return DLC_LOG_WARN;
    return level == UCS_LOG_LEVEL_INFO ? DLC_LOG_INFO : DLC_LOG_DEBUG;
}

void library_quiet(int on) {
    atomic_fetch_add(&quiet, on ? 1 : -1);
}

int library_closes_in_flight(void) {
    static const char known[] = "1.13.";
    return strncmp(ucx.get_version_string(), known, sizeof known - 1) == 0;
}

/* Forwards a line of UCX's log to dlcore's. */
static ucs_log_func_rc_t on_log_line(const char *file, unsigned line,
                                     const char *function, ucs_log_level_t level,
                                     const ucs_log_component_config_t *component,
                                     const char *message, va_list values) {
    char text[512];

    (void)file, (void)line, (void)function, (void)component;
    (void)vsnprintf(text, sizeof text, message, values);
    host->log(strstr(text, UCX_ELEMENT_KEY) ? DLC_LOG_DEBUG : level_of(level),
              "UCX: %s", text);
    return UCS_LOG_FUNC_RC_STOP;
}

/* UCX logs to stdout, which is for results. UCX_LOG_FILE, if set, takes precedence. */
static void redirect_log(void *library) {
    __typeof__(&ucs_log_push_handler) push_handler;
    void *found = dlsym(library, "ucs_log_push_handler");

    memcpy(&push_handler, &found, sizeof found);
    if (push_handler && !getenv("UCX_LOG_FILE"))
        push_handler(on_log_line);
}

/* UCX's crash handlers would hide the signal that the launcher reports, and its SIGHUP
 * handler ours. They stay if the environment asks for them. */
static void *open_quietly(void) {
    enum { SIGNALS = 32 }; /* without real-time signals */
    struct sigaction before[SIGNALS];
    int asked = getenv("UCX_HANDLE_ERRORS") || getenv("UCX_ERROR_SIGNALS") ||
                getenv("UCX_DEBUG_SIGNO");

    for (int s = 1; s < SIGNALS; s++)
        (void)sigaction(s, NULL, &before[s]);
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (int s = 1; s < SIGNALS && !asked; s++)
        (void)sigaction(s, &before[s], NULL);
    return library;
}

static void find_calls(void *library) {
    static const struct {
        const char *name;
        size_t at;
    } calls[] = {
#define X(call) {"ucp_" #call, offsetof(ucx_calls, call)},
        UCX_CALLS(X)
#undef X
            {"ucs_status_string", offsetof(ucx_calls, text_of)},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *found = dlsym(library, calls[i].name);
        if (!found) {
            (void)snprintf(problem, sizeof problem,
                           "%s has no %s: UCX 1.13 or later is needed", LIBRARY,
                           calls[i].name);
            return;
        }
        memcpy((char *)&ucx + calls[i].at, &found, sizeof found);
    }
}

static void open_once(void) {
    void *library = open_quietly();
    if (!library) {
        (void)snprintf(problem, sizeof problem, "%s", dlerror());
        return;
    }
    find_calls(library);
    redirect_log(library);
}

dlc_status library_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, open_once);
    if (problem[0])
        return host->fail(DLC_ERR_UNAVAILABLE, "UCX cannot be used here: %s", problem);
    return DLC_OK;
}
