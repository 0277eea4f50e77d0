/* The fixture of the nccl transport tests: opens the async device and loads the
 * transport with the fake NCCL library (nccl_fixture.h). */
#include "nccl_fixture.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

#include "config/config.h"
#include "support/plugins.h"

fake_board *board;

void fixture_run(int ranks, rank_body *body) {
    if (!board)
        board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(board != MAP_FAILED);
    ck_assert_int_eq(ranks_run(ranks, 60, body, NULL), 0);
    memset(board, 0, sizeof *board);
}

void fixture_begin(nccl_fixture *r, test_rank *rank) {
    *r = (nccl_fixture){.rank = rank};
    r->device_ops = plugin_find(DLC_KIND_DEVICE, "async")->ops;
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "nccl");
    r->ops = feature->ops;
    r->settings = plugin_settings(feature, NULL);
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    void *found = library ? dlsym(library, "fake_nccl_use") : NULL;
    RANK_CHECK(rank, found != NULL);
    fake_nccl_use_fn *use;
    memcpy(&use, &found, sizeof found);
    use(board);

    dlc_device_args device = {.size = sizeof device, .threads = 1};
    RANK_OK(rank, r->device_ops->open(&device, &r->device));
    r->memory = (dlc_memory){.size = sizeof r->memory};
    RANK_OK(rank, r->device_ops->alloc(r->device, FIXTURE_FLOATS * sizeof(float),
                                       DLC_MEM_SHARED, &r->memory));
    r->buffer = r->memory.base;
    for (int i = 0; i < rank->ranks; i++) {
        r->place[i] = (dlc_rank_info){.size = sizeof r->place[i], .device_index = i};
        snprintf(r->place[i].device, sizeof r->place[i].device, "cuda");
    }
    r->args = (dlc_transport_args){.size = sizeof r->args,
                                   .rank = rank->rank,
                                   .ranks = rank->ranks,
                                   .rank_info = r->place,
                                   .settings = r->settings,
                                   .device_ops = r->device_ops,
                                   .device = r->device,
                                   .job = rank,
                                   .oob_all_gather = ranks_all_gather,
                                   .check = ranks_check};
}

void fixture_open(nccl_fixture *r, test_rank *rank) {
    fixture_begin(r, rank);
    RANK_OK(rank, r->ops->open(&r->args, &r->endpoint));
}

void fixture_close(nccl_fixture *r) {
    r->ops->close(r->endpoint);
    r->device_ops->free(r->device, &r->memory);
    r->device_ops->close(r->device);
    dlc_settings_free(r->settings);
    plugins_close();
}

void fixture_put(const nccl_fixture *r, const float *values, size_t count) {
    RANK_OK(r->rank, r->device_ops->copy(r->device, NULL, r->buffer, values,
                                         count * sizeof *values));
}

void fixture_get(const nccl_fixture *r, float *values, size_t count) {
    RANK_OK(r->rank, r->device_ops->copy(r->device, NULL, values, r->buffer,
                                         count * sizeof *values));
}
