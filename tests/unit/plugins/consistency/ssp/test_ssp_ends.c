/* Consistency model ssp: settings that are refused, and how ranks end when another rank
 * is lost.
 */
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "fixture.h"
#include "support/plugins.h"
#include "support/scratch.h"
#include "support/test.h"

static test_fixture job;

static void open_job(int32_t ranks, const char *const *sets) {
    fixture_cut cut;
    fixture_cut_make(5, 100, 3, &cut);
    static rules_choice adam = {
        .learning_rate = 0.01f, .gamma = 1, .own = {0.9f, 0.99f, 1e-8f}};
    adam.rule = rules_adam;
    fixture_open(&job, ranks, ranks, &cut, &adam, sets);
}

/* ---- Settings ---------------------------------------------------------------- */

static const struct {
    const char *set, *sentence;
} refused[] = {
    {"staleness=1.5", "staleness = 1.5 is a number of iterations: 0, 1, 2, ... or inf"},
    {"staleness=1e10", "staleness = 1e+10 is a number of iterations"},
};

TEST_EACH(refuses_settings, COUNT(refused)) {
    const dlc_feature *feature = plugin_find(DLC_KIND_CONSISTENCY, "ssp");
    const dlc_consistency_ops *ops = feature->ops;
    const char *const sets[] = {refused[_i].set, NULL};
    dlc_settings *settings = plugin_settings(feature, sets);
    dlc_consistency_needs needs = {.size = sizeof needs};
    ck_assert_int_eq(ops->needs(settings, &needs), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), refused[_i].sentence);
    dlc_settings_free(settings);
    plugins_close();
}

TEST(needs_p2p_channel_and_servers) {
    static const char *const sets[] = {"servers=2", NULL};
    open_job(3, sets);
    ck_assert_int_eq(job.needs.p2p_channel, 1);
    ck_assert_int_eq(job.needs.deferred_update, 1);
    ck_assert_int_eq(job.needs.servers, 2);
    ck_assert_int_eq(job.needs.allows_skew, 0);
    fixture_close(&job);
}

TEST(ranks_skew_only_with_staleness) {
    static const char *const sets[] = {"staleness=1", NULL};
    open_job(3, sets);
    ck_assert_int_eq(job.needs.allows_skew, 1);
    fixture_close(&job);
}

static const struct {
    const char *set, *sentence;
    dlc_status status;
} impossible[] = {
    {"servers=3", "servers = 3 of 3 ranks leaves no rank to compute", DLC_ERR_CONFIG},
    {"groups=4", "groups = 4, but only 3 ranks compute", DLC_ERR_CONFIG},
    {"trace=/no/such/folder/trace", "cannot write the trace /no/such/folder/trace.0",
     DLC_ERR_IO},
};

TEST_EACH(refuses_impossible_ranks, COUNT(impossible)) {
    const char *const sets[] = {impossible[_i].set, NULL};
    open_job(3, sets);
    ck_assert_int_eq(fixture_create(&job.rank[0]), impossible[_i].status);
    ck_contains(dlc_detail(), impossible[_i].sentence);
    ck_assert_ptr_null(job.rank[0].model);
    fixture_close(&job);
}

TEST(create_survives_lack_of_memory) {
    static const char *const sets[] = {"staleness=1", NULL};
    size_t n = 1;
    open_job(3, sets);
    for (;; n++) {
        dlc_memory_fail_at(n);
        dlc_status status = fixture_create(&job.rank[1]);
        dlc_memory_fail_at(0);
        if (status == DLC_OK)
            break;
        ck_assert_int_eq(status, DLC_ERR_NOMEM);
        ck_assert_ptr_null(job.rank[1].model);
    }
    ck_assert_uint_ge(n, 30);
    fake_end(&job.fake);
    job.ops->destroy(job.rank[1].model);
    fixture_close(&job);
}

/* ---- A lost rank ------------------------------------------------------------- */

enum { GONE = 2, LIVES = 30 };

/* The other ranks wait for the lost one, in an iteration or a synchronization, until
 * the job ends. */
static void loses_a_rank(fixture_rank *rank) {
    dlc_status status = DLC_OK;
    for (int64_t i = 0; status == DLC_OK && i < 1000; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {0};
        if (rank->me == GONE && i == LIVES) {
            (void)usleep(30000);
            fake_end(&job.fake);
            return;
        }
        status = fixture_iterate(rank, i, control);
        if (status == DLC_OK && i == LIVES - 1 && job.needs.servers)
            status = job.ops->synchronize(rank->model, LIVES);
    }
    ck_assert_int_eq(status, DLC_ERR_PEER);
    ck_assert_str_eq(dlc_detail(), "the job is ending");
}

static const char *const stalenesses[] = {"staleness=0", "staleness=2",
                                          "staleness=inf"};

TEST_EACH(ends_with_the_job, 6) {
    const char *const sets[] = {stalenesses[_i % 3], _i > 2 ? "servers=1" : NULL, NULL};
    open_job(4, sets);
    job.fake.delay = 100e-6;
    fixture_run(&job, loses_a_rank);
    fixture_close(&job);
}

/* The other rank never starts. */
TEST(is_destroyed_unused) {
    static const char *const sets[] = {"staleness=1", NULL};
    open_job(2, sets);
    ck_assert_int_eq(fixture_create(&job.rank[0]), DLC_OK);
    job.ops->destroy(job.rank[0].model);
    job.ops->destroy(NULL);
    fixture_close(&job);
}

/* Sends a header that no rank would send. */
static void *send_invalid_header(void *unused) {
    const dlc_p2p_channel *p2p = &job.fake.rank[1].p2p;
    enum { HEADER = 96 + 2 * 8 }; /* with the clocks of two workers */
    char header[HEADER];
    dlc_request *request;
    int32_t which;
    (void)unused;
    memset(header, 0x7f, sizeof header);
    ck_assert_int_eq(p2p->send(p2p->context, 0, 0, header, sizeof header, &request),
                     DLC_OK);
    ck_assert_int_eq(p2p->wait_any(p2p->context, &request, 1, 10, &which), DLC_OK);
    return NULL;
}

TEST(refuses_invalid_messages) {
    static const char *const sets[] = {"staleness=0", NULL};
    float control[FIXTURE_CONTROL_WORDS] = {0};
    pthread_t writer;
    open_job(2, sets);
    ck_assert_int_eq(fixture_create(&job.rank[0]), DLC_OK);
    ck_assert_int_eq(pthread_create(&writer, NULL, send_invalid_header, NULL), 0);
    ck_assert_int_eq(fixture_iterate(&job.rank[0], 0, control), DLC_ERR_INTERNAL);
    ck_contains(dlc_detail(), "rank 1 sent an invalid message");
    pthread_join(writer, NULL);
    job.ops->destroy(job.rank[0].model);
    fixture_close(&job);
}
