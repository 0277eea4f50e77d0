/* Tests the choice of transports (core/comm/choose.c): the best score wins, and each
 * rejection has its reason. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/choose.h"
#include "config/config.h"

static dlc_registry *registry;
static dlc_transport_choice choice;
static dlc_rank_info rank_info[5];
static dlc_transport_args args;

static void setup(void) {
    ck_assert_int_eq(setenv("DLCORE_PLUGIN_PATH", TEST_PLUGINS, 1), 0);
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
    choice = (dlc_transport_choice){0};
    for (int i = 0; i < 5; i++)
        rank_info[i] = (dlc_rank_info){.size = sizeof *rank_info, .package = -1};
    args = (dlc_transport_args){
        .size = sizeof args, .ranks = 2, .rank_info = rank_info};
}

static void teardown(void) {
    dlc_transport_choice_free(&choice);
    dlc_registry_close(registry);
}

static dlc_status choose(const char *wanted) {
    return dlc_transport_choose(registry, wanted, "cpu", &args, NULL, NULL, &choice);
}

START_TEST(best_score) {
    dlc_text text = {0};
    ck_assert_int_eq(choose("auto"), DLC_OK);
    ck_assert_str_eq(choice.feature->name, "better");
    dlc_transport_choice_text(&choice, &text);
    ck_assert_str_eq(dlc_text_string(&text),
                     "transport: better: fast, 2 ranks\n"
                     "    not good: slower here (20 against 60): slow but sure, 2 "
                     "ranks\n"
                     "    not far: rank 1 is out of reach\n"
                     "    not broken: the adapter does not answer\n"
                     "    not near: package of rank 0 not known\n"
                     "    not elsewhere: works with abacus, not with cpu\n");
    dlc_text_free(&text);
}
END_TEST

START_TEST(by_name) {
    ck_assert_int_eq(choose("good"), DLC_OK);
    ck_assert_str_eq(choice.feature->name, "good");
    ck_assert_uint_eq(choice.verdicts, 1);
    ck_assert_int_eq(choice.verdict[0].chosen, 1);
    ck_assert_int_eq(choice.verdict[0].score, 20);
}
END_TEST

START_TEST(cannot_connect) {
    ck_assert_int_eq(choose("far"), DLC_ERR_CONFIG);
    ck_assert_str_eq(
        dlc_detail(),
        "transport far cannot connect these ranks: rank 1 is out of reach");
    ck_assert_ptr_null(choice.feature);
}
END_TEST

START_TEST(fails_to_score) {
    ck_assert_int_eq(choose("broken"), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "the adapter does not answer"));
}
END_TEST

START_TEST(not_installed) {
    ck_assert_int_eq(choose("beter"), DLC_ERR_PLUGIN);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "better"));
}
END_TEST

START_TEST(nothing_installed) {
    dlc_registry_close(registry);
    ck_assert_int_eq(setenv("DLCORE_PLUGIN_PATH", "", 1), 0);
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
    ck_assert_int_eq(choose("auto"), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "none is installed"));
}
END_TEST

/* Settings are passed to the transport that they were made for. */
static dlc_status settings_of(void *context, const dlc_feature *feature,
                              const dlc_settings **settings) {
    *settings = strcmp(feature->name, "good") == 0 ? context : NULL;
    return DLC_OK;
}

static void choose_with_bonus(const char *set) {
    static const char *const sections[] = {"transport", NULL};
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_settings *settings = NULL;
    const dlc_feature *good = NULL;

    ck_assert_int_eq(
        dlc_registry_find(registry, DLC_KIND_TRANSPORT, "good", "cpu", &good), DLC_OK);
    ck_assert_int_eq(dlc_config_load(NULL, sections, &set, 1, &problems, &config),
                     DLC_OK);
    ck_assert_int_eq(
        dlc_settings_make(config, "transport", &good->options, 1, &problems, &settings),
        DLC_OK);
    ck_assert_int_eq(dlc_problems_report(&problems), DLC_OK);
    ck_assert_int_eq(dlc_transport_choose(registry, "auto", "cpu", &args, settings_of,
                                          settings, &choice),
                     DLC_OK);
    dlc_settings_free(settings);
    dlc_config_free(config);
    dlc_problems_free(&problems);
}

START_TEST(settings_count) {
    choose_with_bonus("transport.bonus=70");
    ck_assert_str_eq(choice.feature->name, "good");
    ck_assert_int_eq(choice.verdict[0].score, 90);
}
END_TEST

START_TEST(first_of_equals) {
    choose_with_bonus("transport.bonus=40");
    ck_assert_str_eq(choice.feature->name, "good");
    ck_assert_int_eq(choice.verdict[0].score, choice.verdict[1].score);
}
END_TEST

/* Puts the ranks on these nodes. */
static void nodes(int ranks, const int *node) {
    args.ranks = ranks;
    for (int i = 0; i < ranks; i++) {
        rank_info[i].package = 0;
        rank_info[i].node = node[i];
    }
}

static void check_name(const char *name) {
    dlc_text text = {0};
    dlc_transport_choice_name(&choice, &text);
    ck_assert_str_eq(dlc_text_string(&text), name);
    dlc_text_free(&text);
}

START_TEST(two_levels) {
    dlc_text text = {0};
    nodes(5, (int[]){3, 3, 1, 1, 3});
    ck_assert_int_eq(choose("auto"), DLC_OK);
    check_name("near+better");
    dlc_transport_choice_text(&choice, &text);
    static const char begins[] = "transport: near inside the nodes: one node, 3 ranks\n"
                                 "transport: better between the nodes: fast, 2 ranks\n"
                                 "    not good: slower here: slow but sure, 5 ranks\n";
    ck_assert_msg(strncmp(dlc_text_string(&text), begins, sizeof begins - 1) == 0, "%s",
                  dlc_text_string(&text));
    ck_assert_ptr_nonnull(
        strstr(dlc_text_string(&text), "    not near: rank 2 is on another node\n"));
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&text),
                                 "    not near between the nodes: rank 1 is on another "
                                 "node\n"));
    dlc_text_free(&text);
}
END_TEST

/* Inside the nodes, the lowest score of any node counts; nodes of one rank are not
 * asked.
 */
START_TEST(lowest_of_the_nodes) {
    static const char *const expected[] = {"better", "better", "better", "better",
                                           "near+better"};
    for (int unknown = 0; unknown < 5; unknown++) {
        dlc_text text = {0};
        nodes(5, (int[]){0, 0, 1, 1, 2});
        rank_info[unknown].package = -1;
        ck_assert_int_eq(choose("auto"), DLC_OK);
        check_name(expected[unknown]);
        dlc_transport_choice_text(&choice, &text);
        ck_assert_int_eq(strstr(dlc_text_string(&text),
                                "    not near inside the nodes: package of rank ") !=
                             NULL,
                         unknown < 4);
        dlc_text_free(&text);
        dlc_transport_choice_free(&choice);
    }
}
END_TEST

/* Nodes of one rank have no level inside; one node has none between. */
START_TEST(one_level) {
    nodes(3, (int[]){0, 1, 2});
    ck_assert_int_eq(choose("auto"), DLC_OK);
    check_name("better");
    dlc_transport_choice_free(&choice);
    nodes(3, (int[]){0, 0, 0});
    ck_assert_int_eq(choose("auto"), DLC_OK);
    check_name("near");
}
END_TEST

START_TEST(two_names) {
    nodes(3, (int[]){0, 0, 1});
    ck_assert_int_eq(choose("near+good"), DLC_OK);
    check_name("near+good");
    dlc_transport_choice_free(&choice);
    ck_assert_int_eq(choose("near+near"), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(),
                     "transport near cannot connect these ranks between the "
                     "nodes: rank 1 is on another node");
    ck_assert_ptr_null(choice.feature);
    dlc_transport_choice_free(&choice);
    ck_assert_int_eq(choose("near+gud"), DLC_ERR_PLUGIN);
    dlc_transport_choice_free(&choice);
    nodes(3, (int[]){0, 1, 2});
    ck_assert_int_eq(choose("near+good"), DLC_OK);
    check_name("good");
    dlc_transport_choice_free(&choice);
    nodes(3, (int[]){4, 4, 4});
    ck_assert_int_eq(choose("near+good"), DLC_OK);
    check_name("near");
}
END_TEST

START_TEST(no_memory) {
    for (size_t n = 1;; n++) {
        (void)dlc_memory_fail_at(n);
        dlc_status status = choose("auto");
        size_t made = dlc_memory_fail_at(0);
        dlc_transport_choice_free(&choice);
        if (made < n) {
            ck_assert_int_eq(status, DLC_OK);
            break;
        }
        ck_assert_int_eq(status, DLC_ERR_NOMEM);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("choose");
    TCase *tests = tcase_create("choose");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, best_score);
    tcase_add_test(tests, by_name);
    tcase_add_test(tests, cannot_connect);
    tcase_add_test(tests, fails_to_score);
    tcase_add_test(tests, not_installed);
    tcase_add_test(tests, nothing_installed);
    tcase_add_test(tests, settings_count);
    tcase_add_test(tests, first_of_equals);
    tcase_add_test(tests, two_levels);
    tcase_add_test(tests, lowest_of_the_nodes);
    tcase_add_test(tests, one_level);
    tcase_add_test(tests, two_names);
    tcase_add_test(tests, no_memory);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
