/* Tests the graph of a net.ini with blocks: which layer reads which, and where mistakes
 * are reported; and the parameters that a test net shares with the training net. */
#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"
#include "support/plugins.h"
#include "support/scratch.h"
#include "support/test.h"

#define CONV "type = convolution\nnum_output = 4\nkernel_size = 3\npad = 1\n"
#define LOSS "[ip]\ntype = inner_product\nnum_output = 4\n[loss]\ntype = softmax_loss\n"

/* x, and the sum of it and what the block reads. */
#define RESIDUAL \
    "[block residual]\n" \
    "[residual.x]\n" CONV "[residual.sum]\ntype = eltwise\ninput = x, in\n"

/* Writes "sum <- x, data" for each layer, separated by "; ". */
static void describe(const dlc_graph *graph, char *text, size_t room) {
    *text = '\0';
    for (int32_t i = 0; i < graph->layers; i++) {
        const dlc_graph_layer *layer = &graph->layer[i];
        size_t used = strlen(text);
        snprintf(text + used, room - used, "%s%s <-", i ? "; " : "", layer->name);
        for (int32_t j = 0; j < layer->inputs; j++) {
            dlc_graph_input from = layer->input[j];
            used = strlen(text);
            snprintf(text + used, room - used, "%s%s", j ? ", " : " ",
                     from.layer < 0 ? graph->field[from.output].name
                                    : graph->layer[from.layer].name);
        }
    }
}

static void check_graph(const char *text, const char *expected) {
    net_fixture fixture;
    char found[2048];
    dlc_status status = fixture_graph(&fixture, text);
    if (status != DLC_OK)
        dlc_problems_report(&fixture.problems);
    ck_assert_int_eq(status, DLC_OK);
    describe(fixture.graph, found, sizeof found);
    ck_assert_str_eq(found, expected);
    fixture_close(&fixture);
}

TEST_SETTINGS(.setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = plugins_open);

TEST(a_block_reads_the_layer_above) {
    check_graph(RESIDUAL "[u]\nblock = residual\n" LOSS,
                "u.x <- data; u.sum <- u.x, data; ip <- u.sum; loss <- ip, label");
    check_graph(RESIDUAL "[a]\n" CONV "[u]\nblock = residual\nrepeat = 2\n" LOSS,
                "a <- data; u.1.x <- a; u.1.sum <- u.1.x, a; u.2.x <- u.1.sum; "
                "u.2.sum <- u.2.x, u.1.sum; ip <- u.2.sum; loss <- ip, label");
}

/* An auxiliary loss and layers of one phase do not count as the layer above. */
TEST(losses_do_not_count_as_above) {
    check_graph(RESIDUAL "[a]\n" CONV
                         "[side]\ntype = inner_product\nnum_output = 4\nphase = train\n"
                         "[side_loss]\ntype = softmax_loss\nphase = train\n"
                         "[u]\nblock = residual\n" LOSS,
                "a <- data; side <- a; side_loss <- side, label; u.x <- a; "
                "u.sum <- u.x, a; ip <- u.sum; loss <- ip, label");
}

TEST(a_blocks_name_is_its_last_layer) {
    check_graph(RESIDUAL "[u]\nblock = residual\nrepeat = 2\n"
                         "[v]\nblock = residual\ninput = u.1\n"
                         "[c]\ntype = concat\ninput = u, v:0, u.2.x, u.1.in\n" LOSS,
                "u.1.x <- data; u.1.sum <- u.1.x, data; u.2.x <- u.1.sum; "
                "u.2.sum <- u.2.x, u.1.sum; v.x <- u.1.sum; v.sum <- v.x, u.1.sum; "
                "c <- u.2.sum, v.sum, u.2.x, data; ip <- c; loss <- ip, label");
}

TEST(parts_of_a_block_may_be_blocks) {
    check_graph(RESIDUAL "[block two]\n"
                         "[two.a]\nblock = residual\n"
                         "[two.b]\nblock = residual\ninput = in\n"
                         "[two.sum]\ntype = eltwise\ninput = a, b, a.x, in\n"
                         "[first]\n" CONV "[u]\nblock = two\n" LOSS,
                "first <- data; u.a.x <- first; u.a.sum <- u.a.x, first; "
                "u.b.x <- first; u.b.sum <- u.b.x, first; "
                "u.sum <- u.a.sum, u.b.sum, u.a.x, first; ip <- u.sum; "
                "loss <- ip, label");
}

/* ---- Fields ------------------------------------------------------------------ */

static const dlc_field_names several = {.is_known = 1,
                                        .count = 4,
                                        .name = {"photo", "kind", "mask", "place"},
                                        .data = "photo",
                                        .label = "kind"};

/* What data and label are called are other names for the same; a layer comes before a
 * field. */
TEST(fields_have_names) {
    static const char text[] = "[ip]\ntype = inner_product\nnum_output = 4\n"
                               "input = photo\n[place]\ntype = relu\n"
                               "[sum]\ntype = eltwise\ninput = ip, place\n"
                               "[a]\ntype = softmax_loss\nlabel = mask\n"
                               "[b]\ntype = softmax_loss\ninput = sum, kind\n"
                               "[c]\ntype = accuracy\ninput = sum\nlabel = data\n";
    net_fixture fixture;
    char found[2048];
    ck_assert_int_eq(fixture_graph_of(&fixture, text, &several), DLC_OK);
    const dlc_graph *graph = fixture.graph;
    describe(graph, found, sizeof found);
    ck_assert_str_eq(found, "ip <- data; place <- ip; sum <- ip, place; "
                            "a <- sum, mask; b <- sum, label; c <- sum, data");
    ck_assert_int_eq(graph->fields, 3);
    for (int32_t i = 0; i < 3; i++)
        ck_assert_int_eq(graph->field[i].is_label, 1);
    ck_assert_uint_eq(graph->field[2].phases, DLC_PHASE_TRAIN | DLC_PHASE_TEST);
    fixture_close(&fixture);
}

/* While nobody knows the fields, a name that is like that of a layer is a mistake. */
TEST(fields_are_not_known) {
    net_fixture fixture;
    const dlc_field_names none = {.count = 0};
    ck_assert_int_eq(
        fixture_graph_of(&fixture, "[x]\n" CONV "input = picture\n" LOSS, &none),
        DLC_OK);
    ck_assert_int_eq(fixture.graph->fields, 3);
    ck_assert_str_eq(fixture.graph->field[2].name, "picture");
    fixture_close(&fixture);
}

static const struct {
    const char *text, *message;
} bad[] = {
    {"[a]\n" CONV "label = data\n" LOSS,
     ":6: [a] label = data: only losses and metrics compare with a label"},
    {LOSS "[l]\ntype = softmax_loss\ninput = ip, label\nlabel = data\n",
     ":9: [l] label = data: its second input is what it compares with"},
    {LOSS "[l]\ntype = softmax_loss\nlabel = imag\n",
     ":8: [l] label = imag: there is no layer of that name above, and the samples have "
     "no such field; did you mean 'image'?"},
    {LOSS "[l]\ntype = softmax_loss\nlabel = seg\n",
     ":8: [l] label = seg: there is no layer of that name above, and the samples have "
     "no such field; they have image, "},
    /* Reported at the line of the block, once for all uses. */
    {"[block b]\n[b.x]\ntype = convolutoin\n"
     "[u]\nblock = b\n[v]\nblock = b\n" LOSS,
     ":3: [b.x] there is no layer \"convolutoin\""},
    {"[block b]\n[b.x]\nnum_output = 4\n[u]\nblock = b\n[v]\nblock = b\n" LOSS,
     ":2: [b.x] has no `type` (as [u.x] of line 4 and 1 more)"},
    {"[block b]\n[b.x]\n" CONV "[b.y]\n" CONV
     "input = in\n[u]\nblock = b\n[v]\nblock = b\n" LOSS,
     ":3: [b.x] no layer reads its output (as [u.x] of line 13 and 1 more)"},
    /* Reported at the line of the use. */
    {RESIDUAL "[u]\nblock = residual\ninput = nothing\n" LOSS,
     ":12: [u] input = nothing: there is no layer of that name above"},
    {RESIDUAL
     "[u]\nblock = residual\n[v]\nblock = residual\ninput = y\n[y]\n" CONV LOSS,
     ":14: [v] input = y: there is no layer of that name above"},
    {RESIDUAL "[unit]\nblock = residual\n[c]\ntype = concat\ninput = unti\n" LOSS,
     ":14: [c] input = unti: there is no layer of that name above, and the "
     "samples have no such field; did you mean 'unit'?"},
    {RESIDUAL "[u]\nblock = residual\n[v]\nblock = residual\ninput = u\n"
              "[c]\ntype = concat\ninput = v.in, v\n" LOSS,
     ":17: [c] input = v.in: there is no layer"},
    {RESIDUAL "[u]\nblock = residal\n[v]\ntype = relu\ninput = u\n" LOSS,
     ":11: [u] no block is called \"residal\"; did you mean residual?"},
    {"[a]\ntype =\n[b]\ntype = relu\ninput = a\n" LOSS, ":2: type: no value"},
};

TEST_EACH(a_mistake_is_reported_once, COUNT(bad)) {
    net_fixture fixture;
    char lines[4096];
    int kept = dup(STDERR_FILENO), memory = memfd_create("stderr", 0);
    ck_assert_int_eq(fixture_graph(&fixture, bad[_i].text), DLC_ERR_CONFIG);
    ck_assert_msg(fixture.problems.errors == 1, "%s: %zu mistakes", bad[_i].message,
                  fixture.problems.errors);
    ck_assert_int_eq(dup2(memory, STDERR_FILENO), STDERR_FILENO);
    dlc_status status = dlc_problems_report(&fixture.problems);
    ck_assert_int_eq(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    ck_assert_int_eq(status, DLC_ERR_CONFIG);
    ssize_t length = pread(memory, lines, sizeof lines - 1, 0);
    ck_assert_int_ge(length, 0);
    lines[length] = '\0';
    ck_assert_msg(strstr(lines, bad[_i].message) != NULL, "\"%s\" is not in\n%s",
                  bad[_i].message, lines);
    close(memory);
    close(kept);
    fixture_close(&fixture);
}

/* A training net may have layers with parameters that the test net lacks; parameters
 * that both have share memory. */
#define SIDE \
    "[a]\n" CONV "[side]\ntype = inner_product\nnum_output = 4\nphase = train\n" \
    "[side_loss]\ntype = softmax_loss\nphase = train\n[n]\ntype = batch_norm\n"

TEST(a_test_net_finds_its_parameters) {
    net_fixture fixture;
    fixture_net(&fixture, SIDE LOSS, 3, 2, 6, 6);
    dlc_net *test_net = fixture_test_net(&fixture, 2);
    ck_assert_int_eq(dlc_net_params(fixture.net), 10);
    ck_assert_int_eq(dlc_net_params(test_net), 8);
    for (int32_t i = 0; i < dlc_net_params(test_net); i++) {
        const dlc_net_param *param = dlc_net_param_at(test_net, i), *same = NULL;
        for (int32_t j = 0; j < dlc_net_params(fixture.net); j++)
            if (strcmp(dlc_net_param_at(fixture.net, j)->name, param->name) == 0)
                same = dlc_net_param_at(fixture.net, j);
        ck_assert_ptr_nonnull(same);
        ck_assert_uint_eq(param->offset, same->offset);
        ck_assert_uint_eq(param->count, same->count);
        ck_assert_int_eq(param->is_buffer, same->is_buffer);
    }
    dlc_net_free(test_net);
    fixture_close(&fixture);
}

TEST(a_test_needs_nothing_that_training_lacks) {
    net_fixture fixture;
    fixture_net(&fixture,
                "[a]\n" CONV "[b]\ntype = inner_product\nnum_output = 4\n"
                "phase = test\n[top]\ntype = accuracy\ninput = b\n" LOSS,
                3, 2, 6, 6);
    dlc_net_args args = fixture.args;
    dlc_net *test_net = NULL;
    args.phase = DLC_PHASE_TEST;
    args.train_net = fixture.net;
    ck_assert_int_eq(dlc_net_build(&args, &test_net), DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), "b.weight: a test needs this parameter") ||
                      strstr(dlc_detail(), "b.bias: a test needs this parameter"),
                  "%s", dlc_detail());
    fixture_close(&fixture);
}

static int calls;

static void count_call(void) {
    calls++;
}

TEST(layers_are_told_before_a_fork) {
    const dlc_layer_ops able = {.size = sizeof able, .before_fork = count_call},
                        unable = {.size = sizeof unable},
                        older = {.size = offsetof(dlc_layer_ops, before_fork),
                                 .before_fork = count_call};
    const dlc_feature features[] = {{.ops = &able}, {.ops = &unable}, {.ops = &older}};
    dlc_graph_layer layers[3] = {{.feature = &features[0]},
                                 {.feature = &features[1]},
                                 {.feature = &features[2]}};
    const dlc_graph graph = {.layers = 3, .layer = layers};
    dlc_graph_before_fork(&graph);
    ck_assert_int_eq(calls, 1);
}

static int count_threads(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* Ranks that are forked from a process with threads of OpenMP would hang. */
TEST(no_layer_starts_threads_before_a_fork) {
    net_fixture fixture;
    int threads = count_threads();
    ck_assert_int_eq(fixture_graph(&fixture, "[c]\n" CONV LOSS), DLC_OK);
    dlc_graph_before_fork(fixture.graph);
    ck_assert_int_eq(count_threads(), threads);
    fixture_close(&fixture);
}
