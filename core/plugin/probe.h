/* Tries a call of a plugin in a child first, where a crash or a hang does no harm. */
#ifndef DLC_PLUGIN_PROBE_H
#define DLC_PLUGIN_PROBE_H

#include <dlcore/status.h>

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
