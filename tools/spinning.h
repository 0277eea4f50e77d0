/* How long OpenMP's threads spin while they wait for each other: long on cores that a
 * job has for itself, not at all on cores that it shares with another job. */
#ifndef DLC_TOOLS_SPINNING_H
#define DLC_TOOLS_SPINNING_H

/* Sets GOMP_SPINCOUNT, unless the user has set it or OMP_WAIT_POLICY. libgomp reads it
 * when the first plugin loads it, so main() calls this first. */
void dlc_tool_limit_spinning(void);

/* Logs the other job (with -v), if dlc_tool_limit_spinning found one. */
void dlc_tool_report_spinning(void);

#endif
