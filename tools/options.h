/* What the subcommands that take a net.ini share: option parsers, set-up, and how they
 * end. Options such as --ranks are shorthands for --set. */
#ifndef DLC_TOOLS_OPTIONS_H
#define DLC_TOOLS_OPTIONS_H

#include <argp.h>

#include "base/json.h"
#include "hosts.h"
#include "job/job.h"
#include "setup/setup.h"
#include "weights.h"

/* "section.key=value", in the order given; collected from --set and its shorthands.
 * Initialize with {0}. */
typedef struct dlc_tool_sets {
    char **list;
    size_t count;
    int failed; /* memory ran out */
} dlc_tool_sets;

/* Takes ownership of `text`; NULL means that its allocation failed. */
void dlc_tool_sets_add(dlc_tool_sets *sets, char *text);
void dlc_tool_sets_free(dlc_tool_sets *sets);

typedef struct dlc_tool_options {
    const char *path; /* net.ini */
    dlc_tool_sets sets;
    const char *log_file;
    int json;
    int data_only;            /* the command needs no net (dlc_setup_args) */
    dlc_tool_hosts hosts;     /* of the commands that can run on several */
    dlc_tool_weights weights; /* of the commands that load any */
    /* Optional, set by the command itself: called with each mistake, beside the log. */
    void (*tell)(void *context, const dlc_mistake *mistake);
    void *tell_context;
} dlc_tool_options;

/* The shared parsers, for argp.children: net.ini, --set, --json, --log-file, -v and -q;
 * and the options of a job (--ranks, --transport, --seed, ...). A command's own parser
 * passes them its input at ARGP_KEY_INIT, by dlc_tool_share_input. */
extern const struct argp_child dlc_tool_children[];
/* The same, and the options of weights.h. */
extern const struct argp_child dlc_tool_children_with_weights[];
/* The same, and the options of hosts.h. */
extern const struct argp_child dlc_tool_children_of_train[];
void dlc_tool_share_input(struct argp_state *state, dlc_tool_options *options);
void dlc_tool_share_input_with_weights(struct argp_state *state,
                                       dlc_tool_options *options);
void dlc_tool_share_input_of_train(struct argp_state *state, dlc_tool_options *options);

/* Parses a command line. Ends the process with exit code 2 if it is wrong, with 0 after
 * --help, and with 1 if memory runs out. */
void dlc_tool_parse(const struct argp *argp, int argc, char **argv, void *input);

/* The value of option --`name`, 1 to `most`; otherwise ends the process with code 2. */
int dlc_tool_parse_count(const char *name, const char *argument, int most,
                         struct argp_state *state);

/* The value of --plot, which must name an SVG file; otherwise ends the process with
 * code 2. */
const char *dlc_tool_parse_plot(const char *argument, struct argp_state *state);

/* Opens the log file and the setup, with the data of `phases` (DLC_PHASE_ bits), and
 * finds the files of the weights. */
dlc_status dlc_tool_setup(dlc_tool_options *options, unsigned phases,
                          dlc_setup **setup);

/* What a job with ranks on this device has to find out of its machine. */
dlc_job_discovery dlc_tool_discovery(const dlc_feature *device);

/* Runs `main` as every rank that the setup asks for. */
dlc_status dlc_tool_run(const dlc_setup *setup, dlc_job_main main, void *argument,
                        int *exit_code);

/* Logs the detail sentence of a failure and returns its exit code. */
int dlc_tool_end(dlc_status status);

/* Closes and frees everything that a command opened. Returns the exit code to end with:
 * the job's, or that of a failure, which is logged. */
int dlc_tool_close(dlc_tool_options *options, dlc_setup *setup, dlc_status status,
                   int exit_code);

/* Like dlc_tool_end, for a rank: a failure of several ranks is logged once
 * (dlc_job_report_failure). */
int dlc_tool_end_rank(dlc_job *job, dlc_status status);

/* Print a finished text or JSON document on stdout, and free it. */
dlc_status dlc_tool_print_text(dlc_text *text);
dlc_status dlc_tool_print_json(dlc_json *json);

#endif
