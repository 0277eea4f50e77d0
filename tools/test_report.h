/* Shows how a net classifies: as text, JSON and a picture. Used by `dlcore test`. */
#ifndef DLC_TOOLS_TEST_REPORT_H
#define DLC_TOOLS_TEST_REPORT_H

#include "base/json.h"
#include "class_names.h"
#include "tally.h"

typedef struct dlc_test_classes {
    const dlc_tally *tally; /* added up over the ranks */
    const dlc_class_names *names;
} dlc_test_classes;

/* The accuracy of each class, and the matrix; with many classes the most frequent
 * mistakes instead of the matrix. */
void dlc_test_print_confusion(const dlc_test_classes *classes, dlc_text *text);
/* Adds "classes" (name, samples, accuracy, precision) and "confusion", one row per
 * label. */
void dlc_test_confusion_json(const dlc_test_classes *classes, dlc_json *json);
/* Draws the matrix: a row for each label, a column for each prediction. */
void dlc_test_draw_confusion(const dlc_test_classes *classes, const char *net,
                             dlc_text *svg);

/* x / n, or 0 of none. */
double dlc_test_share(double x, double n);

#endif
