/* The keys that the core itself reads from net.ini, for `dlcore plugin inspect`. */
#ifndef DLC_TOOLS_PLUGIN_SECTIONS_H
#define DLC_TOOLS_PLUGIN_SECTIONS_H

#include "base/json.h"
#include "plugin/registry.h"

/* The name that stands for the transforms of [data]. */
#define DLC_TRANSFORMS "transforms"

/* The name that stands for all sections, and the transforms. */
#define DLC_ALL_SECTIONS "sections"

/* Is it the name of a section, one of the two names above? NULL is neither. */
int dlc_section_is_known(const char *name);

/* Prints the sections of this name, each with the plugins that may have keys in it. */
dlc_status dlc_sections_print(const dlc_registry *registry, const char *name);
/* Writes "sections": [...] and "transforms": [...]; empty if none has this name. */
void dlc_json_sections(dlc_json *json, const char *name);

/* The i-th name; NULL after the last. */
const char *dlc_section_nth(size_t i);

/* Appends the sections and features that have a key of this name: "[data], solver sgd".
 */
dlc_status dlc_sections_find_key(const dlc_registry *registry, const char *key,
                                 dlc_text *text);

#endif
