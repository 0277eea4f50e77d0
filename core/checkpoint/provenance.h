/* The provenance of a checkpoint: the command, the plugins and libraries, the files of
 * the data. Each call appends text. Called by metadata.c. */
#ifndef DLC_CHECKPOINT_PROVENANCE_H
#define DLC_CHECKPOINT_PROVENANCE_H

#include "base/text.h"
#include "config/config.h"
#include "plugin/registry.h"

/* The plugins that this process has loaded, one per line: "cpu 0.1.0". */
void dlc_provenance_plugins(const dlc_registry *registry, dlc_text *text);

/* The file names of the libraries that this process has loaded, one per line:
 * "libdnnl.so.3.6". */
void dlc_provenance_libraries(dlc_text *text);

/* The command line, quoted for a shell. */
void dlc_provenance_command(dlc_text *text);

/* The settings that are paths, one per line: "images = /data/train.gz". */
void dlc_provenance_paths(const dlc_settings *settings, dlc_text *text);

#endif
