/* Runs the command on every bad input of the table (cases.c) and checks exit code and
 * message: nothing crashes, hangs or leaves a file behind. */
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "files.h"
#include "support/command.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *folder(void) {
    static char path[4096];
    snprintf(path, sizeof path, "%s", scratch_path("x"));
    *strrchr(path, '/') = '\0';
    return path;
}

static command_result run_case(const fault_case *fault) {
    const char *text = fault->net ? fault->net : good_net;
    char net[4096];
    snprintf(net, sizeof net, "%s", scratch_write("net.ini", text, strlen(text)));
    const char *arguments[9] = {NULL};
    for (int i = 0; i < 8 && fault->arguments[i]; i++)
        arguments[i] = strcmp(fault->arguments[i], "@") == 0 ? net
                                                             : fault->arguments[i];
    return command_run(60, folder(), arguments);
}

TEST_SETTINGS(.timeout = 90, .setup = scratch_setup, .teardown = scratch_teardown);

TEST_EACH(bad_input_is_reported, (int)fault_count) {
    const fault_case *fault = &faults[_i];
    files_write();
    command_result result = run_case(fault);
    ck_assert_msg(result.exit_code == fault->exit_code,
                  "%s: exit code %d, expected %d\n%s", fault->what, result.exit_code,
                  fault->exit_code, result.err);
    ck_assert_msg(strstr(result.err, fault->message) != NULL,
                  "%s: \"%s\" is not in\n%s", fault->what, fault->message, result.err);
    command_free(&result);
}

/* The table is meaningful only if the net without a fault trains. */
TEST(good_input_works) {
    files_write();
    const fault_case none = {.arguments = {"train", "@", "--iterations=2"}};
    command_result result = run_case(&none);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    command_free(&result);
}

/* All mistakes in a file are reported in one run. */
TEST(all_mistakes_at_once) {
    files_write();
    const fault_case many = {.net = "[net]\nnam = x\n"
                                    "[data]\nsource = idx\nimages = images\n"
                                    "labels = labels\nbatch = 0\n"
                                    "[solver]\ntype = sgd\nlearning_rate = fast\n"
                                    "[ip]\ntype = inner_product\nnum_outputs = 4\n"
                                    "[loss]\ntype = softmax_los\n",
                             .arguments = {"check", "@"}};
    command_result result = run_case(&many);
    ck_assert_int_eq(result.exit_code, 2);
    const char *const parts[] = {
        ":2:",        ":7:",         ":10:", ":13:", ":15:", "did you mean name",
        "num_output", "softmax_loss"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_contains(result.err, parts[i]);
    command_free(&result);
}
