/* UCX's calls, resolved at run time.
 *
 * The library is loaded when a job uses this transport, and not with the plugin: when
 * loaded it takes over the crash signals and SIGHUP, which must happen neither in
 * commands that only list plugins nor in the process that forks the ranks.
 */
#ifndef UCX_LIBRARY_H
#define UCX_LIBRARY_H

#include <ucp/api/ucp.h>

#include <dlcore/plugin.h>

#define UCX_CALLS(X) \
    X(get_version_string) \
    X(config_read) \
    X(config_modify) \
    X(config_release) \
    X(init_version) \
    X(cleanup) \
    X(context_query) \
    X(context_print_info) \
    X(worker_create) \
    X(worker_destroy) \
    X(worker_get_address) \
    X(worker_release_address) \
    X(worker_get_efd) \
    X(worker_arm) \
    X(worker_progress) \
    X(worker_flush_nbx) \
    X(worker_set_am_recv_handler) \
    X(ep_create) \
    X(ep_print_info) \
    X(ep_flush_nbx) \
    X(am_send_nbx) \
    X(am_recv_data_nbx) \
    X(am_data_release) \
    X(request_free)

typedef struct ucx_calls {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration takes none */
#define X(name) __typeof__(&ucp_##name) name;
    UCX_CALLS(X)
#undef X
    __typeof__(&ucs_status_string) text_of; /* of a ucs_status_t */
} ucx_calls;

extern ucx_calls ucx;

/* An option of UCX that is set whether UCX uses shared memory or not; its warnings
 * about unused options are hidden. */
#define UCX_ELEMENT_KEY "MM_FIFO_ELEM_SIZE"

/* Loads UCX and resolves its calls; must precede them. Any thread; cheap after the
 * first time. */
dlc_status library_open(void);
/* Logs UCX's warnings at debug level until it is called with 0. Calls nest. */
void library_quiet(int on);
/* May a worker and its context be closed while messages are in flight? Version 1.13
 * supports it; later ones sometimes abort the process (seen with 1.18). */
int library_closes_in_flight(void);

#endif
