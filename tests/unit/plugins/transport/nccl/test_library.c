/* What the transport says of the NCCL that is there: NCCL_EXPECT. Nothing more happens:
 * a library that cannot be used is a reason, no error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/transport.h>

#include "base/status.h"
#include "support/plugins.h"
#include "support/test.h"

static dlc_rank_info place[4];
static char reason[256];

/* The predicted bandwidth in GB/s; the link has 100. */
static double predict_messages(int ranks, int32_t tagged) {
    const dlc_transport_ops *ops = plugin_find(DLC_KIND_TRANSPORT, "nccl")->ops;
    dlc_transport_args args = {.size = sizeof args,
                               .ranks = ranks,
                               .rank_info = place,
                               .tagged_messages = tagged,
                               .link_bandwidth = 100e9};
    dlc_transport_prediction made = {.size = sizeof made};
    ck_assert_int_eq(ops->predict(&args, &made, reason, sizeof reason), DLC_OK);
    return made.bandwidth / 1e9;
}

static double predict(int ranks) {
    return predict_messages(ranks, 0);
}

/* Ranks of one node, each on a GPU of its own. */
static void setup(void) {
    for (int i = 0; i < 4; i++) {
        place[i] = (dlc_rank_info){.size = sizeof place[i], .device_index = i};
        snprintf(place[i].device, sizeof place[i].device, "cuda");
    }
    ck_assert_int_eq(unsetenv("NCCL_HOSTID"), 0);
}

#define REASON(words) \
    ck_assert_msg(strstr(reason, (words)) != NULL, "\"%s\" has no \"%s\"", reason, \
                  (words))

TEST_SETTINGS(.setup = setup, .teardown = plugins_close);

TEST(the_library_is_told_of) {
    const char *expected = getenv("NCCL_EXPECT");
    ck_assert_ptr_nonnull(expected);
    int usable = strstr(expected, "GPUs") != NULL;
    ck_assert_double_eq_tol(predict(2), usable ? 85 : 0, 1e-6);
    REASON(expected);
    if (!usable)
        REASON("NCCL cannot be used here");
}

TEST(processors_are_refused) {
    snprintf(place[2].device, sizeof place[2].device, "cpu");
    ck_assert_double_eq(predict(3), 0);
    REASON("rank 2 computes on cpu");
}

/* Ranks in different iterations need the tags, which NCCL does not have. */
TEST(tags_are_refused) {
    ck_assert_double_eq(predict_messages(2, 1), 0);
    REASON("NCCL matches messages by their order");
}

TEST(one_gpu_twice_is_refused) {
    place[3].device_index = 1;
    ck_assert_double_eq(predict(4), 0);
    REASON("ranks 1 and 3 share GPU 1");
    place[3].node = 1; /* another machine's */
    if (strstr(getenv("NCCL_EXPECT"), "GPUs")) {
        ck_assert_double_gt(predict(4), 100); /* two adapters a machine */
        REASON("4 GPUs on 2 nodes");
        place[3].node = 0;
        ck_assert_int_eq(setenv("NCCL_HOSTID", "a", 1), 0);
        ck_assert_double_gt(predict(4), 50);
    }
}
