/* Tests the choice of transports (core/comm/choose.c): what is predicted to be fastest
 * wins, and each rejection has its reason. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/choose.h"
#include "config/config.h"
#include "support/test.h"

static dlc_registry *registry;
static dlc_transport_choice choice;
static dlc_rank_info rank_info[8];
static dlc_transport_args args;

static void setup(void) {
    ck_assert_int_eq(setenv("DLCORE_PLUGIN_PATH", TEST_PLUGINS, 1), 0);
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
    choice = (dlc_transport_choice){0};
    for (int i = 0; i < 8; i++)
        rank_info[i] = (dlc_rank_info){.size = sizeof *rank_info, .package = -1};
    args = (dlc_transport_args){
        .size = sizeof args, .ranks = 2, .rank_info = rank_info};
}

static void teardown(void) {
    dlc_transport_choice_free(&choice);
    dlc_registry_close(registry);
}

static dlc_choose_args choosing(const char *wanted) {
    return (dlc_choose_args){
        .registry = registry, .wanted = wanted, .device = "cpu", .group = &args};
}

static dlc_status choose(const char *wanted) {
    const dlc_choose_args how = choosing(wanted);
    return dlc_transport_choose(&how, &choice);
}

static void check_chosen(const char *name) {
    dlc_text text = {0};
    dlc_transport_choice_name(&choice, &text);
    ck_assert_str_eq(dlc_text_string(&text), name);
    dlc_text_free(&text);
}

TEST_SETTINGS(.setup = setup, .teardown = teardown);

TEST(fastest) {
    dlc_text text = {0};
    ck_assert_int_eq(choose("auto"), DLC_OK);
    check_chosen("better");
    dlc_transport_choice_text(&choice, &text);
    ck_assert_str_eq(dlc_text_string(&text),
                     "transport: better: fast, 2 ranks\n"
                     "    predicted 10.7 ms to reduce 64 MB; next best: good, 32 ms\n"
                     "    not good: slower, 32 ms against 10.7 ms: slow but sure, 2 "
                     "ranks\n"
                     "    not far: rank 1 is out of reach\n"
                     "    not broken: the adapter does not answer\n"
                     "    not near: package of rank 0 not known\n"
                     "    not elsewhere: works with abacus, not with cpu\n");
    dlc_text_free(&text);
}

TEST(by_name) {
    ck_assert_int_eq(choose("good"), DLC_OK);
    check_chosen("good");
    ck_assert_uint_eq(choice.verdicts, 1);
    ck_assert_int_eq(choice.verdict[0].chosen, 1);
    ck_assert_double_eq_tol(choice.verdict[0].seconds, 32e-3, 1e-4);
}

TEST(cannot_connect) {
    ck_assert_int_eq(choose("far"), DLC_ERR_CONFIG);
    ck_assert_str_eq(
        dlc_detail(),
        "transport far cannot connect these ranks: rank 1 is out of reach");
    ck_assert_int_eq(choice.levels, 0);
}

TEST(fails_to_predict) {
    ck_assert_int_eq(choose("broken"), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "the adapter does not answer"));
}

TEST(not_installed) {
    ck_assert_int_eq(choose("beter"), DLC_ERR_PLUGIN);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "better"));
}

TEST(nothing_installed) {
    dlc_registry_close(registry);
    ck_assert_int_eq(setenv("DLCORE_PLUGIN_PATH", "", 1), 0);
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
    ck_assert_int_eq(choose("auto"), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "none is installed"));
}

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
    dlc_choose_args how = choosing("auto");
    how.settings_of = settings_of;
    how.context = settings;
    ck_assert_int_eq(dlc_transport_choose(&how, &choice), DLC_OK);
    dlc_settings_free(settings);
    dlc_config_free(config);
    dlc_problems_free(&problems);
}

TEST(settings_count) {
    choose_with_bonus("transport.bonus=70");
    check_chosen("good");
    ck_assert_double_eq_tol(choice.seconds, 7.11e-3, 1e-4);
}

TEST(first_of_equals) {
    choose_with_bonus("transport.bonus=40");
    check_chosen("good");
    ck_assert_double_eq(choice.verdict[0].seconds, choice.verdict[1].seconds);
}

/* A transport that was tried is judged by what was found. */
TEST(findings_count) {
    const dlc_comm_scope all = {DLC_SCOPE_RANKS, DLC_DOMAIN_JOB};
    const dlc_comm_scope inside = {DLC_SCOPE_RANKS, DLC_DOMAIN_MACHINE};
    dlc_transport_finding finding[] = {{"better", inside, 0, "of another scope", 0},
                                       {"better", all, 10, "it crawls", 0}};
    dlc_choose_args how = choosing("auto");
    how.finding = finding;
    how.findings = 1;
    ck_assert_int_eq(dlc_transport_choose(&how, &choice), DLC_OK);
    check_chosen("better");
    dlc_transport_choice_free(&choice);
    how.findings = 2;
    ck_assert_int_eq(dlc_transport_choose(&how, &choice), DLC_OK);
    check_chosen("good");
    ck_assert_double_eq_tol(choice.next_seconds, 0.107, 1e-3);
    ck_assert_double_eq_tol(choice.level[0].path.link_bandwidth, 1e10, 1);
    ck_assert_double_eq_tol(choice.level[0].path.prediction.bandwidth, 2e9, 1);
    dlc_transport_choice_free(&choice);
    finding[0].everywhere = 1;
    how.findings = 1;
    ck_assert_int_eq(dlc_transport_choose(&how, &choice), DLC_OK);
    check_chosen("good");
    dlc_transport_choice_free(&choice);
    finding[0].everywhere = 0;
    how.findings = 2;
    finding[1].slowdown = 0;
    how.wanted = "better";
    ck_assert_int_eq(dlc_transport_choose(&how, &choice), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(),
                     "transport better cannot connect these ranks: it crawls");
}

/* Puts the ranks on these nodes. */
static void nodes(int ranks, const int *node) {
    args.ranks = ranks;
    for (int i = 0; i < ranks; i++) {
        rank_info[i].package = 0;
        rank_info[i].node = node[i];
    }
}

TEST(two_levels) {
    dlc_text text = {0};
    nodes(5, (int[]){3, 3, 1, 1, 3});
    ck_assert_int_eq(choose("auto"), DLC_OK);
    check_chosen("near+better");
    dlc_transport_choice_text(&choice, &text);
    static const char begins[] = "transport: near inside the nodes: one node, 3 ranks\n"
                                 "transport: better between the nodes: fast, 2 ranks\n"
                                 "    predicted ";
    ck_assert_msg(strncmp(dlc_text_string(&text), begins, sizeof begins - 1) == 0, "%s",
                  dlc_text_string(&text));
    ck_assert_ptr_nonnull(
        strstr(dlc_text_string(&text), "    not near: rank 2 is on another node\n"));
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&text),
                                 "    not near between the nodes: rank 1 is on another "
                                 "node\n"));
    ck_assert_ptr_nonnull(
        strstr(dlc_text_string(&text), "; next best: better+better, "));
    ck_assert_ptr_nonnull(strstr(dlc_text_string(&text), "    not good: slower, "));
    dlc_text_free(&text);
}

/* Inside the nodes, the slowest node counts; nodes of one rank are not
 * asked.
 */
TEST(slowest_of_the_nodes) {
    static const char *const expected[] = {"better+better", "better+better",
                                           "better+better", "better+better",
                                           "near+better"};
    for (int unknown = 0; unknown < 5; unknown++) {
        dlc_text text = {0};
        nodes(5, (int[]){0, 0, 1, 1, 2});
        rank_info[unknown].package = -1;
        ck_assert_int_eq(choose("auto"), DLC_OK);
        check_chosen(expected[unknown]);
        dlc_transport_choice_text(&choice, &text);
        ck_assert_int_eq(strstr(dlc_text_string(&text),
                                "    not near inside the nodes: package of rank ") !=
                             NULL,
                         unknown < 4);
        dlc_text_free(&text);
        dlc_transport_choice_free(&choice);
    }
}

/* Nodes of one rank have no level inside; one node has none between. */
TEST(one_level) {
    nodes(3, (int[]){0, 1, 2});
    ck_assert_int_eq(choose("auto"), DLC_OK);
    check_chosen("better");
    dlc_transport_choice_free(&choice);
    nodes(3, (int[]){0, 0, 0});
    ck_assert_int_eq(choose("auto"), DLC_OK);
    check_chosen("near");
}

TEST(two_names) {
    nodes(3, (int[]){0, 0, 1});
    ck_assert_int_eq(choose("near+good"), DLC_OK);
    check_chosen("near+good");
    dlc_transport_choice_free(&choice);
    ck_assert_int_eq(choose("near+near"), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(),
                     "transport near cannot connect these ranks between the "
                     "nodes: rank 1 is on another node");
    ck_assert_int_eq(choice.levels, 0);
    dlc_transport_choice_free(&choice);
    ck_assert_int_eq(choose("near+gud"), DLC_ERR_PLUGIN);
    dlc_transport_choice_free(&choice);
    nodes(3, (int[]){0, 1, 2});
    ck_assert_int_eq(choose("near+good"), DLC_OK);
    check_chosen("good");
    dlc_transport_choice_free(&choice);
    nodes(3, (int[]){4, 4, 4});
    ck_assert_int_eq(choose("near+good"), DLC_OK);
    check_chosen("near");
}

/* Two racks of two nodes of two ranks. */
static void racks(void) {
    nodes(8, (int[]){0, 0, 1, 1, 2, 2, 3, 3});
    for (int i = 0; i < 8; i++)
        rank_info[i].domain[DLC_DOMAIN_RACK] = i / 4;
}

TEST(three_names) {
    racks();
    ck_assert_int_eq(choose("near+good+better"), DLC_OK);
    check_chosen("near+good+better");
    ck_assert_int_eq(choice.level[0].scope.within, DLC_DOMAIN_MACHINE);
    ck_assert_int_eq(choice.level[1].scope.below, DLC_DOMAIN_MACHINE);
    ck_assert_int_eq(choice.level[1].scope.within, DLC_DOMAIN_RACK);
    ck_assert_int_eq(choice.level[2].scope.below, DLC_DOMAIN_RACK);
    dlc_transport_choice_free(&choice);
    for (int i = 0; i < 8; i++)
        rank_info[i].domain[DLC_DOMAIN_RACK] = 0; /* no level between racks */
    ck_assert_int_eq(choose("near+good+better"), DLC_OK);
    check_chosen("near+better");
    dlc_transport_choice_free(&choice);
    ck_assert_int_eq(choose("near+good+better+good"), DLC_ERR_CONFIG);
}

/* The link between racks carries every byte once for each of them. */
TEST(levels_of_racks) {
    racks();
    ck_assert_int_eq(choose("auto"), DLC_OK);
    check_chosen("near+better+better");
    ck_assert_int_eq(choice.level[0].scope.within, DLC_DOMAIN_MACHINE);
    ck_assert_int_eq(choice.level[1].scope.within, DLC_DOMAIN_RACK);
}

/* A level that changes nothing is none: every machine is a rack, or all are in one. */
TEST(fewest_levels) {
    for (int one = 0; one < 2; one++) {
        racks();
        for (int i = 0; i < 8; i++)
            rank_info[i].domain[DLC_DOMAIN_RACK] = one ? 0 : rank_info[i].node;
        ck_assert_int_eq(choose("auto"), DLC_OK);
        check_chosen("near+better");
        dlc_transport_choice_free(&choice);
    }
}

/* The cost of the caller decides: where only latency counts, one level is best. */
static double latency_only(const dlc_transport_prediction *p, double bytes) {
    (void)bytes;
    return p->latency;
}

TEST(cost_of_the_caller) {
    nodes(4, (int[]){0, 0, 1, 1});
    dlc_choose_args how = choosing("auto");
    how.cost = latency_only;
    how.bytes = 5;
    ck_assert_int_eq(dlc_transport_choose(&how, &choice), DLC_OK);
    ck_assert_int_eq(choice.levels, 2); /* a tree of 4 ranks has 2 levels, too */
    ck_assert_double_eq(choice.bytes, 5);
}

TEST(no_memory) {
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
