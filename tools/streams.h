/* stdout and stderr of the command: escaped for people, and never lost in silence. */
#ifndef TOOLS_STREAMS_H
#define TOOLS_STREAMS_H

/* From now on what is printed to both goes through base/human.h, and a process that
 * would end with 0 although not all of stdout could be written (a full disk) says so
 * and ends with 1. Call it once, at the start; ranks forked later write through the
 * same streams. Where there is no memory for that, both stay as they are. */
void dlc_tool_guard_streams(void);

#endif
