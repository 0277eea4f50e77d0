/* What the core itself reads from net.ini, for `dlcore plugin inspect`. */
#ifndef DLC_TOOLS_PLUGIN_SECTIONS_H
#define DLC_TOOLS_PLUGIN_SECTIONS_H

#include "base/json.h"
#include "plugin/registry.h"

/* Means all of the sections: what `dlcore train` reads. */
#define DLC_ALL_SECTIONS "train"

/* Is it the name of a section, or of all? NULL is none. */
int dlc_section_is_known(const char *name);

/* Shows those of this name, each with the plugins that have keys there as well. */
dlc_status dlc_sections_print(const dlc_registry *registry, const char *name);
/* "sections": [...]; empty where none has this name. */
void dlc_json_sections(dlc_json *json, const char *name);

/* The i-th name; NULL behind the last. */
const char *dlc_section_nth(size_t i);

/* Adds to `text` where net.ini may have a key of this name: "[data], solver sgd". */
dlc_status dlc_sections_find_key(const dlc_registry *registry, const char *key,
                                 dlc_text *text);

#endif
