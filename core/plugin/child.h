/* Runs a plugin's code in a process of its own, which is ended with everything that it
 * has started. Called by scan.c, and by whoever tries a call first. */
#ifndef DLC_PLUGIN_CHILD_H
#define DLC_PLUGIN_CHILD_H

#include <stddef.h>
#include <sys/types.h>

#include <dlcore/status.h>

/* A child, and the guard between it and this process: the guard adopts whatever the
 * child's descendants leave behind, and kills it. It continues a child that is stopped:
 * whoever stops a job stops the guard as well. */
typedef struct dlc_child {
    pid_t guard, pid;
    int fd; /* the end of the pipe from which this process reads; non-blocking */
} dlc_child;

/* Calls body(fd, context) in a new process, where `fd` is the end of the pipe to write
 * to; the process ends when it returns, without exit handlers. It does not outlive this
 * process. Returns when the process is about to make the call: 1, or 0 with errno set
 * if there is no such process. */
int dlc_child_start(void (*body)(int fd, void *context), void *context,
                    dlc_child *child);

/* Ends the child with everything that it has started. Returns the signal by which it
 * had ended before, 0 if it had not or had ended otherwise. `is_dying`: it has closed
 * the pipe, so it gets a moment to end. */
int dlc_child_end(const dlc_child *child, int is_dying);

/* Continues the guard if it is stopped. Whoever waits for a child calls this several
 * times a second, and measures the time by a stopwatch (base/clock.h). */
void dlc_child_continue(const dlc_child *child);
enum { DLC_CHILD_LOOK_MS = 200 }; /* often enough */

/* Continues the guard, and waits until something can be read from the child, for
 * `seconds` or DLC_CHILD_LOOK_MS, whichever is less. 1: it can. */
int dlc_child_wait(const dlc_child *child, double seconds);

/* Whether a child that has not done its work in `seconds` may not be to blame: it had
 * to wait for a CPU, waits for a disk, or /proc does not tell. */
int dlc_child_is_held_up(const dlc_child *child, double seconds);

/* Ends the children of this process. If it is a subreaper (prctl(2)), these are also
 * what other children have left. */
void dlc_children_end(void);

/* How long to wait for a child that should take `seconds`: longer where other programs
 * use the CPUs, up to 12 times. */
double dlc_child_patience(double seconds);

/* Writes all bytes to the pipe; ends the process if nobody reads them. For `body`. */
void dlc_child_send(int fd, const void *bytes, size_t size);

/* In the child: nothing that it does may reach the terminal, a file or a handler of
 * the parent. */
void dlc_child_isolate(void);

/* ---- Trying a call --------------------------------------------------------------- */

/* Makes the call in a child and returns its status, with its sentence. DLC_ERR_PLUGIN
 * if it crashes, ends the process, or does not return in time; `what` names the call in
 * these messages. Nothing that the child does is kept, and nothing of it is seen.
 * Blocks.
 */
dlc_status dlc_probe(const char *what, double seconds,
                     dlc_status (*call)(void *context), void *context);

/* The same, but the call may print: its standard streams are those of this process. */
dlc_status dlc_probe_shown(const char *what, double seconds,
                           dlc_status (*call)(void *context), void *context);

#endif
