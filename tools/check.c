/* dlcore check: a net validated and laid out, without training it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "options.h"
#include "train/session.h"

typedef struct check_totals {
    int64_t parameters, multiply_adds;
    dlc_session_memory memory;
} check_totals;

static error_t parse(int key, char *argument, struct argp_state *state) {
    (void)argument;
    if (key != ARGP_KEY_INIT)
        return ARGP_ERR_UNKNOWN;
    dlc_tool_share_input(state, state->input);
    return 0;
}

static const struct argp argp = {
    .parser = parse,
    .args_doc = "NET.INI",
    .doc = "Validates net.ini and shows what it describes: layers, shapes, parameters, "
           "multiply-adds of one sample forward, and the memory that a rank will take.",
    .children = dlc_tool_children};

static void format_shape(const dlc_shape *shape, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < shape->rank && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, i ? "x" : "",
                                 shape->dims[i]);
}

/* The widest text of a column, at least its heading's. */
static void widen(int *width, const char *text) {
    int length = (int)strlen(text);
    if (*width < length)
        *width = length;
}

/* Twice over the rows: for the columns' widths, then to print them. */
static dlc_status print_rows(const dlc_session *session) {
    int64_t batch = session->share;
    int name = 5, type = 4, output = 6;
    for (int print = 0; print < 2; print++) {
        if (print)
            printf("%-*s  %-*s  %-*s %12s %14s  %s\n", name, "layer", type, "type",
                   output, "output", "parameters", "multiply-adds", "done by");
        for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
            dlc_net_row row;
            char shape[96];
            DLC_TRY(dlc_net_row_at(session->net, i, &row));
            if (row.is_reorder)
                continue;
            format_shape(&row.output, shape, sizeof shape);
            widen(&name, row.name);
            widen(&type, row.type);
            widen(&output, shape);
            if (print)
                printf("%-*s  %-*s  %-*s %12" PRId64 " %14" PRId64 "  %s\n", name,
                       row.name, type, row.type, output, shape, row.parameters,
                       row.multiply_adds / batch,
                       row.absorbed_by ? row.absorbed_by : row.choice);
        }
    }
    return DLC_OK;
}

static dlc_status add_up(const dlc_session *session, check_totals *totals) {
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(session->net, i, &row));
        totals->parameters += row.parameters;
        totals->multiply_adds += row.multiply_adds / session->share;
    }
    return dlc_session_memory_plan(session, &totals->memory);
}

enum { MEMORY_PARTS = 6 };

typedef struct memory_part {
    const char *name;
    uint64_t bytes;
} memory_part;

static void list_memory(const dlc_session_memory *memory,
                        memory_part parts[MEMORY_PARTS]) {
    const memory_part list[MEMORY_PARTS] = {
        {"weights", memory->weights}, {"gradients", memory->gradients},
        {"solver", memory->solver},   {"activations", memory->activations},
        {"feeds", memory->feeds},     {"process", memory->process}};
    memcpy(parts, list, sizeof list);
}

static void print_memory(const dlc_session_memory *memory) {
    memory_part parts[MEMORY_PARTS];
    list_memory(memory, parts);
    printf("peak memory    %.1f MB a rank:", (double)memory->peak / 1e6);
    for (int i = 0; i < MEMORY_PARTS; i++)
        if (parts[i].bytes)
            printf("%s %s %.1f", i ? "," : "", parts[i].name,
                   (double)parts[i].bytes / 1e6);
    printf("\n");
}

static dlc_status print_text(const dlc_session *session, const check_totals *totals) {
    DLC_TRY(print_rows(session));
    printf("\nparameters     %" PRId64 "\n", totals->parameters);
    printf("multiply-adds  %" PRId64 " a sample, forward\n", totals->multiply_adds);
    printf("batch          %" PRId64 " a rank, %" PRId64 " effective\n", session->share,
           dlc_session_samples(session));
    printf("reorders       %d between layers of different layouts\n",
           (int)dlc_net_memory_plan(session->net).reorders);
    print_memory(&totals->memory);
    return DLC_OK;
}

static dlc_status print_json(const dlc_session *session, const check_totals *totals) {
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_json_string(&json, "net", session->setup->name);
    dlc_json_int(&json, "parameters", totals->parameters);
    dlc_json_int(&json, "multiply_adds", totals->multiply_adds);
    dlc_json_int(&json, "peak_bytes", (int64_t)totals->memory.peak);
    dlc_json_object(&json, "memory");
    memory_part parts[MEMORY_PARTS];
    list_memory(&totals->memory, parts);
    for (int i = 0; i < MEMORY_PARTS; i++)
        dlc_json_int(&json, parts[i].name, (int64_t)parts[i].bytes);
    dlc_json_end_object(&json);
    dlc_json_int(&json, "batch", session->share);
    dlc_json_int(&json, "effective_batch", dlc_session_samples(session));
    dlc_json_array(&json, "layers");
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        dlc_net_row row;
        dlc_status status = dlc_net_row_at(session->net, i, &row);
        if (status != DLC_OK) {
            dlc_text_free(&json.text);
            return status;
        }
        if (row.is_reorder)
            continue;
        dlc_json_object(&json, NULL);
        dlc_json_string(&json, "name", row.name);
        dlc_json_string(&json, "type", row.type);
        dlc_json_array(&json, "output");
        for (int32_t j = 0; j < row.output.rank; j++)
            dlc_json_int(&json, NULL, row.output.dims[j]);
        dlc_json_end_array(&json);
        dlc_json_int(&json, "parameters", row.parameters);
        dlc_json_int(&json, "multiply_adds", row.multiply_adds / session->share);
        dlc_json_end_object(&json);
    }
    dlc_json_end_array(&json);
    dlc_json_end_object(&json);
    return dlc_tool_print_json(&json);
}

typedef struct check_command {
    dlc_tool_options tool; /* first: what the child parsers get */
    dlc_setup *setup;
} check_command;

static int check_as_rank(dlc_job *job, void *argument) {
    check_command *command = argument;
    dlc_session session;
    check_totals totals = {0};
    dlc_status status = dlc_session_open_plan(command->setup, job, &session);
    if (status == DLC_OK) {
        status = add_up(&session, &totals);
        if (status == DLC_OK)
            status = command->tool.json ? print_json(&session, &totals)
                                        : print_text(&session, &totals);
        dlc_session_close(&session);
    }
    return dlc_tool_end(status);
}

int dlc_command_check(int argc, char **argv) {
    check_command command = {0};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = dlc_tool_setup(&command.tool, &command.setup);
    if (status == DLC_OK)
        status = dlc_setup_open_data(command.setup, 1, 1);
    if (status == DLC_OK) {
        dlc_job_options job = {.ranks = 1}; /* one shows what all have */
        status = dlc_job_run(&job, check_as_rank, &command, &exit_code);
    }
    return dlc_tool_close(&command.tool, command.setup, status, exit_code);
}
