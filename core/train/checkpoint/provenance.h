/* Where a checkpoint comes from: the command, the plugins and libraries, the files of
 * the data. Each appends text. */
#ifndef DLC_TRAIN_PROVENANCE_H
#define DLC_TRAIN_PROVENANCE_H

#include "base/text.h"
#include "config/config.h"
#include "plugin/registry.h"

/* Of the plugins that this process has loaded: "cpu 0.1.0", one a line. */
void dlc_provenance_plugins(const dlc_registry *registry, dlc_text *text);

/* The files of the libraries that it has loaded, without their folders, one a line:
 * "libdnnl.so.3.6". */
void dlc_provenance_libraries(dlc_text *text);

/* The command line, quoted for a shell. */
void dlc_provenance_command(dlc_text *text);

/* Of the settings that are paths: "images = /data/train.gz", one a line. */
void dlc_provenance_paths(const dlc_settings *settings, dlc_text *text);

#endif
