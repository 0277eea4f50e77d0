/* dlcore test: computes loss and accuracy of saved weights on [data.test], and shows
 * which classes are taken for which. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "checkpoint/weights.h"
#include "command.h"
#include "file.h"
#include "net/graph.h"
#include "options.h"
#include "regression.h"
#include "run/run.h"
#include "test_report.h"
#include "train/evaluate.h"

typedef struct test_command {
    dlc_tool_options tool; /* first: the child parsers get a pointer to it */
    int confusion, top;
    const char *plot;
    int regresses; /* the net has no classes, but targets that are numbers */
    dlc_regression regression;
    dlc_setup *setup;
} test_command;

/* What rank 0 reports. */
typedef struct test_result {
    dlc_evaluation evaluation;
    dlc_tally tally; /* its `confusion` is NULL where it was not asked for */
    dlc_class_names names;
    dlc_regression regression; /* its count is 0 if the net is for something else */
} test_result;

enum { KEY_CONFUSION = 0x300, KEY_TOP, KEY_PLOT };

static const struct argp_option options[] = {
    {"confusion", KEY_CONFUSION, NULL, 0,
     "also show the confusion matrix, and accuracy and precision of each class", 0},
    {"top", KEY_TOP, "K", 0, "also show the top-K accuracy", 0},
    {"plot", KEY_PLOT, "FILE.svg", 0, "draw the confusion matrix", 0},
    {0}};

static error_t parse(int key, char *argument, struct argp_state *state) {
    test_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input_with_weights(state, &command->tool);
        return 0;
    case KEY_CONFUSION:
        command->confusion = 1;
        return 0;
    case KEY_TOP:
        command->top = dlc_tool_parse_count("top", argument, INT_MAX, state);
        return 0;
    case KEY_PLOT:
        command->plot = dlc_tool_parse_plot(argument, state);
        return 0;
    case ARGP_KEY_END:
        if (!command->tool.weights.file.count)
            argp_error(state, "which weights? Give --weights FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {.options = options,
                                 .parser = parse,
                                 .args_doc = "NET.INI",
                                 .doc = "Tests saved weights on [data.test].",
                                 .children = dlc_tool_children_with_weights};

static int tallies(const test_command *command) {
    return command->confusion || command->top || command->plot;
}

/* ---- Reporting ------------------------------------------------------------------- */

/* The accuracy of the net's own metric, or else of the classes that were counted. */
static double accuracy_of(const test_result *result) {
    const dlc_tally *tally = &result->tally;
    return isnan(result->evaluation.accuracy) && tally->confusion
               ? dlc_tally_accuracy(tally)
               : result->evaluation.accuracy;
}

static void json_regression(const dlc_regression *regression, dlc_json *json) {
    dlc_json_object(json, "regression");
    dlc_json_number(json, "mean_absolute_error", dlc_regression_mae(regression));
    dlc_json_number(json, "root_mean_square_error", dlc_regression_rmse(regression));
    dlc_json_number(json, "r2", dlc_regression_r2(regression));
    dlc_json_end_object(json);
}

static dlc_status print_json(const dlc_session *session, const test_command *command,
                             const test_result *result) {
    const dlc_evaluation *evaluation = &result->evaluation;
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_json_string(&json, "net", session->setup->name);
    dlc_json_int(&json, "ranks", session->ranks);
    dlc_json_int(&json, "samples", session->setup->test.info.samples);
    dlc_json_number(&json, "test_loss", evaluation->loss);
    dlc_json_number(&json, "accuracy", accuracy_of(result));
    dlc_json_object(&json, "metrics");
    for (int32_t i = 0; i < evaluation->metrics; i++)
        dlc_json_number(&json, evaluation->metric[i].name,
                        dlc_metric_mean(&evaluation->metric[i]));
    dlc_json_end_object(&json);
    if (result->regression.count > 0)
        json_regression(&result->regression, &json);
    if (command->top) {
        dlc_json_object(&json, "top");
        dlc_json_int(&json, "k", command->top);
        dlc_json_number(
            &json, "accuracy",
            dlc_test_share(result->tally.in_top, dlc_tally_samples(&result->tally)));
        dlc_json_end_object(&json);
    }
    if (command->confusion)
        dlc_test_confusion_json(&(dlc_test_classes){&result->tally, &result->names},
                                &json);
    dlc_json_number(&json, "seconds", evaluation->seconds);
    dlc_json_end_object(&json);
    return dlc_tool_print_json(&json);
}

static dlc_status print_text(const test_command *command, const test_result *result) {
    const dlc_evaluation *evaluation = &result->evaluation;
    dlc_text text = {0};
    if (evaluation->losses && !evaluation->is_one_loss)
        dlc_text_add(&text, "total loss %.4f\n", evaluation->loss);
    for (int32_t i = 0; i < evaluation->metrics; i++)
        dlc_text_add(&text, "%s %.4f\n", evaluation->metric[i].name,
                     dlc_metric_mean(&evaluation->metric[i]));
    if (result->regression.count > 0)
        dlc_text_add(&text,
                     "mean absolute error %.6g\nroot mean square error %.6g\nR2 %.4f\n",
                     dlc_regression_mae(&result->regression),
                     dlc_regression_rmse(&result->regression),
                     dlc_regression_r2(&result->regression));
    if (command->top)
        dlc_text_add(
            &text, "top-%d accuracy %.4f\n", command->top,
            dlc_test_share(result->tally.in_top, dlc_tally_samples(&result->tally)));
    if (command->confusion) {
        dlc_text_add(&text, "\n");
        dlc_test_print_confusion(&(dlc_test_classes){&result->tally, &result->names},
                                 &text);
    }
    return dlc_tool_print_text(&text);
}

static dlc_status draw(const dlc_session *session, const test_command *command,
                       const test_result *result) {
    dlc_text svg = {0};
    dlc_test_draw_confusion(&(dlc_test_classes){&result->tally, &result->names},
                            session->setup->name, &svg);
    dlc_status status = dlc_text_status(&svg);
    if (status == DLC_OK)
        status = dlc_tool_file_write(command->plot, svg.bytes, svg.length);
    dlc_text_free(&svg);
    return status;
}

static dlc_status report(const dlc_session *session, const test_command *command,
                         test_result *result) {
    if (session->rank != 0)
        return DLC_OK;
    if (tallies(command))
        DLC_TRY(dlc_class_names_open(session->setup, command->tool.weights.file.list[0],
                                     result->tally.classes, &result->names));
    if (command->plot)
        DLC_TRY(draw(session, command, result));
    return command->tool.json ? print_json(session, command, result)
                              : print_text(command, result);
}

/* ---- Testing --------------------------------------------------------------------- */

/* Is there a target for each value of the output? */
static int targets_fit(const dlc_session *session, int32_t field) {
    const dlc_loaded_field *target = dlc_feed_field(session->test_feed, field);
    return target->dtype == DLC_F32 &&
           (size_t)dlc_shape_count(&target->shape) == session->output.values;
}

/* Tests, and counts the predictions if that was asked for. */
static dlc_status test(dlc_session *session, const test_command *command,
                       test_result *result) {
    dlc_weights weights = dlc_tool_weights_of(&command->tool.weights);
    dlc_evaluation_reader reader = {dlc_tally_take, &result->tally};
    const dlc_shape *shape = &session->output.boundary.shape;
    DLC_TRY(dlc_checkpoint_load_weights(session, session->test_net, &weights));
    if (command->regresses && targets_fit(session, command->regression.field)) {
        result->regression = command->regression;
        reader = (dlc_evaluation_reader){dlc_regression_take, &result->regression};
        DLC_TRY(dlc_evaluate(session, &reader, &result->evaluation));
        return dlc_regression_sum(&result->regression, session->job);
    }
    if (!tallies(command))
        return dlc_evaluate(session, NULL, &result->evaluation);
    if ((size_t)shape->dims[1] != session->output.values)
        return dlc_fail(DLC_ERR_CONFIG,
                        "the net has several scores of each class for a "
                        "sample, of which no table can be made");
    DLC_TRY(dlc_tally_open((int32_t)session->output.values,
                           command->top ? command->top : 1, &result->tally));
    DLC_TRY(dlc_evaluate(session, &reader, &result->evaluation));
    return dlc_tally_sum(&result->tally, session->job);
}

static int test_as_rank(dlc_job *job, void *argument) {
    test_command *command = argument;
    dlc_session session;
    test_result result = {.evaluation = {.metrics = 0}};
    const dlc_graph *graph = command->setup->graph;
    dlc_session_output scores = {.is_wanted = tallies(command)};
    dlc_status status = DLC_OK;
    dlc_job_stop_at_once(job, 1);
    if (scores.is_wanted)
        status = dlc_graph_find_scores(graph, DLC_LAYER_CLASSIFIES, &scores.from);
    else
        scores.is_wanted = command->regresses = dlc_regression_find(
            graph, &scores.from, &command->regression);
    if (status == DLC_OK)
        status = dlc_session_open_test(command->setup, job, &scores, &session);
    if (status != DLC_OK)
        return dlc_tool_end_rank(job, status);
    status = test(&session, command, &result);
    if (status == DLC_OK)
        status = report(&session, command, &result);
    dlc_class_names_close(&result.names);
    dlc_tally_close(&result.tally);
    dlc_session_close(&session);
    return dlc_tool_end_rank(job, status);
}

int dlc_command_test(int argc, char **argv) {
    test_command command = {0};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = dlc_tool_setup(&command.tool, DLC_PHASE_TEST, &command.setup);
    if (status == DLC_OK && !command.setup->test.present)
        status = dlc_fail(DLC_ERR_CONFIG, "%s has no [data.test] to test on",
                          command.tool.path);
    if (status == DLC_OK && command.plot)
        status = dlc_tool_file_check(command.plot);
    if (status == DLC_OK)
        status = dlc_tool_run(command.setup, test_as_rank, &command, &exit_code);
    return dlc_tool_close(&command.tool, command.setup, status, exit_code);
}
