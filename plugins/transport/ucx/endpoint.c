/* Opens and closes an endpoint: UCX's context and worker, the information that ranks
 * exchange, and the connections to the peers. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ucx.h"

#define MAGIC 0x6463782d312e3031u

/* UCX maps about 0.5 MB of it for each rank, and more for its messages. */
#define SHM_LEAST (UINT64_C(16) << 20)

/* How long to wait for the job to report which rank is lost. */
#define REPORT_NS UINT64_C(500000000)

/* What every rank sends to the others. */
typedef struct peer_info {
    uint64_t magic;
    uint64_t chunk_bytes;
    uint32_t address_bytes;
    int32_t staged;
    char version[16]; /* of UCX */
    cpu_set_t cores;  /* CPUs that it may run on */
} peer_info;

/* ---- UCX's context --------------------------------------------------------- */

/* Set when /dev/shm turns out to be of no use: UCX has other ways to share memory. */
static atomic_int avoids_posix;
#define WITHOUT_POSIX "^posix"

/* Options of net.ini and the command line override UCX's environment. */
static dlc_status set(ucp_config_t *config, const dlc_settings *settings,
                      const char *option, const char *name) {
    const char *value = settings ? host->get_string(settings, option) : NULL;
    if (!value || value[0] == '\0')
        return DLC_OK;
    ucs_status_t status = ucx.config_modify(config, name, value);
    if (status != UCS_OK)
        return host->fail(DLC_ERR_CONFIG, "%s: %s = %s: UCX refuses it: %s",
                          host->where(settings, option), option, value,
                          ucx.text_of(status));
    return DLC_OK;
}

static dlc_status init(ucp_config_t *config, int32_t ranks, int32_t local_ranks,
                       ucp_context_h *context) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_PPN,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = (size_t)ranks,
                           .estimated_num_ppn = (size_t)local_ranks};
    ucs_status_t status = ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params,
                                           config, context);
    if (status != UCS_OK)
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "UCX does not start: %s (see UCX_TLS, UCX_NET_DEVICES and "
                          "the options tls, net_devices)",
                          ucx.text_of(status));
    return DLC_OK;
}

/* Between ranks that share memory UCX has a queue of elements that a message of up to
 * 76 bytes fits in; longer ones are stored elsewhere, which costs sender and receiver
 * some cache lines more. Elements of this size have room for UCX's headers, ours and
 * SHORT bytes. A size set in the environment takes precedence. */
#define ELEMENT "8256"

static void widen_queues(ucp_config_t *config) {
    static const char *const names[] = {
        "UCX_" UCX_ELEMENT_KEY, "UCX_SYSV_FIFO_ELEM_SIZE", "UCX_POSIX_FIFO_ELEM_SIZE",
        "UCX_XPMEM_FIFO_ELEM_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return;
    (void)ucx.config_modify(config, UCX_ELEMENT_KEY,
                            ELEMENT); /* if it fails, messages are only slower */
}

dlc_status context_open(const dlc_settings *settings, const char *adapter,
                        int32_t ranks, int32_t local_ranks, ucp_context_h *context) {
    ucp_config_t *config;
    dlc_status status = library_open();
    if (status != DLC_OK)
        return status;
    ucs_status_t read = ucx.config_read(NULL, NULL, &config);
    if (read != UCS_OK)
        return host->fail(DLC_ERR_CONFIG, "UCX's environment (UCX_...): %s",
                          ucx.text_of(read));
    status = set(config, settings, "tls", "TLS");
    if (status == DLC_OK)
        status = set(config, settings, "net_devices", "NET_DEVICES");
    if (status == DLC_OK && adapter[0] &&
        ucx.config_modify(config, "NET_DEVICES", adapter) != UCS_OK)
        status = host->fail(DLC_ERR_CONFIG, "UCX does not take the device '%s'",
                            adapter);
    if (status == DLC_OK && atomic_load(&avoids_posix))
        (void)ucx.config_modify(config, "TLS", WITHOUT_POSIX);
    if (status == DLC_OK)
        widen_queues(config);
    if (status == DLC_OK)
        status = init(config, ranks, local_ranks, context);
    ucx.config_release(config);
    return status;
}

/* ---- Exchange of information between ranks ---------------------------------- */

static dlc_status compare(const dlc_endpoint *e, const peer_info *infos) {
    const peer_info *mine = &infos[e->rank];
    for (int32_t r = 0; r < e->ranks; r++) {
        if (infos[r].magic != MAGIC || infos[r].address_bytes == 0)
            return host->fail(DLC_ERR_PEER,
                              "rank %d speaks another protocol: do all "
                              "ranks run the same program?",
                              r);
        if (infos[r].chunk_bytes != mine->chunk_bytes)
            return host->fail(DLC_ERR_CONFIG,
                              "rank %d has different settings of this transport "
                              "(chunk_bytes %llu; here %llu): give all ranks the same",
                              r, (unsigned long long)infos[r].chunk_bytes,
                              (unsigned long long)mine->chunk_bytes);
        if (memcmp(infos[r].version, mine->version, sizeof mine->version) != 0)
            host->log(DLC_LOG_WARN,
                      "rank %d has UCX %.15s, rank %d has %.15s: they may not "
                      "be compatible",
                      r, infos[r].version, e->rank, mine->version);
    }
    return DLC_OK;
}

/* The cores of this node, divided by its ranks. */
static int cores_per_rank(const dlc_endpoint *e, const peer_info *infos) {
    const dlc_rank_info *place = e->args->rank_info;
    int32_t node = 0;
    int local = 0;
    cpu_set_t all;

    for (int32_t r = 0; r < e->ranks; r++, place = DLC_NEXT(place))
        if (r == e->rank)
            node = place->node;
    CPU_ZERO(&all);
    place = e->args->rank_info;
    for (int32_t r = 0; r < e->ranks; r++, place = DLC_NEXT(place)) {
        if (place->node != node)
            continue;
        local++;
        CPU_OR(&all, &all, &infos[r].cores);
    }
    return local > 0 ? CPU_COUNT(&all) / local : 0;
}

static dlc_status exchange_addresses(dlc_endpoint *e, const peer_info *infos,
                                     const ucp_address_t *mine) {
    size_t most = 0;
    for (int32_t r = 0; r < e->ranks; r++)
        most = infos[r].address_bytes > most ? infos[r].address_bytes : most;

    unsigned char *padded = host->alloc(most);
    e->addresses = host->alloc(most * (size_t)e->ranks);
    dlc_status status = padded && e->addresses ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        memcpy(padded, mine, infos[e->rank].address_bytes);
        status = e->args->oob_all_gather(e->args->job, padded, most, e->addresses);
    }
    for (int32_t r = 0; r < e->ranks && status == DLC_OK; r++)
        e->peers[r].address = (const ucp_address_t *)(const void *)(e->addresses +
                                                                    most * (size_t)r);
    host->free(padded);
    return status;
}

/* Does UCX support this device's memory? */
static int supports_device_memory(const dlc_endpoint *e) {
    static const struct {
        const char *device;
        ucs_memory_type_t type;
    } kinds[] = {{"cuda", UCS_MEMORY_TYPE_CUDA}, {"rocm", UCS_MEMORY_TYPE_ROCM}};
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    const dlc_rank_info *place = e->args->rank_info;

    for (int32_t r = 0; r < e->rank; r++)
        place = DLC_NEXT(place);
    if (ucx.context_query(e->context, &attr) != UCS_OK)
        return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(place->device, kinds[i].device) == 0)
            return (attr.memory_types >> kinds[i].type & 1) != 0;
    return 0;
}

static dlc_status exchange_info(dlc_endpoint *e) {
    peer_info mine = {.magic = MAGIC,
                      .chunk_bytes = e->chunk_bytes,
                      .staged = !e->host_memory && !supports_device_memory(e)};
    peer_info *infos = host->alloc((size_t)e->ranks * sizeof *infos);
    ucp_address_t *address;
    size_t address_bytes;

    if (!infos)
        return DLC_ERR_NOMEM;
    ucs_status_t got = ucx.worker_get_address(e->worker, &address, &address_bytes);
    if (got != UCS_OK) {
        host->free(infos);
        return host->fail(DLC_ERR_UNAVAILABLE, "UCX has no address here: %s",
                          ucx.text_of(got));
    }
    mine.address_bytes = (uint32_t)address_bytes;
    (void)snprintf(mine.version, sizeof mine.version, "%s", ucx.get_version_string());
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0)
        CPU_ZERO(&mine.cores); /* more CPUs than the set can hold */

    dlc_status status = e->args->oob_all_gather(e->args->job, &mine, sizeof mine,
                                                infos);
    if (status == DLC_OK)
        status = compare(e, infos);
    if (status == DLC_OK)
        status = exchange_addresses(e, infos, address);
    if (status == DLC_OK) {
        e->cores = cores_per_rank(e, infos);
        /* Polling pays only where every rank has a core. */
        e->spin_ns = e->cores > 0 ? e->spin_ns : 0;
    }
    for (int32_t r = 0; r < e->ranks; r++)
        e->staged |= infos[r].staged;
    e->fast_path = e->host_memory && !e->staged;
    ucx.worker_release_address(e->worker, address);
    host->free(infos);
    return status;
}

/* ---- Opening and closing ----------------------------------------------------- */

static int32_t count_local(const dlc_transport_args *args) {
    const dlc_rank_info *mine = args->rank_info, *place = args->rank_info;
    int32_t local = 0;
    for (int32_t r = 0; r < args->rank; r++)
        mine = DLC_NEXT(mine);
    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place))
        local += place->node == mine->node;
    return local;
}

/* Of one device, or of all if it is "". */
static dlc_status open_context(dlc_endpoint *e, const char *device) {
    return context_open(e->args->settings, device, e->ranks, count_local(e->args),
                        &e->context);
}

static ucs_status_t create_worker(dlc_endpoint *e) {
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucx.worker_create(e->context, &params, &e->worker);
    return status == UCS_OK ? ucx.worker_get_efd(e->worker, &e->event_fd) : status;
}

/* NULL: it can be used. What UCX says of a small /dev/shm, of which containers have
 * 64 MB, is that memory, or something else, is out. */
static const char *shm_fault(void) {
    struct statvfs shm;
    if (access("/dev/shm", W_OK) != 0)
        return "cannot be written";
    return statvfs("/dev/shm", &shm) != 0 ||
                   (uint64_t)shm.f_bavail * shm.f_frsize < SHM_LEAST
               ? "is nearly full or too small"
               : NULL;
}

static int names_tls(const dlc_settings *settings) {
    const char *given = settings ? host->get_string(settings, "tls") : NULL;
    return (given && given[0]) || getenv("UCX_TLS");
}

static dlc_status open_worker(dlc_endpoint *e, const char *device) {
    ucs_status_t status = create_worker(e);
    const char *fault = status == UCS_OK ? NULL : shm_fault();
    if (fault && !e->worker && !names_tls(e->args->settings)) {
        host->log(DLC_LOG_WARN,
                  "/dev/shm %s for UCX, which does without it (UCX_TLS=" WITHOUT_POSIX
                  ")",
                  fault);
        atomic_store(&avoids_posix, 1);
        ucx.cleanup(e->context);
        e->context = NULL;
        dlc_status opened = open_context(e, device);
        if (opened != DLC_OK)
            return opened;
        status = create_worker(e);
    }
    if (status != UCS_OK)
        return host->fail(DLC_ERR_UNAVAILABLE, "UCX cannot make a worker: %s%s%s%s",
                          ucx.text_of(status), fault ? ": /dev/shm " : "",
                          fault ? fault : "",
                          fault ? "; change that, or set UCX_TLS=" WITHOUT_POSIX : "");
    return connect_handlers(e);
}

static dlc_endpoint *endpoint_new(const dlc_transport_args *args) {
    dlc_endpoint *e = host->alloc(sizeof *e);
    if (!e)
        return NULL;
    e->args = args;
    e->owner = e;
    e->rank = args->rank;
    e->ranks = args->ranks;
    e->spin_ns = (uint64_t)host->get_int(args->settings, "spin_us") * 1000;
    e->chunk_bytes = (size_t)host->get_int(args->settings, "chunk_bytes");
    e->packed.from = e->rank;
    e->completed = (dlc_request){.endpoint = e, .done = 1};
    e->host_memory = !DLC_CAN(args->device_ops, queues);
    e->wakeup_fd = -1;
    e->peers = host->alloc((size_t)e->ranks * sizeof *e->peers);
    if (!e->peers) {
        host->free(e);
        return NULL;
    }
    return e;
}

/* Opens a context of one device (of all, if it is "") and connects it. */
static dlc_status open_device(dlc_endpoint *e, const char *device) {
    dlc_status status = open_context(e, device);
    if (status == DLC_OK)
        status = open_worker(e, device);
    if (status == DLC_OK)
        status = exchange_info(e);
    return status == DLC_OK ? connect_all(e) : status;
}

static dlc_status open_devices(dlc_endpoint *e) {
    char device[DEVICES];
    rail_names rails;
    dlc_status status = adapter_choose(e->args, device, rails);
    if (status != DLC_OK)
        return status;
    if (rails[1][0])
        (void)snprintf(device, sizeof device, "%s", rails[0]);
    if (device[0])
        host->log(DLC_LOG_DEBUG, "UCX uses %s, %s", device,
                  rails[1][0] ? "the first of equal adapters"
                              : "which may reach the other machines");
    status = open_device(e, device);
    return status == DLC_OK ? rails_open(e, rails) : status;
}

dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint) {
    dlc_endpoint *e = endpoint_new(args);
    if (!e)
        return DLC_ERR_NOMEM;
    dlc_status status = wakeup_open(e);
    if (status == DLC_OK)
        status = open_devices(e);
    if (status != DLC_OK) {
        endpoint_close(e);
        return status;
    }
    *endpoint = e;
    return DLC_OK;
}

dlc_status endpoint_open_rail(dlc_endpoint *owner, const char *adapter,
                              dlc_endpoint **rail) {
    dlc_endpoint *e = endpoint_new(owner->args);
    if (!e)
        return DLC_ERR_NOMEM;
    e->owner = owner;
    dlc_status status = open_device(e, adapter);
    if (status != DLC_OK) {
        endpoint_close(e);
        return status;
    }
    *rail = e;
    return DLC_OK;
}

void endpoint_close(dlc_endpoint *e) {
    if (!e)
        return;
    library_quiet(
        1); /* messages in flight are cancelled, which is not worth a warning */
    rails_close(e);
    connect_close(e);
    library_quiet(0);
    receive_close(e);
    chunks_close(e);
    requests_close(e);
    wakeup_close(e);
    host->free(e->addresses);
    host->free(e->peers);
    host->free(e);
}

/* ---- Peers ------------------------------------------------------------------- */

dlc_status endpoint_no_rank(const dlc_endpoint *e, int32_t rank) {
    return host->fail(DLC_ERR_CONFIG, "there is no rank %d among %d", rank, e->ranks);
}

const char *host_of(const dlc_endpoint *e, int32_t rank) {
    const dlc_rank_info *place = e->args->rank_info;
    for (int32_t r = 0; r < rank; r++)
        place = DLC_NEXT(place);
    return place->host;
}

dlc_status endpoint_lost(dlc_endpoint *e, int32_t rank, ucs_status_t why) {
    uint64_t since = host->now_ns();

    while (host->now_ns() - since < REPORT_NS) {
        dlc_status status = e->args->check(e->args->job);
        if (status != DLC_OK)
            return status;
        usleep(5000);
    }
    return host->fail(DLC_ERR_PEER,
                      "UCX cannot reach rank %d on %.64s: %s: is the network between "
                      "the two working?%s",
                      rank, host_of(e, rank), ucx.text_of(why),
                      e->connected ? ""
                                   : " If only some adapters lead there, name them in "
                                     "[transport] net_devices");
}

/* Lists the transports to one peer on this node and to one on another node. */
dlc_status endpoint_describe(dlc_endpoint *e, char *text, size_t text_bytes) {
    const dlc_rank_info *place = e->args->rank_info, *mine = place;
    int seen[2] = {0, 0};
    size_t used = 0;

    if (text_bytes == 0)
        return DLC_OK;
    used = (size_t)snprintf(text, text_bytes, "UCX %s", ucx.get_version_string());
    for (int32_t r = 0; r < e->rank; r++)
        mine = DLC_NEXT(mine);
    for (int32_t r = 0; r < e->ranks; r++, place = DLC_NEXT(place)) {
        int far = place->node != mine->node;
        char names[192];
        if (r == e->rank || seen[far] || used >= text_bytes)
            continue;
        seen[far] = 1;
        for (dlc_endpoint *rail = e; rail && used < text_bytes; rail = rail->rail) {
            names_of_ep(rail->peers[r].ep, names, sizeof names);
            used += (size_t)snprintf(
                text + used, text_bytes - used, "%s%s%s",
                rail == e && seen[!far] ? "; to other nodes " : ", ",
                rail == e && !seen[!far] && far ? "to other nodes " : "", names);
        }
    }
    if (e->staged && used < text_bytes)
        (void)snprintf(text + used, text_bytes - used, "; through host memory");
    return DLC_OK;
}
