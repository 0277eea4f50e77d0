/* Prints confusion matrices as text and JSON. */
#include "test_report.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

/* A wider matrix does not fit a terminal. */
enum { MATRIX_MOST = 20, MISTAKES_SHOWN = 20, NAME_LETTERS = 24, CELL_LETTERS = 6 };

double dlc_test_share(double x, double n) {
    return n > 0 ? x / n : 0;
}

static double right(const dlc_tally *tally, int32_t class) {
    return dlc_tally_at(tally, class, class);
}

/* ---- Text ------------------------------------------------------------------------ */

static void print_classes(const dlc_test_classes *classes, dlc_text *text) {
    const dlc_tally *tally = classes->tally;
    dlc_text_add(text, "%-*s %8s %9s %10s\n", NAME_LETTERS, "class", "samples",
                 "accuracy", "precision");
    for (int32_t i = 0; i < tally->classes; i++) {
        double samples = dlc_tally_labelled(tally, i);
        double predicted = dlc_tally_predicted(tally, i);
        dlc_text_add_cell(text, -NAME_LETTERS, NAME_LETTERS, classes->names->name[i]);
        dlc_text_add(text, " %8.0f", samples);
        if (samples > 0)
            dlc_text_add(text, " %9.4f", right(tally, i) / samples);
        else
            dlc_text_add(text, " %9s", "-");
        if (predicted > 0)
            dlc_text_add(text, " %10.4f\n", right(tally, i) / predicted);
        else
            dlc_text_add(text, " %10s\n", "-");
    }
    dlc_text_add(text, "%-*s %8.0f %9.4f\n", NAME_LETTERS, "all classes",
                 dlc_tally_samples(tally), dlc_tally_accuracy(tally));
}

static void print_matrix(const dlc_test_classes *classes, dlc_text *text) {
    const dlc_tally *tally = classes->tally;
    dlc_text_add(text, "\nlabel (rows), prediction (columns)\n%*s", NAME_LETTERS, "");
    for (int32_t j = 0; j < tally->classes; j++)
        dlc_text_add_cell(text, CELL_LETTERS + 1, CELL_LETTERS,
                          classes->names->name[j]);
    dlc_text_add(text, "\n");
    for (int32_t i = 0; i < tally->classes; i++) {
        dlc_text_add_cell(text, -NAME_LETTERS, NAME_LETTERS, classes->names->name[i]);
        for (int32_t j = 0; j < tally->classes; j++)
            dlc_text_add(text, " %*.0f", CELL_LETTERS, dlc_tally_at(tally, i, j));
        dlc_text_add(text, "\n");
    }
}

typedef struct mistake {
    double count;
    int32_t label, prediction;
} mistake;

/* The most frequent first; then in the order of the classes. */
static int compare(const void *left, const void *right) {
    const mistake *a = left, *b = right;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    if (a->label != b->label)
        return a->label < b->label ? -1 : 1;
    return a->prediction < b->prediction ? -1 : 1;
}

static void print_mistakes(const dlc_test_classes *classes, dlc_text *text) {
    const dlc_tally *tally = classes->tally;
    size_t count = 0, n = (size_t)tally->classes;
    mistake *list = dlc_alloc(n * n, sizeof *list);
    for (int32_t i = 0; list && i < tally->classes; i++)
        for (int32_t j = 0; j < tally->classes; j++)
            if (i != j && dlc_tally_at(tally, i, j) > 0)
                list[count++] = (mistake){dlc_tally_at(tally, i, j), i, j};
    if (!list) {
        dlc_text_fail(text);
        return;
    }
    qsort(list, count, sizeof *list, compare);
    dlc_text_add(text, "\n%8s  most frequent mistakes\n", "samples");
    for (size_t i = 0; i < count && i < MISTAKES_SHOWN; i++)
        dlc_text_add(text, "%8.0f  %s, taken for %s\n", list[i].count,
                     classes->names->name[list[i].label],
                     classes->names->name[list[i].prediction]);
    dlc_free(list);
}

void dlc_test_print_confusion(const dlc_test_classes *classes, dlc_text *text) {
    print_classes(classes, text);
    if (classes->tally->classes <= MATRIX_MOST)
        print_matrix(classes, text);
    else
        print_mistakes(classes, text);
}

/* ---- JSON ------------------------------------------------------------------------ */

void dlc_test_confusion_json(const dlc_test_classes *classes, dlc_json *json) {
    const dlc_tally *tally = classes->tally;
    dlc_json_array(json, "classes");
    for (int32_t i = 0; i < tally->classes; i++) {
        double samples = dlc_tally_labelled(tally, i);
        double predicted = dlc_tally_predicted(tally, i);
        dlc_json_object(json, NULL);
        dlc_json_string(json, "name", classes->names->name[i]);
        dlc_json_int(json, "samples", (int64_t)samples);
        dlc_json_number(json, "accuracy", dlc_test_share(right(tally, i), samples));
        dlc_json_number(json, "precision", dlc_test_share(right(tally, i), predicted));
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
    dlc_json_array(json, "confusion");
    for (int32_t i = 0; i < tally->classes; i++) {
        dlc_json_array(json, NULL);
        for (int32_t j = 0; j < tally->classes; j++)
            dlc_json_int(json, NULL, (int64_t)dlc_tally_at(tally, i, j));
        dlc_json_end_array(json);
    }
    dlc_json_end_array(json);
}
