/* The output of ranks 1, 2, ...: read from pipes, written to stderr in whole
 * lines with "[rank N] " before them. Long lines are cut into pieces. */
#ifndef DLC_JOB_OUTPUT_H
#define DLC_JOB_OUTPUT_H

#include <stddef.h>

#define DLC_OUTPUT_ROOM 16384

typedef struct dlc_output {
    int rank;
    int fd; /* non-blocking read end; -1: at its end (or there is none) */
    size_t used;
    char buffer[DLC_OUTPUT_ROOM];
} dlc_output;

/* Is there room to read into? */
int dlc_output_wants(const dlc_output *output);
/* Reads what has come, as far as it fits; closes the pipe at its end. */
void dlc_output_read(dlc_output *output);
/* Is there something to write? */
int dlc_output_has(const dlc_output *output);
/* Writes one piece of whole lines, so small that a stderr that poll() calls
 * writable takes it without blocking. */
void dlc_output_write(dlc_output *output);
/* Writes all that has come so far, even if that blocks; with `last`, also a line
 * that has no end. */
void dlc_output_drain(dlc_output *output, int last);

#endif
