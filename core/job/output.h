/* The output of ranks 1, 2, ...: read from pipes and written to stderr in whole lines,
 * prefixed by "[rank N] ". Long lines are cut into pieces. Owned and called by the hub.
 */
#ifndef DLC_JOB_OUTPUT_H
#define DLC_JOB_OUTPUT_H

#include <stddef.h>

#define DLC_OUTPUT_ROOM 16384

typedef struct dlc_output {
    int rank;
    int fd; /* non-blocking read end; -1: at its end, or there is none */
    size_t used;
    char buffer[DLC_OUTPUT_ROOM];
} dlc_output;

/* Whether the pipe is open and there is room to read into. */
int dlc_output_can_read(const dlc_output *output);
/* Reads what is available, as far as it fits; closes the pipe at its end. */
void dlc_output_read(dlc_output *output);
/* Whether there is something to write. */
int dlc_output_can_write(const dlc_output *output);
/* Writes whole lines, in one piece so small that a stderr which poll() calls writable
 * accepts it without blocking. */
void dlc_output_write(dlc_output *output);
/* Writes all that has been read or can be read now; may block on stderr. With `last`,
 * writes an unfinished line, too, and closes the pipe. */
void dlc_output_drain(dlc_output *output, int last);

#endif
