/* Tests `dlcore topo` as a user runs it: this machine with measurements, recorded
 * machines, and mistakes. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/scratch.h"
#include "support/test.h"

#define RUN(...) command_run(120, NULL, COMMAND("topo", __VA_ARGS__))

static json_t *parse(const command_result *result) {
    json_error_t error;
    ck_assert_msg(result->exit_code == 0, "%d: %s", result->exit_code, result->err);
    json_t *root = json_loads(result->out, 0, &error);
    ck_assert_msg(root != NULL, "%s in %s", error.text, result->out);
    return root;
}

static const char *text(const json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    ck_assert_msg(value != NULL, "no text %s", key);
    return value;
}

static size_t count_kind(const json_t *root, const char *kind) {
    size_t i, count = 0;
    json_t *node;
    json_array_foreach(json_object_get(root, "nodes"), i, node)
        count += strcmp(text(node, "kind"), kind) == 0;
    return count;
}

/* Checks what every link must contain. */
static void check_link(const json_t *link) {
    const json_t *route = json_object_get(link, "route"), *rejected;
    size_t i;
    json_t *one;
    text(link, "a");
    text(link, "b");
    text(link, "class");
    text(link, "reason");
    text(route, "name");
    rejected = json_object_get(route, "rejected");
    ck_assert_uint_eq(json_array_size(rejected), 4);
    json_array_foreach(rejected, i, one)
        ck_assert_uint_gt(strlen(text(one, "reason")), 0);
    rejected = json_object_get(link, "rejected");
    ck_assert(json_is_array(rejected));
    json_array_foreach(rejected, i, one) {
        text(one, "transport");
        text(one, "reason");
    }
}

TEST_SETTINGS(.timeout = 60, .setup = scratch_setup, .teardown = scratch_teardown);

TEST(this_machine_measured) {
    command_result result = RUN("--json", "--measure", "--ranks=2", "--timeout=30");
    json_t *root = parse(&result);
    const json_t *link = json_array_get(json_object_get(root, "links"), 0);
    const json_t *measured = json_object_get(link, "measured");
    ck_assert_uint_eq(json_array_size(json_object_get(root, "links")), 1);
    check_link(link);
    ck_assert_str_eq(text(link, "class"), "SHM");
    ck_assert_str_eq(text(json_object_get(link, "route"), "name"), "shm");
    text(link, "transport");
    ck_assert(json_is_true(json_object_get(measured, "intact")));
    ck_assert(json_number_value(json_object_get(measured, "gbs")) > 0);
    ck_assert(json_number_value(json_object_get(measured, "us")) > 0);
    ck_assert(json_is_null(json_object_get(measured, "problem")));
    ck_assert_uint_eq(count_kind(root, "rank"), 2);
    ck_assert_uint_eq(count_kind(root, "machine"), 1);
    ck_assert_uint_ge(count_kind(root, "core"), 1);
    json_decref(root);
    command_free(&result);
}

TEST(three_ranks_by_each_transport) {
    command_result result = RUN("--measure", "--ranks=3", "--transport=host-staged",
                                "--timeout=30");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_contains(result.out, "transport: host-staged");
    ck_contains(result.out, "rank 1   - rank 2");
    ck_contains(result.out, "intact");
    ck_contains(result.out, "NODE ");
    command_free(&result);
}

TEST(one_rank) {
    command_result result = RUN("--json", "--measure", "--ranks=1");
    json_t *root = parse(&result);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "links")), 0);
    json_decref(root);
    command_free(&result);
}

TEST(a_recorded_machine) {
    command_result result = RUN("--of=json", "--from=" MACHINES "hgx-h100.xml");
    json_t *root = parse(&result), *link;
    size_t i;
    ck_assert_uint_eq(json_array_size(json_object_get(root, "links")), 28);
    json_array_foreach(json_object_get(root, "links"), i, link) {
        check_link(link);
        ck_assert_str_eq(text(link, "class"), "NV18");
    }
    ck_assert_uint_eq(json_array_size(json_object_get(root, "joins")), 32);
    ck_assert_uint_eq(count_kind(root, "GPU"), 8);
    json_decref(root);
    command_free(&result);
}

/* ---- What a job says ---------------------------------------------------------------
 */

/* Copies what is decided, from the domains to the last transport that is not used,
 * without predictions, which depend on the net, and adapters, which a job of one
 * machine does not look for. */
static char *decisions(const char *said) {
    const char *at = strstr(said, "domains of ranks:");
    char *kept = calloc(strlen(said) + 1, 1), *to = kept;
    ck_assert_msg(at != NULL, "no domains in %s", said);
    for (int transports = 0, adapters = 0; *at;
         at += strcspn(at, "\n"), at += *at == '\n') {
        int length = (int)strcspn(at, "\n");
        const char *slower = strstr(at, ": slower, ");
        at += strncmp(at, "debug: ", 7) == 0 ? 7 : 0;
        int is_detail = strncmp(at, "    ", 4) == 0;
        if (transports && !is_detail && strncmp(at, "transport: ", 11) != 0)
            break;
        transports |= strncmp(at, "transport: ", 11) == 0;
        adapters = strncmp(at, "nearest adapters", 16) == 0 || (adapters && is_detail);
        length = (int)strcspn(at, "\n");
        if (adapters || strncmp(at, "    predicted", 13) == 0 ||
            (transports && is_detail && strncmp(at, "    not ", 8) != 0))
            continue;
        if (slower && slower < at + length)
            length = (int)(slower - at);
        to += sprintf(to, "%.*s\n", length, at);
    }
    return kept;
}

/* Of this machine, and of recorded ones that hwloc takes for this one. */
TEST_EACH(a_job_does_the_same, 5) {
    static const struct {
        const char *machine, *ranks, *transport;
    } cases[] = {{NULL, "--ranks=2", "--transport=auto"},
                 {NULL, "--ranks=3", "--transport=host-staged"},
                 {MACHINES "dual-socket.xml", "--ranks=4", "--transport=auto"},
                 {MACHINES "four-numa.xml", "--ranks=4", "--transport=auto"},
                 {MACHINES "virtual-machine.xml", "--ranks=2", "--transport=auto"}};
    static const char net[] =
        "[net]\nname = tiny\n[data]\nsource = synthetic\nshape = 1, 4, 4\n"
        "classes = 2\nbatch = 4\n[solver]\ntype = sgd\nlearning_rate = 0.01\n[ip]\n"
        "type = inner_product\nnum_output = 2\n[loss]\ntype = softmax_loss\n";
    if (cases[_i].machine)
        ck_assert_int_eq(setenv("HWLOC_XMLFILE", cases[_i].machine, 1), 0);
    ck_assert_int_eq(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
    command_result topo = RUN(cases[_i].ranks, cases[_i].transport);
    const char *file = scratch_write("net.ini", net, sizeof net - 1);
    command_result job = command_run(60, NULL,
                                     COMMAND("train", file, cases[_i].ranks,
                                             cases[_i].transport, "--iterations=1",
                                             "--set=train.checkpoint_last=no", "-v"));
    ck_assert_msg(topo.exit_code == 0, "%s", topo.err);
    ck_assert_msg(job.exit_code == 0, "%s", job.err);
    char *expected = decisions(topo.out), *done = decisions(job.err);
    ck_contains(done, "transport: ");
    ck_assert_str_eq(done, expected);
    free(expected);
    free(done);
    command_free(&topo);
    command_free(&job);
    (void)unsetenv("HWLOC_THISSYSTEM");
    (void)unsetenv("HWLOC_XMLFILE");
}

/* Parts without a number must not be shown with -1. */
TEST_EACH(no_number_is_not_minus_one, 3) {
    static const char *const from[] = {"", "--from=" MACHINES "hgx-h100.xml",
                                       "--from=" MACHINES "mi300x.xml"};
    command_result result = _i ? RUN("--json", from[_i]) : RUN("--json");
    json_t *root = parse(&result), *node;
    size_t i;
    json_array_foreach(json_object_get(root, "nodes"), i, node)
        ck_assert_ptr_null(strstr(text(node, "label"), "-1"));
    ck_assert_ptr_null(strstr(result.out, ":-1"));
    node = json_array_get(json_object_get(root, "nodes"), 0);
    ck_assert_str_eq(text(node, "label"), "machine");
    ck_assert(json_is_null(json_object_get(node, "parent")));
    json_decref(root);
    command_free(&result);
}

TEST(several_of_a_recorded_machine) {
    command_result result = RUN("--json", "--from=" MACHINES "pcie-plain.xml",
                                "--nodes=2");
    json_t *root = parse(&result), *link;
    size_t i, net = 0;
    ck_assert_uint_eq(json_array_size(json_object_get(root, "links")), 28);
    json_array_foreach(json_object_get(root, "links"), i, link)
        net += strcmp(text(link, "class"), "NET") == 0;
    ck_assert_uint_eq(net, 16);
    json_decref(root);
    command_free(&result);
}

TEST(cpus_of_a_recorded_machine) {
    command_result result = RUN("--from=" MACHINES "four-numa.xml");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_contains(result.out, "rank 3");
    ck_contains(result.out, "route: shm");
    command_free(&result);
    result = RUN("--from=" MACHINES "four-numa.xml", "--ranks=6");
    ck_contains(result.out, "rank 5");
    command_free(&result);
}

TEST(every_format) {
    command_result result = RUN("--of=svg", "--from=" MACHINES "dgx-1.xml");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_int_eq(strncmp(result.out, "<svg ", 5), 0);
    ck_contains(result.out, "</svg>");
    ck_contains(result.out, "NV2");
    command_free(&result);
    result = RUN("--of=ascii", "--from=" MACHINES "dgx-1.xml");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_contains(result.out, "NV#");
    ck_contains(result.out, "route: host");
    ck_contains(result.out, "not p2p: PCIe between NUMA nodes");
    ck_contains(result.out, "To other nodes");
    command_free(&result);
}

static const struct {
    const char *argument, *what;
    int exit_code;
} mistakes[] = {
    {"--from=/nonexistent.xml", "No such file", 1},
    {"--from=" MACHINES "README.md", "README.md:1: not well-formed XML", 4},
    {"--from=/", "not a regular file", 4},
    {"--of=png", "ascii, svg or json", 2},
    {"--ranks=0", "1 to 256", 2},
    {"--ranks=2x", "1 to 256", 2},
    {"--timeout=0", "seconds", 2},
    {"--timeout=nan", "seconds", 2},
    {"--nodes=2", "--from", 2},
    {"file.xml", "--from", 2},
    {"--transport=teleport", "teleport", 3},
    {"--device=abacus", "abacus", 3},
};

TEST_EACH(mistakes_are_reported, COUNT(mistakes)) {
    command_result result = RUN(mistakes[_i].argument);
    ck_contains(result.err, mistakes[_i].what);
    ck_assert_msg(result.exit_code == mistakes[_i].exit_code, "%s: %d: %s",
                  mistakes[_i].argument, result.exit_code, result.err);
    ck_assert_str_eq(result.out, "");
    command_free(&result);
}

TEST(a_recorded_machine_is_not_measured) {
    command_result result = RUN("--measure", "--from=" MACHINES "dgx-1.xml");
    ck_assert_int_eq(result.exit_code, 2);
    ck_contains(result.err, "cannot be measured");
    command_free(&result);
    result = RUN("--ranks=9", "--from=" MACHINES "dgx-1.xml");
    ck_assert_int_eq(result.exit_code, 2);
    ck_contains(result.err, "has 8 GPUs");
    command_free(&result);
}

TEST(help) {
    command_result result = RUN("--help");
    ck_assert_int_eq(result.exit_code, 0);
    ck_contains(result.out, "--measure");
    ck_contains(result.out, "--from=FILE");
    command_free(&result);
}
