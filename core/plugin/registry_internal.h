/* The registry's data: for registry.c and find.c only. */
#ifndef DLC_PLUGIN_REGISTRY_INTERNAL_H
#define DLC_PLUGIN_REGISTRY_INTERNAL_H

#include <sys/stat.h>

#include "plugin/cache.h"
#include "plugin/entry.h"

typedef struct plugin_item {
    dlc_plugin_entry entry;
    dlc_feature_entry *feature;
    char *path;
    char *name; /* the file's name without its suffix */
    struct stat info;
    dlc_text scanned; /* the report, if this process has scanned the file */
    const char
        *report; /* to be cached; points into `scanned` or the cache; NULL: none */
    size_t report_size;
    uint64_t report_system;        /* as dlc_cached.system */
    struct plugin_reason *reasons; /* own; reasons made here */
    const dlc_plugin *plugin;      /* the plugin, once it is loaded into this process */
} plugin_item;

typedef struct plugin_reason {
    struct plugin_reason *next;
    char *text;
} plugin_reason;

struct dlc_registry {
    plugin_item **plugin; /* pointers, because features point back */
    size_t plugins;
    dlc_folder_entry *folder;
    size_t folders;
    dlc_cache cache;  /* entries point into it */
    uint64_t system;  /* dlc_system_stamp, if plugins are loaded */
    int only_inspect; /* no load() is called */
};

/* Makes the item own `text`; DLC_ERR_NOMEM if `text` is NULL. */
dlc_status plugin_keep_reason(plugin_item *item, char *text, const char **kept);

#endif
