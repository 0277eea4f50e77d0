/* Registered memory, and one-sided access to it (put, get).
 *
 * Where no UCX transport supports that (TCP does not), UCX emulates it by messages:
 * then the bytes move when the owner of the region makes some call on its endpoint.
 */
#include <string.h>

#include "ucx.h"

enum { REMOTE_MAX = 256 };

/* What a peer needs for access; UCX's packed key follows. */
typedef struct remote_address {
    uint64_t base, bytes;
} remote_address;

static dlc_status map_memory(dlc_endpoint *e, void *base, size_t bytes,
                             ucp_mem_h *memory) {
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = base,
                                   .length = bytes};
    ucs_status_t status = ucx.mem_map(e->context, &params, memory);
    if (status != UCS_OK)
        return host->fail(DLC_ERR_NOMEM,
                          "UCX cannot register %zu bytes: %s (see "
                          "ulimit -l)",
                          bytes, ucx.text_of(status));
    return DLC_OK;
}

static dlc_status write_remote(dlc_endpoint *e, const void *base, size_t bytes,
                               ucp_mem_h memory, void *remote, size_t *remote_bytes) {
    remote_address mine = {(uintptr_t)base, bytes};
    void *key;
    size_t key_bytes;

    ucs_status_t status = ucx.rkey_pack(e->context, memory, &key, &key_bytes);
    if (status != UCS_OK)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "UCX cannot pack the key of a region: %s",
                          ucx.text_of(status));
    if (sizeof mine + key_bytes <= REMOTE_MAX) {
        memcpy(remote, &mine, sizeof mine);
        memcpy((char *)remote + sizeof mine, key, key_bytes);
        *remote_bytes = sizeof mine + key_bytes;
    }
    ucx.rkey_buffer_release(key);
    if (sizeof mine + key_bytes > REMOTE_MAX)
        return host->fail(
            DLC_ERR_UNSUPPORTED,
            "UCX's key of a region has %zu bytes, too many: name fewer adapters "
            "in UCX_NET_DEVICES",
            key_bytes);
    return DLC_OK;
}

dlc_status region_open(dlc_endpoint *e, void *base, size_t bytes, dlc_region **region,
                       void *remote, size_t *remote_bytes) {
    if (e->staged)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "UCX cannot read the memory of this device");
    dlc_region *r = host->alloc(sizeof *r);
    if (!r)
        return DLC_ERR_NOMEM;
    dlc_status status = map_memory(e, base, bytes, &r->memory);
    if (status == DLC_OK)
        status = write_remote(e, base, bytes, r->memory, remote, remote_bytes);
    if (status != DLC_OK) {
        region_close(e, r);
        return status;
    }
    r->peer = e->rank;
    r->base = (uintptr_t)base;
    r->bytes = bytes;
    *region = r;
    return DLC_OK;
}

void region_close(dlc_endpoint *e, dlc_region *r) {
    if (!r)
        return;
    if (r->key)
        ucx.rkey_destroy(r->key);
    if (r->memory)
        (void)ucx.mem_unmap(e->context, r->memory);
    host->free(r);
}

dlc_status region_import(dlc_endpoint *e, int32_t from, const void *remote,
                         size_t remote_bytes, dlc_region **region) {
    remote_address its;
    unsigned char key[REMOTE_MAX] = {0};

    if (remote_bytes <= sizeof its || remote_bytes > REMOTE_MAX)
        return host->fail(DLC_ERR_CONFIG,
                          "not a region of rank %d: its description has %zu "
                          "bytes",
                          from, remote_bytes);
    memcpy(&its, remote, sizeof its);
    memcpy(key, (const char *)remote + sizeof its, remote_bytes - sizeof its);
    if (!is_rank(e, from))
        return endpoint_no_rank(e, from);
    dlc_region *r = host->alloc(sizeof *r);
    if (!r)
        return DLC_ERR_NOMEM;
    ucs_status_t got = ucx.ep_rkey_unpack(e->peers[from].ep, key, &r->key);
    if (got != UCS_OK) {
        host->free(r);
        return host->fail(DLC_ERR_PEER, "UCX cannot use the region of rank %d: %s",
                          from, ucx.text_of(got));
    }
    r->peer = from;
    r->base = its.base;
    r->bytes = (size_t)its.bytes;
    *region = r;
    return DLC_OK;
}

/* ---- Access ------------------------------------------------------------------ */

static void accessed(void *request, ucs_status_t status, void *context) {
    dlc_request *r = context;
    if (status != UCS_OK) {
        r->status = DLC_ERR_PEER;
        r->broken = status;
    }
    r->done = 1;
    r->endpoint->unsent--;
    ucx.request_free(request);
}

static dlc_status check_access(const dlc_region *region, size_t offset, size_t bytes) {
    if (!region->key)
        return host->fail(DLC_ERR_CONFIG, "put and get need a peer's region");
    if (offset > region->bytes || bytes > region->bytes - offset)
        return host->fail(DLC_ERR_CONFIG,
                          "%zu bytes at %zu are not within the %zu of rank %d's region",
                          bytes, offset, region->bytes, region->peer);
    return DLC_OK;
}

/* A request for an access within bounds, and the peer's endpoint; or NULL and *status.
 */
static dlc_request *begin(dlc_endpoint *e, const dlc_region *region, size_t offset,
                          size_t bytes, ucp_ep_h *ep, dlc_status *status) {
    *status = check_access(region, offset, bytes);
    if (*status != DLC_OK)
        return NULL;
    *ep = e->peers[region->peer].ep;
    dlc_request *request = request_new(e, region->peer, bytes);
    if (request)
        request->kind = ACCESS;
    else
        *status = DLC_ERR_NOMEM;
    return request;
}

static dlc_status started(dlc_endpoint *e, dlc_request *r, ucs_status_ptr_t request,
                          dlc_request **out) {
    if (UCS_PTR_IS_ERR(request))
        return endpoint_lost(e, r->peer, UCS_PTR_STATUS(request));
    if (request)
        e->unsent++;
    else
        r->done = 1;
    *out = r;
    return DLC_OK;
}

/* UCX completes a put when its buffer is free; the bytes are in place when the endpoint
 * has been flushed afterwards. */
dlc_status region_put(dlc_endpoint *e, const void *local, dlc_region *remote,
                      size_t offset, size_t bytes, dlc_request **request) {
    dlc_status status = DLC_OK;
    ucp_ep_h ep = NULL;
    dlc_request *r = begin(e, remote, offset, bytes, &ep, &status);
    if (!r)
        return status;

    ucp_request_param_t no_callback = how_to_send(e, NULL, NULL);
    no_callback.op_attr_mask &= ~(uint32_t)(UCP_OP_ATTR_FIELD_CALLBACK |
                                            UCP_OP_ATTR_FIELD_USER_DATA);
    ucs_status_ptr_t put = ucx.put_nbx(ep, local, bytes, remote->base + offset,
                                       remote->key, &no_callback);
    if (UCS_PTR_IS_ERR(put))
        return endpoint_lost(e, r->peer, UCS_PTR_STATUS(put));
    if (put)
        ucx.request_free(put); /* freed by UCX when it is done */
    ucp_request_param_t how = how_to_send(e, accessed, r);
    return started(e, r, ucx.ep_flush_nbx(ep, &how), request);
}

dlc_status region_get(dlc_endpoint *e, void *local, dlc_region *remote, size_t offset,
                      size_t bytes, dlc_request **request) {
    dlc_status status = DLC_OK;
    ucp_ep_h ep = NULL;
    dlc_request *r = begin(e, remote, offset, bytes, &ep, &status);
    if (!r)
        return status;
    ucp_request_param_t how = how_to_send(e, accessed, r);
    return started(
        e, r, ucx.get_nbx(ep, local, bytes, remote->base + offset, remote->key, &how),
        request);
}
