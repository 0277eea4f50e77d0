/* How the registry keeps what it found: for registry.c and find.c alone. */
#ifndef DLC_PLUGIN_STORE_H
#define DLC_PLUGIN_STORE_H

#include <sys/stat.h>

#include "plugin/registry.h"

typedef struct plugin_item {
    dlc_plugin_entry shown;
    char *name; /* the file's, without its ending */
    dlc_feature_entry *feature;
    struct stat info;
} plugin_item;

struct dlc_registry {
    plugin_item **plugin; /* pointers, since features point back */
    size_t plugins;
    dlc_folder_entry *folder;
    size_t folders;
    int only_inspect; /* no load() is called */
};

#endif
