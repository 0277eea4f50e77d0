/* What is refused, and how it ends when others are gone. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "rig.h"
#include "support/plugins.h"
#include "support/scratch.h"

static test_rig job;

static void open_job(int32_t ranks, const char *const *sets) {
    rig_cut cut;
    rig_cut_make(5, 100, 3, &cut);
    rig_open(&job, ranks, ranks, &cut, sets);
}

/* ---- Settings ---------------------------------------------------------------- */

static const struct {
    const char *set, *sentence;
} refused[] = {
    {"staleness=1.5", "staleness = 1.5 is a number of iterations: 0, 1, 2, ... or inf"},
    {"clip_gradients=1", "clip_gradients needs the length of the whole gradient"},
    {"policy=step", "policy = step needs step_size"},
};

START_TEST(refuses_settings) {
    const dlc_feature *feature = plugin_find(DLC_KIND_SOLVER, "ssp");
    const dlc_solver_ops *ops = feature->ops;
    const char *const sets[] = {refused[_i].set, NULL};
    dlc_settings *settings = plugin_settings(feature, sets);
    dlc_solver_needs needs = {.size = sizeof needs, .micro_batches = 1};
    ck_assert_int_eq(ops->needs(settings, &needs), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), refused[_i].sentence);
    dlc_settings_free(settings);
    plugins_close();
}
END_TEST

START_TEST(needs_mail_and_servers) {
    static const char *const sets[] = {"servers=2", "accumulate=4", NULL};
    open_job(3, sets);
    ck_assert_int_eq(job.needs.mail, 1);
    ck_assert_int_eq(job.needs.late, 1);
    ck_assert_int_eq(job.needs.servers, 2);
    ck_assert_int_eq(job.needs.micro_batches, 4);
    ck_assert_int_eq(job.needs.slots, 2);
    ck_assert_uint_eq(job.needs.slot_saved, 1);
    ck_assert_str_eq(job.needs.slot_name[0], "momentum");
    rig_close(&job);
}
END_TEST

static const struct {
    const char *set, *sentence;
    dlc_status status;
} impossible[] = {
    {"servers=3", "servers = 3 of 3 ranks leave nobody to compute", DLC_ERR_CONFIG},
    {"groups=4", "groups = 4 of 3 ranks that compute", DLC_ERR_CONFIG},
    {"trace=/no/such/folder/trace", "the trace /no/such/folder/trace.0 cannot be",
     DLC_ERR_IO},
};

START_TEST(refuses_what_ranks_cannot_do) {
    const char *const sets[] = {impossible[_i].set, NULL};
    open_job(3, sets);
    ck_assert_int_eq(rig_create(&job.rank[0]), impossible[_i].status);
    ck_contains(dlc_detail(), impossible[_i].sentence);
    ck_assert_ptr_null(job.rank[0].solver);
    rig_close(&job);
}
END_TEST

START_TEST(create_survives_lack_of_memory) {
    static const char *const sets[] = {NULL};
    size_t n = 1;
    open_job(3, sets);
    for (;; n++) {
        dlc_memory_fail_at(n);
        dlc_status status = rig_create(&job.rank[1]);
        dlc_memory_fail_at(0);
        if (status == DLC_OK)
            break;
        ck_assert_int_eq(status, DLC_ERR_NOMEM);
        ck_assert_ptr_null(job.rank[1].solver);
    }
    ck_assert_uint_ge(n, 30);
    sim_end(&job.sim);
    job.ops->destroy(job.rank[1].solver);
    rig_close(&job);
}
END_TEST

/* ---- The end ----------------------------------------------------------------- */

enum { GONE = 2, LIVES = 30 };

/* The others wait for it, in an iteration or at a meeting, until the job ends. */
static void loses_a_rank(rig_rank *rank) {
    dlc_status status = DLC_OK;
    for (int64_t i = 0; status == DLC_OK && i < 1000; i++) {
        float tail[RIG_TAIL] = {0};
        if (rank->me == GONE && i == LIVES) {
            (void)usleep(30000);
            sim_end(&job.sim);
            return;
        }
        status = rig_iterate(rank, i, tail);
        if (status == DLC_OK && i == LIVES - 1 && job.needs.servers)
            status = job.ops->meet(rank->solver, LIVES);
    }
    ck_assert_int_eq(status, DLC_ERR_PEER);
    ck_assert_str_eq(dlc_detail(), "the job is ending");
}

static const char *const stalenesses[] = {"staleness=0", "staleness=2",
                                          "staleness=inf"};

START_TEST(ends_with_the_job) {
    const char *const sets[] = {stalenesses[_i % 3], _i > 2 ? "servers=1" : NULL, NULL};
    open_job(4, sets);
    job.sim.delay = 100e-6;
    rig_run(&job, loses_a_rank);
    rig_close(&job);
}
END_TEST

/* Nobody else is there at all. */
START_TEST(is_destroyed_unused) {
    static const char *const sets[] = {"staleness=1", NULL};
    open_job(2, sets);
    ck_assert_int_eq(rig_create(&job.rank[0]), DLC_OK);
    job.ops->destroy(job.rank[0].solver);
    job.ops->destroy(NULL);
    rig_close(&job);
}
END_TEST

/* A peer that writes what no solver would. */
static void *write_nonsense(void *unused) {
    const dlc_mail *mail = &job.sim.rank[1].mail;
    enum { LETTER = 48 + 2 * 8 }; /* of two workers */
    char letter[LETTER];
    dlc_request *request;
    int32_t which;
    (void)unused;
    memset(letter, 0x7f, sizeof letter);
    ck_assert_int_eq(mail->send(mail->context, 0, 0, letter, sizeof letter, &request),
                     DLC_OK);
    ck_assert_int_eq(mail->wait_any(mail->context, &request, 1, 10, &which), DLC_OK);
    return NULL;
}

START_TEST(refuses_nonsense) {
    static const char *const sets[] = {"staleness=0", NULL};
    float tail[RIG_TAIL] = {0};
    pthread_t writer;
    open_job(2, sets);
    ck_assert_int_eq(rig_create(&job.rank[0]), DLC_OK);
    ck_assert_int_eq(pthread_create(&writer, NULL, write_nonsense, NULL), 0);
    ck_assert_int_eq(rig_iterate(&job.rank[0], 0, tail), DLC_ERR_INTERNAL);
    ck_contains(dlc_detail(), "rank 1 sent what makes no sense");
    pthread_join(writer, NULL);
    job.ops->destroy(job.rank[0].solver);
    rig_close(&job);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ssp ends");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, refuses_settings, 0, sizeof refused / sizeof *refused);
    tcase_add_test(all, needs_mail_and_servers);
    tcase_add_loop_test(all, refuses_what_ranks_cannot_do, 0,
                        sizeof impossible / sizeof *impossible);
    tcase_add_test(all, create_survives_lack_of_memory);
    tcase_add_loop_test(all, ends_with_the_job, 0, 6);
    tcase_add_test(all, is_destroyed_unused);
    tcase_add_test(all, refuses_nonsense);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
