/* Every kind of section that net.ini may have, with its option tables: used by `dlcore
 * plugin inspect` and by the manual, which show the tables that sections are checked
 * against. */
#ifndef DLC_SETUP_SECTIONS_H
#define DLC_SETUP_SECTIONS_H

#include <dlcore/plugin.h>

#define DLC_SECTION_TABLES 2

/* One section of net.ini, or one kind of section. */
typedef struct dlc_section_keys {
    const char *name;  /* "data.test"; of a kind of section: "layer", "block" */
    const char *title; /* as written in net.ini: "[data.test]", "[NAME]" */
    const char *help;  /* one line, no full stop */
    const dlc_option *tables[DLC_SECTION_TABLES]; /* the core's own keys; NULL: none */
    dlc_kind kind;   /* plugins of this kind add keys of their own; 0: none do */
    const char *key; /* the key that names the plugin; NULL: there is none */
} dlc_section_keys;

/* In the order of the manual; the last entry's name is NULL. A name appears twice where
 * two kinds of section belong together. */
extern const dlc_section_keys dlc_section_table[];

#endif
