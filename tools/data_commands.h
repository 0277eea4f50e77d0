/* The commands of `dlcore data`, one per file, and what they share: a scan of all
 * samples of a section of net.ini by several threads, with a progress bar. */
#ifndef DLC_TOOLS_DATA_COMMANDS_H
#define DLC_TOOLS_DATA_COMMANDS_H

#include "data/samples.h"
#include "data/transform.h"
#include "options.h"

int dlc_command_data_stats(int argc, char **argv);
int dlc_command_data_verify(int argc, char **argv);
int dlc_command_data_preview(int argc, char **argv);
int dlc_command_data_split(int argc, char **argv);
int dlc_command_data_convert(int argc, char **argv);

/* What every one of these commands begins with. */
typedef struct data_command {
    dlc_tool_options tool; /* first: the child parsers get a pointer to it */
    int test;              /* [data.test] instead of [data] */
    dlc_setup *setup;
    dlc_data_setup *data; /* the section that is meant */
    int32_t threads;      /* that work on samples; at least 1 */
} data_command;

/* The options of a command that has no others, and the parser of what all have, which
 * parsers of more options end with. */
enum { DATA_KEY_TEST = 0x3ff };
extern const struct argp_option data_command_options[];
error_t data_command_parse(int key, char *argument, struct argp_state *state);

/* Opens the setup, without reading samples, and the source of the section. */
dlc_status data_command_open(data_command *command);
/* Closes all of it; returns the exit code. */
int data_command_close(data_command *command, dlc_status status);

/* One sample of a scan. */
typedef struct data_sample {
    int64_t index;
    int32_t label;
    const uint8_t *labels; /* DLC_ROLE_CLASSES; NULL: it has one class */
    dlc_status status;     /* DLC_ERR_DATA: it is bad, dlc_detail() says why */
    dlc_image image; /* whole, or the numbers, each a channel of one pixel; of a bad
                        sample, or of a scan of labels, empty */
    dlc_value boxes; /* of the field that data_boxes finds, and sound; else empty */
    int64_t clipped; /* of these, how many reach beyond the image */
} data_sample;

typedef struct data_scan {
    const data_command *command;
    int labels_only;
    int all_fields; /* read them, too, though a visit is only shown image and classes */
    /* Called for each sample, by `thread` 0 .. command->threads - 1, in any order. */
    void (*visit)(void *context, int32_t thread, const data_sample *sample);
    void *context;
} data_scan;

/* Shows how many samples are done; `before` were when the work began, at `begin`. */
void data_draw_bar(int64_t done, int64_t all, int64_t before, uint64_t begin);
/* The field of boxes around objects in the images; -1: there is none. */
int32_t data_boxes(const dlc_samples *samples);
/* Any status but DLC_ERR_DATA of a sample ends the scan. */
dlc_status data_scan_run(data_scan *scan);

#endif
