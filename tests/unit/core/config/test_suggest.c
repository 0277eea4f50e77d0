/* Tests what is suggested for an unknown name. */
#include "config/suggest.h"

#include <string.h>

#include "support/test.h"

static const struct {
    const char *name;
    const char *candidates[4];
    const char *nearest, *suggested;
} rows[] = {
    /* Typos. */
    {"momentun", {"rate", "momentum"}, "momentum", "; did you mean momentum?"},
    {"sovler", {"net", "solver", "run"}, "solver", "; did you mean solver?"},
    {"quite another", {"rate", "momentum"}, NULL, ""},
    /* The same name in another spelling. */
    {"ReLU", {"elu", "relu"}, "relu", "; did you mean relu?"},
    {"BatchNorm", {"batch", "batch_norm"}, "batch_norm", "; did you mean batch_norm?"},
    {"kernel-size", {"kernel_size"}, "kernel_size", "; did you mean kernel_size?"},
    {"SGD", {"ssp", "sgd"}, "sgd", "; did you mean sgd?"},
    /* Names of other frameworks: the first valid one of the row. */
    {"lr",
     {"learning_rate", "policy"},
     "learning_rate",
     "; did you mean learning_rate?"},
    {"base_lr",
     {"learning_rate", "min_learning_rate"},
     "learning_rate",
     "; did you mean learning_rate?"},
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
    /* A candidate takes precedence over a synonym. */
    {"Momentum", {"eps", "momentum"}, "momentum", "; did you mean momentum?"},
    {"linear", {"poly", "lineal"}, "poly", "; did you mean poly?"},
    /* The synonym is not a candidate, and a similar spelling is not meant. */
    {"max_iter", {"max_iterations"}, NULL, "; that is `iterations` in [train]"},
    {"lr", {"lrn"}, "lrn", "; that is `learning_rate` in [solver]"},
    {"keras.optimizers.Adam", {"adagrad", "adam"}, "adam", "; did you mean adam?"},
    {"amsgrad",
     {"adagrad", "adam"},
     "adagrad",
     "; that is `amsgrad = yes` of adam and adamw"},
    {"torch.optim.Lion",
     {"sgd", "adam"},
     NULL,
     "; there is no such solver; `dlcore plugin new solver NAME` starts one"},
    /* No suggestion. */
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

TEST_EACH(names_are_suggested, COUNT(rows)) {
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
