/* Loops of messages with UCX's tag calls. */
#include "ucx_tags.h"

#include <string.h>
#include <ucp/api/ucp.h>

enum { ADDRESS = 2048 }; /* room for a worker's address */
static const ucp_tag_t the_tag = 0x1337a880, all_of_it = ~(ucp_tag_t)0;

struct tags {
    int rank;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    int sends, receives; /* in flight */
};

static void check(test_rank *rank, ucs_status_t status) {
    RANK_CHECK(rank, status == UCS_OK);
}

/* ---- Open, close ------------------------------------------------------------ */

static void connect_to_other(tags *t, test_rank *rank) {
    char mine[ADDRESS] = {0}, all[2][ADDRESS];
    ucp_address_t *address;
    size_t bytes;

    check(rank, ucp_worker_get_address(t->worker, &address, &bytes));
    RANK_CHECK(rank, bytes <= sizeof mine);
    memcpy(mine, address, bytes);
    ucp_worker_release_address(t->worker, address);
    RANK_OK(rank, ranks_all_gather(rank, mine, sizeof mine, all));
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = (const void *)all[1 - rank->rank]};
    check(rank, ucp_ep_create(t->worker, &params, &t->ep));
}

tags *tags_open(test_rank *rank) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;
    tags *t = dlc_alloc(1, sizeof *t);

    RANK_CHECK(rank, t);
    t->rank = rank->rank;
    check(rank, ucp_config_read(NULL, NULL, &config));
    check(rank, ucp_init(&params, config, &t->context));
    ucp_config_release(config);
    check(rank, ucp_worker_create(t->context, &worker, &t->worker));
    connect_to_other(t, rank);
    return t;
}

void tags_close(tags *t) {
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                               .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = ucp_ep_close_nbx(t->ep, &how);
    while (UCS_PTR_IS_PTR(request) &&
           ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(t->worker);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
    ucp_worker_destroy(t->worker);
    ucp_cleanup(t->context);
    dlc_free(t);
}

/* ---- Messages --------------------------------------------------------------- */

static void sent(void *request, ucs_status_t status, void *context) {
    (void)status;
    ((tags *)context)->sends--;
    ucp_request_free(request);
}

static void received(void *request, ucs_status_t status,
                     const ucp_tag_recv_info_t *info, void *context) {
    (void)status, (void)info;
    ((tags *)context)->receives--;
    ucp_request_free(request);
}

/* Progresses until fewer than this many are in flight. */
static inline void wait_for(tags *t, const int *under_way, int fewer_than) {
    while (*(const volatile int *)under_way >= fewer_than)
        ucp_worker_progress(t->worker);
}

static inline void begin_send(tags *t, const buffers *b, size_t bytes, int streams) {
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA |
                        (streams ? UCP_OP_ATTR_FLAG_MULTI_SEND : 0),
        .datatype = ucp_dt_make_contig(1),
        .cb.send = sent,
        .user_data = t};

    wait_for(t, &t->sends, WINDOW);
    ucs_status_ptr_t request = ucp_tag_send_nbx(t->ep, b->out.base, bytes, the_tag,
                                                &how);
    t->sends += UCS_PTR_IS_PTR(request);
}

static inline void begin_recv(tags *t, const buffers *b, size_t bytes) {
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                                               UCP_OP_ATTR_FIELD_CALLBACK |
                                               UCP_OP_ATTR_FIELD_USER_DATA,
                               .datatype = ucp_dt_make_contig(1),
                               .cb.recv = received,
                               .user_data = t};

    wait_for(t, &t->receives, WINDOW);
    ucs_status_ptr_t request = ucp_tag_recv_nbx(t->worker, b->in.base, bytes, the_tag,
                                                all_of_it, &how);
    t->receives += UCS_PTR_IS_PTR(request);
}

void tags_ping_pong(tags *t, const buffers *b, size_t bytes, int count) {
    for (int i = 0; i < 2 * count; i++)
        if (i % 2 == t->rank) {
            begin_send(t, b, bytes, 0);
        } else {
            begin_recv(t, b, bytes);
            wait_for(t, &t->receives, 1);
        }
    wait_for(t, &t->sends, 1);
}

void tags_stream(tags *t, const buffers *b, size_t bytes, int count) {
    for (int i = 0; i < count; i++)
        if (t->rank == 0)
            begin_send(t, b, bytes, 1);
        else
            begin_recv(t, b, bytes);
    wait_for(t, &t->sends, 1);
    wait_for(t, &t->receives, 1);
    if (t->rank == 0)
        begin_recv(t, b, 0);
    else
        begin_send(t, b, 0, 0);
    wait_for(t, &t->sends, 1);
    wait_for(t, &t->receives, 1);
}
