/* Files of other programs, recognized by their content, so that a message can say what
 * they are and what to do with them. Called before a net or weights are read. */
#ifndef DLC_TOOLS_KNOWN_FILES_H
#define DLC_TOOLS_KNOWN_FILES_H

#include "base/status.h"

/* DLC_ERR_DATA if `path` is a file of another program, or a net, where weights are
 * wanted. DLC_OK for everything else, such as a file that cannot be read. */
dlc_status dlc_known_file_check_weights(const char *path);

/* DLC_ERR_CONFIG if `path` is a net of another program, or weights, where a net.ini is
 * wanted; otherwise DLC_OK. */
dlc_status dlc_known_file_check_net(const char *path);

#endif
