/* Tests the table of other programs' terms (core/config/synonyms.c): every key,
 * section, type and value that it suggests exists in an option table or in a plugin of
 * this build, so that it cannot fall behind when a key is renamed. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/suggest.h"
#include "data/feed.h"
#include "data/transform_kinds.h"
#include "net/graph.h"
#include "plugin/registry.h"
#include "setup/setup.h"
#include "solver/solver.h"
#include "support/test.h"

static dlc_registry *registry;

static void setup(void) {
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
}

static void teardown(void) {
    dlc_registry_close(registry);
}

static int is_choice(const char *choices, const char *word, size_t length) {
    for (const char *at = choices; at && *at; at += *at == '|') {
        size_t n = strcspn(at, "|");
        if (n == length && memcmp(at, word, n) == 0)
            return 1;
        at += n;
    }
    return 0;
}

static int in_table(const dlc_option *table, const char *word, size_t length) {
    for (const dlc_option *row = table; row && row->name;
         row = (const dlc_option *)((const char *)row + row->size))
        if ((strlen(row->name) == length && memcmp(row->name, word, length) == 0) ||
            is_choice(row->choices, word, length))
            return 1;
    return 0;
}

static int in_core(const char *word, size_t length) {
    const dlc_option *tables[] = {
        dlc_net_section_options,   dlc_data_section_options,
        dlc_test_section_options,  dlc_solver_section_options,
        dlc_solver_options,        dlc_transport_section_options,
        dlc_train_section_options, dlc_parallel_section_options,
        dlc_feed_options,          dlc_graph_options};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (in_table(tables[i], word, length))
            return 1;
    for (const char *const *section = dlc_reserved_sections; *section; section++)
        if (strlen(*section) == length && memcmp(*section, word, length) == 0)
            return 1;
    return 0;
}

static int is_filler(const char *word, size_t length) {
    static const char *const numbers[] = {"", "(1)", "(0, 1)"};
    char text[64];
    dlc_filler filler;
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%.*s%s", (int)length, word, numbers[i]);
        if (dlc_filler_parse(text, &filler) == DLC_OK)
            return 1;
    }
    return 0;
}

/* Is it a transform, or an option of one? */
static int in_transforms(const char *word, size_t length) {
    for (const dlc_transform *const *kind = dlc_transform_table; *kind; kind++)
        if ((strlen((*kind)->name) == length &&
             memcmp((*kind)->name, word, length) == 0) ||
            in_table((*kind)->options, word, length))
            return 1;
    return 0;
}

/* Is it the name of a feature, or a key or value of its options? */
static int in_plugins(const char *word, size_t length) {
    const dlc_feature_entry *entry;
    const dlc_feature *feature;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, 0, i)); i++) {
        if (strlen(entry->name) == length && memcmp(entry->name, word, length) == 0)
            return 1;
        if (dlc_registry_peek(registry, entry, &feature) == DLC_OK &&
            in_table(feature->options, word, length))
            return 1;
    }
    return 0;
}

static int is_there(const char *word, size_t length) {
    return in_core(word, length) || is_filler(word, length) ||
           in_transforms(word, length) || in_plugins(word, length);
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = teardown);

TEST(suggestions_exist) {
    for (dlc_synonym row = {0}; dlc_synonym_next(&row);)
        for (const char *at = row.names; *at; at += strspn(at, " ")) {
            size_t n = strcspn(at, " ");
            /* The suggestion that must exist for the learning rate. */
            ck_assert_msg(is_there(at, n) || strncmp(at, "learning_rate", n) == 0,
                          "\"%s\" leads to \"%.*s\", which nothing has", row.words,
                          (int)n, at);
            at += n;
        }
}

/* Finds `key` or `key = value`, and [section], in the advice for a word. Returns how
 * many. */
static size_t check_advice(const char *word) {
    size_t found = 0;
    dlc_text text = {0};
    dlc_advise(&text, "", word);
    const char *at = dlc_text_string(&text);
    while ((at = strpbrk(at, "`["))) {
        size_t n = strcspn(at + 1, " `]");
        ck_assert_msg(strncmp(at + 1, "dlcore", n) == 0 || is_there(at + 1, n),
                      "\"%s\": \"%.*s\" of \"%s\" is not there", word, (int)n, at + 1,
                      dlc_text_string(&text));
        at += 1 + strcspn(at + 1, "`]") + 1;
        found++;
    }
    dlc_text_free(&text);
    return found;
}

TEST(advice_exists) {
    size_t advised = 0;
    for (dlc_synonym row = {0}; dlc_synonym_next(&row);) {
        char words[sizeof row.line], *rest = words;
        snprintf(words, sizeof words, "%s", row.words);
        for (char *word; (word = strsep(&rest, " "));)
            advised += check_advice(word);
    }
    ck_assert_uint_gt(advised, 300);
}

/* Terms must be in the normalized form in which they are compared, or they are never
 * found. A row must have three columns; one that is too long would end the table. */
TEST(rows_are_well_formed) {
    for (dlc_synonym row = {0}; dlc_synonym_next(&row);) {
        ck_assert_msg(strspn(row.words, "abcdefghijklmnopqrstuvwxyz0123456789 ") ==
                          strlen(row.words),
                      "\"%s\"", row.words);
        ck_assert_msg(row.names && row.advice && !strchr(row.advice, '|'), "\"%s\"",
                      row.words);
        ck_assert_msg(*row.names || *row.advice, "\"%s\" leads nowhere", row.words);
    }
    ck_assert_ptr_nonnull(dlc_nearest("zeros", (const char *const[]){"constant"}, 1));
}
