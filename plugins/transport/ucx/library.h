/* UCX's calls, found at run time.
 *
 * The library is opened when a job uses this transport, not with the plugin: as it is
 * opened it takes over the signals of a crash and SIGHUP, and that must befall neither
 * those who only list plugins nor the process that forks the ranks.
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
    X(request_free) \
    X(mem_map) \
    X(mem_unmap) \
    X(rkey_pack) \
    X(rkey_buffer_release) \
    X(ep_rkey_unpack) \
    X(rkey_destroy) \
    X(put_nbx) \
    X(get_nbx)

typedef struct ucx_calls {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration takes none */
#define X(name) __typeof__(&ucp_##name) name;
    UCX_CALLS(X)
#undef X
    __typeof__(&ucs_status_string) text_of; /* of a ucs_status_t */
} ucx_calls;

extern ucx_calls ucx;

/* An option of UCX's that we set, whether its shared memory is used or not: warnings
 * that it is not are kept to ourselves. */
#define UCX_ELEMENT_KEY "MM_FIFO_ELEM_SIZE"

/* Before any of them, from any thread; cheap after the first time. */
dlc_status library_open(void);
/* Keeps its warnings to ourselves, until it is called with 0. */
void library_quiet(int on);
/* May a worker and its context end while messages are under way? Version 1.13 bears it,
 * later ones now and then abort the process (seen: 1.18). */
int library_bears_messages(void);

#endif
