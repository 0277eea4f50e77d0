/* The report of `dlcore plan`, as text and as JSON. */
#ifndef DLC_TOOLS_PLAN_REPORT_H
#define DLC_TOOLS_PLAN_REPORT_H

#include "base/json.h"
#include "plan_measure.h"
#include "plan_predict.h"
#include "plan_target.h"

/* The comparison of a real run with its prediction. */
typedef struct plan_check {
    int done;
    int32_t ranks, iterations;
    double predicted, measured; /* images per second */
    double error;               /* predicted / measured - 1 */
} plan_check;

typedef struct plan_report {
    const char *net, *device;
    double batch; /* per rank */
    const plan_measured *measured;
    const dlc_plan_layer *layer; /* scaled to the target's speed */
    const plan_given *given;
    const plan_target *target;
    const plan_prediction *prediction;
    plan_check check;
} plan_report;

void plan_report_text(const plan_report *report, dlc_text *text);
void plan_report_json(const plan_report *report, dlc_json *json);

#endif
