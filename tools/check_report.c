/* Formats the report of `dlcore check`: tables for people, or one JSON document. */
#include "check_report.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "run/memory.h"
#include "run/run.h"
#include "streams.h"

/* ---- Totals -------------------------------------------------------- */

typedef struct check_totals {
    int64_t parameters, multiply_adds;
    dlc_session_memory memory;
} check_totals;

/* Multiply-adds of one sample. The samples that a rank's part of the net processes can
 * be more than its own: dividing by them makes the ranks' numbers add up to the net's.
 */
static int64_t per_sample(const dlc_session *session, int64_t multiply_adds) {
    return multiply_adds / session->part.samples;
}

static dlc_status add_up(const dlc_session *session, check_totals *totals) {
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(session->net, i, &row));
        totals->parameters += row.parameters;
        totals->multiply_adds += per_sample(session, row.multiply_adds);
    }
    return dlc_session_memory_plan(session, &totals->memory);
}

/* Parameters that no part reported before has. */
static int64_t new_parameters(const dlc_session *session) {
    int64_t count = 0;
    for (int32_t i = 0; !session->part.is_counted && i < dlc_net_params(session->net);
         i++) {
        const dlc_net_param *param = dlc_net_param_at(session->net, i);
        count += param->is_average ? 0 : dlc_shape_count(&param->whole);
    }
    return count;
}

enum { MEMORY_PARTS = 8 };

typedef struct memory_part {
    const char *name;
    uint64_t bytes;
} memory_part;

static void list_memory(const dlc_session_memory *memory,
                        memory_part parts[MEMORY_PARTS]) {
    const memory_part list[MEMORY_PARTS] = {
        {"weights", memory->weights},       {"gradients", memory->gradients},
        {"solver", memory->solver},         {"activations", memory->activations},
        {"uploads", memory->uploads},       {"feeds", memory->feeds},
        {"checkpoint", memory->checkpoint}, {"process", memory->process}};
    memcpy(parts, list, sizeof list);
}

static int is_test_only(const dlc_session *session, const char *layer) {
    const dlc_graph *graph = session->setup->graph;
    int32_t i = dlc_graph_layer_named(graph, layer);
    return i >= 0 && graph->layer[i].phases == DLC_PHASE_TEST;
}

/* ---- Text ------------------------------------------------------------------ */

static void format_shape(const dlc_shape *shape, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < shape->rank && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, i ? "x" : "",
                                 shape->dims[i]);
}

/* Raises the width of a column to that of `text`. */
static void widen(int *width, const char *text) {
    int length = (int)strlen(text);
    if (*width < length)
        *width = length;
}

/* The columns' widths. */
typedef struct columns {
    int name, type, output, parameters, multiply_adds;
    int terminal; /* columns that a line may have; 0: any */
} columns;

/* What is left of a terminal's line for the last column. */
static int left_of(const columns *width) {
    const int gaps = 10;
    int used = width->name + width->type + width->output + width->parameters +
               width->multiply_adds + gaps;
    return !width->terminal         ? INT_MAX
           : used < width->terminal ? width->terminal - used
                                    : 0;
}

/* Prints one line of the table, or with `print` 0 only measures it. */
static void add_line(const dlc_net_row *row, int64_t multiply_adds, const char *by,
                     int print, columns *width) {
    char shape[96], parameters[32], sums[32];
    format_shape(&row->output, shape, sizeof shape);
    (void)snprintf(parameters, sizeof parameters, "%" PRId64, row->parameters);
    (void)snprintf(sums, sizeof sums, "%" PRId64, multiply_adds);
    widen(&width->name, row->name);
    widen(&width->type, row->type);
    widen(&width->output, shape);
    widen(&width->parameters, parameters);
    widen(&width->multiply_adds, sums);
    if (print)
        printf("%-*s  %-*s  %-*s  %*s  %*s  %.*s\n", width->name, row->name,
               width->type, row->type, width->output, shape, width->parameters,
               parameters, width->multiply_adds, sums, left_of(width), by);
}

/* Layers that run in tests only. They are not part of the totals. */
static dlc_status print_test_rows(const dlc_session *session, int print,
                                  columns *width) {
    const dlc_net *net = session->test_net;
    for (int32_t i = 0; net && i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        char by[128];
        DLC_TRY(dlc_net_row_at(net, i, &row));
        if (!is_test_only(session, row.name))
            continue;
        (void)snprintf(by, sizeof by, "%s (in tests)",
                       row.fused_into ? row.fused_into : row.choice);
        add_line(&row, row.multiply_adds / session->setup->test.batch, by, print,
                 width);
    }
    return DLC_OK;
}

static const char *done_by(const dlc_net_row *row, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "%s%s", row->fused_into ? row->fused_into : row->choice,
                   row->frozen ? " (frozen)" : "");
    return text;
}

static dlc_status print_train_rows(const dlc_session *session, int print,
                                   columns *width) {
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        dlc_net_row row;
        char by[128];
        DLC_TRY(dlc_net_row_at(session->net, i, &row));
        if (!row.is_reorder)
            add_line(&row, per_sample(session, row.multiply_adds),
                     done_by(&row, by, sizeof by), print, width);
    }
    return DLC_OK;
}

/* Goes over the rows twice: to measure the columns, then to print them. */
static dlc_status print_rows(const dlc_session *session) {
    columns width = {5, 4, 6, 6, 8, .terminal = dlc_tool_columns()};
    for (int print = 0; print < 2; print++) {
        if (print)
            printf("%-*s  %-*s  %-*s  %*s  %*s  %.*s\n", width.name, "layer",
                   width.type, "type", width.output, "output", width.parameters,
                   "params", width.multiply_adds, "mul-adds", left_of(&width),
                   "done by");
        DLC_TRY(print_train_rows(session, print, &width));
        DLC_TRY(print_test_rows(session, print, &width));
    }
    return DLC_OK;
}

/* Names layers that never run and so have no row in the table. */
static void print_unused(const dlc_session *session) {
    const dlc_graph *graph = session->setup->graph;
    for (int32_t i = 0; !session->setup->test.present && i < graph->layers; i++)
        if (graph->layer[i].phases == DLC_PHASE_TEST)
            printf("[%s] never runs: it is used in tests only, and there is no "
                   "[data.test]\n",
                   graph->layer[i].name);
}

static void print_memory(const dlc_session_memory *memory) {
    memory_part parts[MEMORY_PARTS];
    list_memory(memory, parts);
    printf("peak memory    %.1f MB per rank:", (double)memory->peak / 1e6);
    for (int i = 0, shown = 0; i < MEMORY_PARTS; i++)
        if (parts[i].bytes) /* so many fit in a line of 80 columns */
            printf("%s%s %.1f", shown++ % 3 ? ", " : "\n               ", parts[i].name,
                   (double)parts[i].bytes / 1e6);
    printf("\n");
}

static dlc_status print_who(const dlc_session *session) {
    dlc_text what = {0};
    int32_t ranks = session->part.ranks;
    dlc_session_describe_part(session, &what, NULL);
    printf("%srank%s %d", session->rank > 0 ? "\n" : "", ranks > 1 ? "s" : "",
           (int)session->rank);
    if (ranks > 1)
        printf(" to %d", (int)(session->rank + ranks - 1));
    printf(": %s\n\n", dlc_text_string(&what));
    dlc_status status = dlc_text_status(&what);
    dlc_text_free(&what);
    return status;
}

/* Do the ranks, which all have the whole net, have different numbers of samples? */
static int splits_unequally(const dlc_session *session) {
    return !session->part.is_divided &&
           !dlc_batch_split_is_equal(&session->setup->batch_split);
}

static dlc_status print_text(const dlc_session *session, const check_totals *totals) {
    DLC_TRY(print_rows(session));
    printf("\nparameters     %" PRId64 "\n", totals->parameters);
    printf("multiply-adds  %" PRId64 " per sample, forward\n", totals->multiply_adds);
    printf("batch          %s%" PRId64 " per rank, %" PRId64 " effective\n",
           splits_unequally(session) ? "at most " : "", session->local_batch,
           dlc_session_samples(session));
    printf("reorders       %d between layers of different layouts\n",
           (int)dlc_net_memory_plan(session->net).reorders);
    print_memory(&totals->memory);
    return DLC_OK;
}

/* ---- JSON --------------------------------------------------------------------- */

static void add_layer(const dlc_net_row *row, const char *phase, int64_t multiply_adds,
                      dlc_json *json) {
    dlc_json_object(json, NULL);
    dlc_json_string(json, "name", row->name);
    dlc_json_string(json, "type", row->type);
    dlc_json_string(json, "phase", phase);
    dlc_json_array(json, "output");
    for (int32_t j = 0; j < row->output.rank; j++)
        dlc_json_int(json, NULL, row->output.dims[j]);
    dlc_json_end_array(json);
    dlc_json_int(json, "parameters", row->parameters);
    dlc_json_bool(json, "frozen", row->frozen);
    dlc_json_int(json, "multiply_adds", multiply_adds);
    dlc_json_end_object(json);
}

static const char *phase_text(const dlc_session *session, const char *layer) {
    const dlc_graph *graph = session->setup->graph;
    int32_t i = dlc_graph_layer_named(graph, layer);
    return i >= 0 && graph->layer[i].phases == DLC_PHASE_TRAIN ? "train" : "both";
}

static dlc_status add_layers(const dlc_session *session, dlc_json *json) {
    const dlc_net *test = session->test_net;
    dlc_net_row row;
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        DLC_TRY(dlc_net_row_at(session->net, i, &row));
        if (!row.is_reorder)
            add_layer(&row, phase_text(session, row.name),
                      per_sample(session, row.multiply_adds), json);
    }
    for (int32_t i = 0; test && i < dlc_net_rows(test); i++) {
        DLC_TRY(dlc_net_row_at(test, i, &row));
        if (is_test_only(session, row.name))
            add_layer(&row, "test", row.multiply_adds / session->setup->test.batch,
                      json);
    }
    return DLC_OK;
}

/* Writes into the object that is open. */
static dlc_status add_net(const dlc_session *session, const check_totals *totals,
                          dlc_json *json) {
    memory_part parts[MEMORY_PARTS];
    list_memory(&totals->memory, parts);
    dlc_json_int(json, "parameters", totals->parameters);
    dlc_json_int(json, "multiply_adds", totals->multiply_adds);
    dlc_json_int(json, "peak_bytes", (int64_t)totals->memory.peak);
    dlc_json_object(json, "memory");
    for (int i = 0; i < MEMORY_PARTS; i++)
        dlc_json_int(json, parts[i].name, (int64_t)parts[i].bytes);
    dlc_json_end_object(json);
    dlc_json_int(json, "batch", session->local_batch);
    dlc_json_int(json, "effective_batch", dlc_session_samples(session));
    dlc_json_array(json, "layers");
    DLC_TRY(add_layers(session, json));
    dlc_json_end_array(json);
    return DLC_OK;
}

static void begin_json(check_report *report, const dlc_session *session) {
    dlc_json_object(&report->json, NULL);
    dlc_json_string(&report->json, "net", session->setup->name);
}

/* ---- The report ------------------------------------------------------------------ */

dlc_status check_report_net(check_report *report, const dlc_session *session) {
    check_totals totals = {0};
    DLC_TRY(add_up(session, &totals));
    dlc_memory_add(session->setup, &totals.memory, report->ranks, &report->memory);
    if (report->json_wanted) {
        begin_json(report, session);
        return add_net(session, &totals, &report->json);
    }
    DLC_TRY(print_text(session, &totals));
    print_unused(session);
    if (report->is_divided)
        printf(
            "parallel       ranks hold different layers or channels: --ranks=N shows each "
            "rank's part\n");
    return DLC_OK;
}

static dlc_status add_part(check_report *report, const dlc_session *session,
                           int32_t count, const check_totals *totals) {
    dlc_json *json = &report->json;
    if (report->shown++ == 0) {
        begin_json(report, session);
        dlc_json_array(json, "ranks");
    }
    dlc_json_object(json, NULL);
    dlc_json_int(json, "first", session->rank);
    dlc_json_int(json, "count", count);
    dlc_session_describe_part(session, NULL, json);
    DLC_TRY(add_net(session, totals, json));
    dlc_json_end_object(json);
    return DLC_OK;
}

dlc_status check_report_part(check_report *report, const dlc_session *session) {
    check_totals totals = {0};
    int32_t ranks = session->part.ranks;
    DLC_TRY(add_up(session, &totals));
    dlc_memory_add(session->setup, &totals.memory, ranks, &report->memory);
    report->parameters += new_parameters(session);
    report->multiply_adds += totals.multiply_adds;
    if (totals.memory.peak > report->peak)
        report->peak = totals.memory.peak;
    if (report->json_wanted)
        return add_part(report, session, ranks, &totals);
    report->shown++;
    DLC_TRY(print_who(session));
    return print_text(session, &totals);
}

static dlc_status end_json(check_report *report) {
    dlc_json *json = &report->json;
    if (report->shown > 0) {
        dlc_json_end_array(json);
        dlc_json_int(json, "parameters", report->parameters);
        dlc_json_int(json, "multiply_adds", report->multiply_adds);
        dlc_json_int(json, "peak_bytes", (int64_t)report->peak);
    }
    check_mistakes_write(report->mistakes, json);
    dlc_json_end_object(json);
    return dlc_tool_print_json(json);
}

/* A document with nothing but the mistakes. */
static dlc_status end_failed(check_report *report, dlc_status status) {
    dlc_json json = {0};
    check_mistakes_end(report->mistakes, status);
    dlc_json_object(&json, NULL);
    check_mistakes_write(report->mistakes, &json);
    dlc_json_end_object(&json);
    (void)dlc_tool_print_json(&json); /* the first failure counts */
    return status;
}

dlc_status check_report_end(check_report *report, dlc_status status) {
    if (status == DLC_OK && report->json_wanted)
        return end_json(report);
    dlc_text_free(&report->json.text);
    if (status != DLC_OK && report->json_wanted)
        return end_failed(report, status);
    if (status == DLC_OK && report->shown > 0)
        printf("\nall ranks: %" PRId64 " parameters, %" PRId64
               " multiply-adds per sample, forward; at most %.1f MB\n",
               report->parameters, report->multiply_adds, (double)report->peak / 1e6);
    return status;
}
