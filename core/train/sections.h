/* What may stand in net.ini, section by section: for `plugin inspect` and the manual,
 * which show the tables that the sections are checked against. */
#ifndef DLC_TRAIN_SECTIONS_H
#define DLC_TRAIN_SECTIONS_H

#include <dlcore/plugin.h>

#define DLC_SECTION_TABLES 2

/* One section that net.ini may have, or one kind of sections. */
typedef struct dlc_section_keys {
    const char *name;  /* "data.test"; of a kind of sections: "layer", "block" */
    const char *title; /* as net.ini has it: "[data.test]", "[NAME]" */
    const char *help;  /* one line, no full stop */
    const dlc_option *tables[DLC_SECTION_TABLES]; /* the core's own keys; NULL: none */
    dlc_kind kind;   /* a plugin of this kind has keys there, too; 0: none has */
    const char *key; /* the one that names that plugin; NULL: none does */
} dlc_section_keys;

/* In the order of a manual; ends with one whose name is NULL. A name may be there
 * twice, where two kinds of sections belong together. */
extern const dlc_section_keys dlc_section_table[];

#endif
