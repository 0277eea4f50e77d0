/* Opens the device and the transport under test for one rank, and wraps the calls of
 * the transport so that tests can use host memory. */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "config/config.h"
#include "shadow.h"
#include "support/sanitized.h"

static const char *device_name(void) {
    const char *name = getenv("DLCORE_TEST_DEVICE");
    return name ? name : "cpu";
}

int group_has_device_memory(void) {
    return !(plugin_find(DLC_KIND_DEVICE, device_name())->caps & DLC_DEVICE_HOST);
}

int group_most_ranks(void) {
    return SANITIZED ? 3 : group_has_device_memory() ? 4 : 8;
}

static dlc_rank_info *make_places(int ranks) {
    dlc_rank_info *places = dlc_alloc((size_t)ranks, sizeof *places);
    for (int r = 0; places && r < ranks; r++) {
        places[r] = (dlc_rank_info){.size = sizeof *places,
                                    .pid = (uint32_t)getpid(),
                                    .uid = (uint32_t)getuid(),
                                    .host = "here"};
        (void)snprintf(places[r].device, sizeof places[r].device, "%s", device_name());
    }
    return places;
}

static int can_run(const dlc_feature *feature) {
    const dlc_transport_ops *ops = feature->ops;
    if (feature->device && strcmp(feature->device, device_name()) != 0)
        return 0;
    dlc_rank_info *places = make_places(2);
    dlc_settings *settings = plugin_settings(feature, NULL);
    dlc_transport_args args = {
        .size = sizeof args, .ranks = 2, .rank_info = places, .settings = settings};
    char reason[256];
    dlc_transport_prediction made = {.size = sizeof made};

    int can = ops->predict(&args, &made, reason, sizeof reason) == DLC_OK &&
              made.bandwidth > 0;
    dlc_settings_free(settings);
    dlc_free(places);
    return can;
}

const char *group_transport(size_t i) {
    const dlc_feature *feature;
    for (size_t k = 0; (feature = plugin_at(DLC_KIND_TRANSPORT, k)) != NULL; k++)
        if (can_run(feature) && i-- == 0)
            return feature->name;
    return NULL;
}

void group_prepare(group *g, test_rank *rank, const group_kind *kind) {
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, kind->transport);
    const dlc_feature *where = plugin_find(DLC_KIND_DEVICE, device_name());
    const char *sets[] = {getenv("DLCORE_TEST_DEVICE_SET"), NULL};
    dlc_settings *settings = plugin_settings(where, sets);
    dlc_device_args device = {
        .size = sizeof device, .threads = 1, .settings = settings};

    *g = (group){.rank = rank,
                 .ops = feature->ops,
                 .device_ops = where->ops,
                 .device_memory = !(where->caps & DLC_DEVICE_HOST),
                 .places = make_places(rank->ranks),
                 .settings = plugin_settings(feature, kind->sets)};
    RANK_CHECK(rank, g->places);
    RANK_OK(rank, g->device_ops->open(&device, &g->device));
    dlc_settings_free(settings);
    g->args = (dlc_transport_args){.size = sizeof g->args,
                                   .rank = rank->rank,
                                   .ranks = rank->ranks,
                                   .rank_info = g->places,
                                   .settings = g->settings,
                                   .device_ops = g->device_ops,
                                   .device = g->device,
                                   .job = rank,
                                   .oob_all_gather = ranks_all_gather,
                                   .check = ranks_check};
}

void group_open(group *g, test_rank *rank, const group_kind *kind) {
    group_prepare(g, rank, kind);
    RANK_OK(rank, g->ops->open(&g->args, &g->endpoint));
}

void group_close(group *g) {
    g->ops->close(g->endpoint);
    shadows_free(g);
    g->device_ops->close(g->device);
    dlc_settings_free(g->settings);
    dlc_free(g->places);
    plugins_close();
}

/* ---- Messages ---------------------------------------------------------------- */

void group_send(group *g, int to, dlc_tag tag, const void *buffer, size_t bytes,
                dlc_request **request) {
    void *at = (void *)buffer;
    shadow *s = g->device_memory ? shadow_begin(g, at, bytes, &at) : NULL;
    RANK_OK(g->rank, g->ops->send(g->endpoint, to, tag, at, bytes, request));
    if (s)
        shadow_keep(s, *request, 0);
}

void group_recv(group *g, int from, dlc_tag tag, void *buffer, size_t bytes,
                dlc_request **request) {
    void *at = buffer;
    shadow *s = g->device_memory ? shadow_begin(g, at, bytes, &at) : NULL;
    RANK_OK(g->rank, g->ops->recv(g->endpoint, from, tag, at, bytes, request));
    if (s)
        shadow_keep(s, *request, 1);
}

dlc_status group_finish(group *g, dlc_request *request) {
    dlc_status status = g->ops->wait(g->endpoint, request);
    /* A request in flight when the job ends stays until close. */
    if (g->device_memory && ranks_check(g->rank) == DLC_OK)
        shadow_done(g, request, status);
    return status;
}

void group_wait(group *g, dlc_request *request) {
    RANK_OK(g->rank, group_finish(g, request));
}

dlc_status group_test(group *g, dlc_request *request, int *done) {
    dlc_status status = g->ops->test(g->endpoint, request, done);
    if (g->device_memory && status == DLC_OK && *done)
        shadow_done(g, request, status);
    return status;
}

/* ---- Collectives ------------------------------------------------------------- */

typedef dlc_status collective(dlc_endpoint *endpoint, float *buffer, size_t count);

static dlc_status collect(group *g, collective *call, float *buffer, size_t count) {
    void *at = buffer;
    shadow *s = g->device_memory ? shadow_begin(g, at, count * sizeof *buffer, &at)
                                 : NULL;
    dlc_status status = call(g->endpoint, at, count);
    if (s)
        shadow_end(g, s, status == DLC_OK);
    return status;
}

dlc_status group_all_reduce(group *g, float *buffer, size_t count) {
    return collect(g, g->ops->all_reduce, buffer, count);
}

dlc_status group_reduce_scatter(group *g, float *buffer, size_t count) {
    return collect(g, g->ops->reduce_scatter, buffer, count);
}

dlc_status group_all_gather(group *g, float *buffer, size_t count) {
    return collect(g, g->ops->all_gather, buffer, count);
}

dlc_status group_broadcast(group *g, int32_t root, void *buffer, size_t bytes) {
    void *at = buffer;
    shadow *s = g->device_memory ? shadow_begin(g, buffer, bytes, &at) : NULL;
    dlc_status status = g->ops->broadcast(g->endpoint, root, at, bytes);
    if (s)
        shadow_end(g, s, status == DLC_OK);
    return status;
}

/* ---- Test data ----------------------------------------------------------------- */

/* A byte that depends on everything; cheap, since 64 MiB are filled with it. */
static unsigned char byte_at(size_t i, uint64_t key) {
    return (unsigned char)((i * 0x9e3779b97f4a7c15u + key) >> 56);
}

static uint64_t key_of(int from, int to, uint64_t what) {
    return ((uint64_t)from * 131 + (uint64_t)to * 17 + what) * 0xd1342543de82ef95u;
}

void group_write(void *buffer, size_t bytes, int from, int to, uint64_t what) {
    unsigned char *at = buffer;
    for (size_t i = 0; i < bytes; i++)
        at[i] = byte_at(i, key_of(from, to, what));
}

int group_is(const void *buffer, size_t bytes, int from, int to, uint64_t what) {
    const unsigned char *at = buffer;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != byte_at(i, key_of(from, to, what))) {
            fprintf(stderr, "message %llu from %d to %d: byte %zu of %zu is wrong\n",
                    (unsigned long long)what, from, to, i, bytes);
            return 0;
        }
    return 1;
}
