/* What is suggested for a name that isn't known. */
#include "base/suggest.h"

#include <check.h>
#include <string.h>

static const struct {
    const char *name;
    const char *candidates[4];
    const char *nearest, *suggested;
} rows[] = {
    /* Slips of the pen. */
    {"momentun", {"rate", "momentum"}, "momentum", "; did you mean momentum?"},
    {"sovler", {"net", "solver", "run"}, "solver", "; did you mean solver?"},
    {"quite another", {"rate", "momentum"}, NULL, ""},
    /* The same but for how it is written. */
    {"ReLU", {"elu", "relu"}, "relu", "; did you mean relu?"},
    {"BatchNorm", {"batch", "batch_norm"}, "batch_norm", "; did you mean batch_norm?"},
    {"kernel-size", {"kernel_size"}, "kernel_size", "; did you mean kernel_size?"},
    {"SGD", {"ssp", "sgd"}, "sgd", "; did you mean sgd?"},
    /* Others' words: what can stand there, in the row's order. */
    {"lr", {"rate", "policy"}, "rate", "; did you mean rate?"},
    {"learning_rate", {"rate", "min_rate"}, "rate", "; did you mean rate?"},
    {"batch_size", {"batch", "pad"}, "batch", "; did you mean batch?"},
    {"Conv2d", {"clip", "convolution"}, "convolution", "; did you mean convolution?"},
    {"Conv2d(3, 64)", {"convolution"}, "convolution", "; did you mean convolution?"},
    {"torch.nn.Linear",
     {"inner_product"},
     "inner_product",
     "; did you mean inner_product?"},
    {"optimizer", {"net", "solver"}, "solver", "; did you mean solver?"},
    {"optimizer", {"type", "rate"}, "type", "; did you mean type?"},
    {"rate", {"ratio", "input"}, "ratio", "; did you mean ratio?"},
    /* A name of this place goes before its meaning elsewhere. */
    {"Momentum", {"eps", "momentum"}, "momentum", "; did you mean momentum?"},
    {"linear", {"poly", "lineal"}, "poly", "; did you mean poly?"},
    /* Nothing of that meaning is there, and what looks alike isn't meant. */
    {"max_iter", {"max_iterations"}, NULL, "; that is `iterations` in [train]"},
    {"lr", {"lrn"}, "lrn", "; the learning rate is `rate` in [solver]"},
    {"adam",
     {"sgd", "ssp"},
     NULL,
     "; Adam is in examples/adam: once that plugin is built, `type = adam` in [solver]"},
    {"keras.optimizers.Adam",
     {"sgd", "ssp"},
     NULL,
     "; Adam is in examples/adam: once that plugin is built, `type = adam` in [solver]"},
    /* Nothing at all. */
    {"", {"rate"}, NULL, ""},
    {"_", {"rate"}, NULL, ""},
    {".", {"rate"}, NULL, ""},
    {"lr.", {"policy"}, NULL, ""},
    {"1234567890123456789012345678901234567890123456789012345678901234",
     {"rate"},
     NULL,
     ""},
};

static size_t count_of(const char *const candidates[4]) {
    size_t count = 0;
    while (count < 4 && candidates[count])
        count++;
    return count;
}

START_TEST(is_suggested) {
    size_t count = count_of(rows[_i].candidates);
    const char *nearest = dlc_nearest(rows[_i].name, rows[_i].candidates, count);
    if (rows[_i].nearest)
        ck_assert_msg(nearest && strcmp(nearest, rows[_i].nearest) == 0, "%s: %s",
                      rows[_i].name, nearest ? nearest : "nothing");
    else
        ck_assert_msg(!nearest, "%s: %s", rows[_i].name, nearest);
    dlc_text text = {0};
    dlc_suggest(&text, rows[_i].name, rows[_i].candidates, count);
    ck_assert_str_eq(dlc_text_string(&text), rows[_i].suggested);
    dlc_text_free(&text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("suggest");
    TCase *tests = tcase_create("suggest");
    tcase_add_loop_test(tests, is_suggested, 0, (int)(sizeof rows / sizeof *rows));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
