/* Tests what uses of blocks expand to. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "config/internal.h"
#include "fixture.h"
#include "support/sanitized.h"
#include "support/test.h"

static dlc_config *load_with(const char *text, const char *const *sets, size_t nsets) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    char lines[4096];
    write_text("net.ini", text);
    dlc_status rc = dlc_config_load("net.ini", reserved, sets, nsets, &problems,
                                    &config);
    ck_assert_msg(rc == DLC_OK, "%s", dlc_detail());
    rc = report(&problems, lines, sizeof lines);
    ck_assert_msg(rc == DLC_OK && !*lines, "%s", lines);
    return config;
}

static dlc_config *load(const char *text) {
    return load_with(text, NULL, 0);
}

static void check_value(const dlc_config *config, const char *section, const char *key,
                        const char *expected) {
    const dlc_section *found = dlc_config_find(config, section);
    ck_assert_msg(found != NULL, "no [%s]", section);
    const char *value = dlc_section_value(found, key);
    ck_assert_msg(value && expected ? strcmp(value, expected) == 0 : value == expected,
                  "[%s] %s = %s, not %s", section, key, value ? value : "(none)",
                  expected ? expected : "(none)");
}

/* Expects the names of the sections in order, each followed by a blank. */
static void check_names(const dlc_config *config, const char *expected) {
    char names[4096] = "";
    const dlc_section *section = NULL;
    while ((section = dlc_config_next(config, section)))
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s ",
                 dlc_section_name(section));
    ck_assert_str_eq(names, expected);
}

static void check_group(const dlc_config *config, const char *name, const char *first,
                        const char *last, int open) {
    const dlc_group *group = dlc_config_find_group(config, name, strlen(name));
    ck_assert_msg(group != NULL, "no group %s", name);
    ck_assert_str_eq(group->name, name);
    ck_assert_str_eq(group->first, first);
    ck_assert_str_eq(group->last, last);
    ck_assert_int_eq(group->open, open);
}

#define CONV_RELU \
    "[block conv_relu]\n" \
    "params = width, std\n" \
    "pad = 0\n" \
    "[conv_relu.conv]\n" \
    "type = convolution\n" \
    "num_output = $width\n" \
    "pad = $pad\n" \
    "weight_filler = gaussian($std, 0)\n" \
    "[conv_relu.relu]\n" \
    "type = relu\n"

TEST_SETTINGS(.timeout = 60, .setup = folder_setup, .teardown = folder_teardown);

TEST(a_use_is_replaced_by_its_layers) {
    dlc_config *config = load("[net]\nname = x\n" CONV_RELU "\n[stem]\n"
                              "block = conv_relu\n"
                              "width = 64\n"
                              "std = 0.01\n"
                              "pad = 1\n"
                              "[pool]\ntype = pooling\n"
                              "[body]\nblock = conv_relu\nwidth = 32\nstd = 1\n"
                              "[train]\nseed = 1\n");
    check_names(config, "net stem.conv stem.relu pool body.conv body.relu train ");
    check_value(config, "stem.conv", "type", "convolution");
    check_value(config, "stem.conv", "num_output", "64");
    check_value(config, "stem.conv", "pad", "1");
    check_value(config, "stem.conv", "weight_filler", "gaussian(0.01, 0)");
    check_value(config, "stem.conv", "input", NULL);
    check_value(config, "stem.relu", "type", "relu");
    check_value(config, "body.conv", "num_output", "32");
    check_value(config, "body.conv", "pad", "0");
    check_value(config, "body.conv", "weight_filler", "gaussian(1, 0)");
    check_group(config, "stem", "stem.conv", "stem.relu", 1);
    check_group(config, "body", "body.conv", "body.relu", 1);

    /* The lines are those of the block. */
    const dlc_section *conv = dlc_config_find(config, "body.conv");
    ck_assert_int_eq(dlc_section_line(conv), 6);
    ck_assert_int_eq(dlc_section_key_line(conv, "num_output"), 8);
    const dlc_section *layer = dlc_config_next(config, dlc_config_find(config, "net"));
    ck_assert_str_eq(dlc_section_name(layer), "stem.conv");
    dlc_config_free(config);
}

TEST(a_value_may_hold_several_parameters) {
    dlc_config *config = load("[block b]\nparams = a, b_2\n"
                              "[b.x]\nnote = $a$b_2-$a.$b_2, $a\n"
                              "[u]\nblock = b\na = 1\nb_2 = \"\"\n");
    check_value(config, "u.x", "note", "1-1., 1");
    dlc_config_free(config);
}

TEST(a_block_may_have_no_parameters) {
    dlc_config *config = load("[block b]\n[b.x]\ntype = relu\n"
                              "[block]\ntype = relu\n[u]\nblock = b\n");
    check_names(config, "block u.x ");
    dlc_config_free(config);
}

TEST(inputs_are_the_blocks_own_layers_first) {
    dlc_config *config = load("[conv]\ntype = x\n"
                              "[block b]\n"
                              "[b.conv]\ninput = in\n"
                              "[b.two]\ninput = conv,in , label\n"
                              "[b.three]\ninput = conv:1, data\n"
                              "[u]\nblock = b\ninput = conv\n"
                              "[v]\nblock = b\n"
                              "[w]\nblock = b\ninput = u, v.two:1\n"
                              "[last]\ninput = u, w\n");
    check_value(config, "u.conv", "input", "conv");
    check_value(config, "u.two", "input", "u.conv, conv, label");
    check_value(config, "u.three", "input", "u.conv:1, data");
    check_group(config, "u", "u.conv", "u.three", 0);
    check_value(config, "v.conv", "input", "v.in");
    check_value(config, "v.two", "input", "v.conv, v.in, label");
    check_group(config, "v", "v.conv", "v.three", 1);
    check_value(config, "w.conv", "input", "u, v.two:1");
    check_value(config, "w.two", "input", "w.conv, u, v.two:1, label");
    check_value(config, "last", "input", "u, w");
    dlc_config_free(config);
}

TEST(the_first_layer_reads_what_the_use_was_given) {
    dlc_config *config = load("[a]\ntype = x\n"
                              "[block b]\n[b.x]\ntype = x\n[b.y]\ntype = x\n"
                              "[block c]\n[c.x]\nblock = b\n[c.y]\nblock = b\n"
                              "[u]\nblock = c\ninput = a\n");
    check_names(config, "a u.x.x u.x.y u.y.x u.y.y ");
    check_value(config, "u.x.x", "input", "a");
    check_value(config, "u.x.y", "input", NULL);
    check_value(config, "u.y.x", "input", NULL);
    check_group(config, "u.x", "u.x.x", "u.x.y", 0);
    check_group(config, "u.y", "u.y.x", "u.y.y", 1);
    dlc_config_free(config);
}

TEST(copies_read_one_another) {
    dlc_config *config = load("[block b]\n"
                              "[b.x]\ntype = x\n"
                              "[b.sum]\ninput = x, in\n"
                              "[u]\nblock = b\nrepeat = 3\n"
                              "[v]\nblock = b\nrepeat = 1\ninput = u.2\n"
                              "[last]\ninput = v\n");
    check_names(config,
                "u.1.x u.1.sum u.2.x u.2.sum u.3.x u.3.sum v.1.x v.1.sum last ");
    check_value(config, "u.1.x", "input", NULL);
    check_value(config, "u.1.sum", "input", "u.1.x, u.1.in");
    check_value(config, "u.2.x", "input", "u.1");
    check_value(config, "u.2.sum", "input", "u.2.x, u.1");
    check_value(config, "u.3.x", "input", "u.2");
    check_value(config, "v.1.x", "input", "u.2");
    check_group(config, "u", "u.1.x", "u.3.sum", 1);
    check_group(config, "u.1", "u.1.x", "u.1.sum", 1);
    check_group(config, "u.3", "u.3.x", "u.3.sum", 0);
    check_group(config, "v", "v.1.x", "v.1.sum", 0);
    dlc_config_free(config);
}

TEST(blocks_use_blocks_above) {
    dlc_config *config = load(CONV_RELU "[block stage]\n"
                                        "params = width, depth\n"
                                        "[stage.conv]\n"
                                        "block = conv_relu\n"
                                        "width = $width\n"
                                        "std = 0.$width\n"
                                        "repeat = $depth\n"
                                        "[stage.side]\n"
                                        "block = conv_relu\n"
                                        "width = 1\n"
                                        "std = 1\n"
                                        "input = in\n"
                                        "[stage.sum]\n"
                                        "input = conv, conv.1, side.conv, in\n"
                                        "[u]\nblock = stage\nwidth = 8\ndepth = 2\n"
                                        "[w]\nblock = stage\nwidth = 8\ndepth = 1\n"
                                        "repeat = 2\n");
    check_value(config, "u.conv.1.conv", "num_output", "8");
    check_value(config, "u.conv.2.conv", "weight_filler", "gaussian(0.8, 0)");
    check_value(config, "u.conv.1.conv", "input", NULL);
    check_value(config, "u.conv.2.conv", "input", "u.conv.1");
    check_value(config, "u.side.conv", "input", "u.in");
    check_value(config, "u.sum", "input", "u.conv, u.conv.1, u.side.conv, u.in");
    check_value(config, "w.2.conv.1.conv", "input", "w.1");
    check_value(config, "w.2.side.conv", "input", "w.1");
    check_value(config, "w.2.sum", "input", "w.2.conv, w.2.conv.1, w.2.side.conv, w.1");
    check_group(config, "u.conv", "u.conv.1.conv", "u.conv.2.relu", 1);
    check_group(config, "w.2.conv", "w.2.conv.1.conv", "w.2.conv.1.relu", 0);
    dlc_config_free(config);
}

TEST(groups_are_found_by_their_whole_name) {
    dlc_config *config = load("[block b]\n[b.x]\ntype = x\n[uv]\nblock = b\n");
    ck_assert_ptr_nonnull(dlc_config_find_group(config, "uvw", 2));
    ck_assert_ptr_null(dlc_config_find_group(config, "uvw", 3));
    ck_assert_ptr_null(dlc_config_find_group(config, "uvw", 1));
    ck_assert_str_eq(dlc_config_group(config, 0)->name, "uv");
    ck_assert_ptr_null(dlc_config_group(config, 1));
    dlc_config_free(config);
}

TEST(set_reaches_uses_blocks_and_layers) {
    static const char *const sets[] = {
        "u.width=8", /* a parameter of a use */
        "u.pad=2",
        "conv_relu.relu.note=all", /* a block's layer, in every use */
        "v.conv.num_output=5",     /* one that exists once the block is expanded */
        "v.conv.bias=no",
        "v.relu.note=one",
        "train.seed=3",
    };
    dlc_config *config = load_with(CONV_RELU
                                   "[u]\nblock = conv_relu\nwidth = 1\nstd = 1\n"
                                   "[v]\nblock = conv_relu\nwidth = 1\nstd = 1\n",
                                   sets, sizeof sets / sizeof *sets);
    check_value(config, "u.conv", "num_output", "8");
    check_value(config, "u.conv", "pad", "2");
    check_value(config, "v.conv", "pad", "0");
    check_value(config, "v.conv", "num_output", "5");
    check_value(config, "v.conv", "bias", "no");
    check_value(config, "u.relu", "note", "all");
    check_value(config, "v.relu", "note", "one");
    check_value(config, "train", "seed", "3");
    const dlc_section *conv = dlc_config_find(config, "v.conv");
    ck_assert_int_eq(dlc_section_key_line(conv, "num_output"), DLC_LINE_SET);
    dlc_config_free(config);
}

TEST(an_unused_block_is_reported) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    char lines[4096];
    write_text("net.ini", "[block a]\n[a.x]\ntype = x\n"
                          "[block b]\n[b.x]\nblock = a\n"
                          "[block c]\n[c.x]\ntype = x\n"
                          "[u]\nblock = c\n");
    ck_assert_int_eq(dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config),
                     DLC_OK);
    ck_assert_uint_eq(problems.errors, 0);
    ck_assert_uint_eq(problems.warnings, 1);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_OK);
    ck_assert_str_eq(lines, "warning: net.ini:4: block b is not used\n");
    dlc_config_free(config);
}

/* The largest allowed number, and one more. */
TEST(the_size_after_expansion_is_limited) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    const char *text = "[block a]\n[a.x]\ntype = x\n"
                       "[block b]\n[b.x]\nblock = a\nrepeat = 1000\n"
                       "[block c]\n[c.x]\nblock = b\nrepeat = 1000\n"
                       "[u]\nblock = c\nrepeat = 1000\n";
    write_text("net.ini", text);
    ck_assert_int_eq(dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config),
                     DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(), "net.ini:12: more than 20000 sections and keys once "
                                   "[u] is expanded");
    dlc_problems_free(&problems);
    config = load("[block a]\n[a.x]\ntype = x\n[u]\nblock = a\nrepeat = 1000\n");
    ck_assert_uint_eq(config->count, 1000);
    dlc_config_free(config);
}

/* Returns a net.ini that uses a block of 9 layers with 19 keys each 100 times, with a
 * section of so many keys before or after it. */
static const char *with_keys(size_t keys, int before) {
    static char text[1 << 16];
    size_t length = 0;
    for (int part = 0; part < 2; part++) {
        if ((part == 0) == (before != 0)) {
            length += (size_t)snprintf(text + length, sizeof text - length, "[more]\n");
            for (size_t i = 0; i < keys; i++)
                length += (size_t)snprintf(text + length, sizeof text - length,
                                           "k%zu=1\n", i);
            continue;
        }
        length += (size_t)snprintf(text + length, sizeof text - length, "[block a]\n");
        for (int i = 0; i < 9 * 19; i++)
            length += (size_t)snprintf(text + length, sizeof text - length,
                                       i % 19 ? "k%d=1\n" : "[a.x%d]\ntype=x\n", i);
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "[u]\nblock=a\nrepeat=100\n");
    }
    return text;
}

/* Expanded entries count like those in the file: exactly as many as allowed fit. */
TEST(the_last_entry_that_fits) {
    if (under_valgrind())
        return; /* a hundred thousand lines */
    for (int before = 0; before < 2; before++) {
        dlc_problems problems = {0};
        dlc_config *config = load(with_keys(1, before));
        size_t room = DLC_CONFIG_ENTRIES - config->entries;
        ck_assert_uint_eq(config->count, 1 + 900);
        ck_assert_uint_lt(room, 2000);
        dlc_config_free(config);
        config = load(with_keys(1 + room, before));
        ck_assert_uint_eq(config->entries, DLC_CONFIG_ENTRIES);
        dlc_config_free(config);
        write_text("net.ini", with_keys(2 + room, before));
        ck_assert_int_eq(
            dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config),
            DLC_ERR_CONFIG);
        ck_assert_ptr_nonnull(
            strstr(dlc_detail(), "more than 20000 sections and keys"));
        ck_assert_ptr_nonnull(strstr(dlc_detail(), before ? "[u]" : "[more]"));
        dlc_problems_free(&problems);
    }
}
