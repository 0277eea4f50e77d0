/* How the registry keeps what it found: for registry.c, settle.c, use.c and find.c
 * alone. */
#ifndef DLC_PLUGIN_STORE_H
#define DLC_PLUGIN_STORE_H

#include <sys/stat.h>

#include "plugin/cache.h"
#include "plugin/registry.h"

typedef struct plugin_item {
    dlc_plugin_entry shown;
    dlc_feature_entry *feature;
    char *path;
    char *name; /* the file's, without its ending */
    struct stat info;
    dlc_text scanned;   /* the report on it, where this process asked for it */
    const char *report; /* that is to be remembered, wherever it lies; NULL: none */
    size_t report_size;
    struct plugin_sentence *said; /* reasons that came up here */
    const dlc_plugin *plugin;     /* its own, once it is in this process */
} plugin_item;

typedef struct plugin_sentence {
    struct plugin_sentence *next;
    char *text;
} plugin_sentence;

struct dlc_registry {
    plugin_item **plugin; /* pointers, since features point back */
    size_t plugins;
    dlc_folder_entry *folder;
    size_t folders;
    dlc_cache cache;  /* entries point into it */
    int only_inspect; /* no load() is called */
};

/* Keeps `text`, which becomes the item's; NULL: there was no memory for it. */
dlc_status plugin_keep(plugin_item *item, char *text, const char **kept);

/* Reads all files' reports, of the cache or of a scan, and what follows from them for
 * the whole: which plugin comes before which. `anew`: of a scan. */
dlc_status plugin_settle_all(dlc_registry *registry, int anew);

#endif
