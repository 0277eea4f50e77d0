/* What is known about a plugin and its features without loading it: facts from a
 * process that inspected the file. Called by the registry, by what it is made of, and
 * by those who list plugins. */
#ifndef DLC_PLUGIN_ENTRY_H
#define DLC_PLUGIN_ENTRY_H

#include <dlcore/plugin.h>

#include "base/text.h"

/* The kinds are numbered from DLC_KIND_DEVICE to this one. */
#define DLC_KIND_LAST DLC_KIND_DECODER

#define DLC_FEATURES_MAX 1024u /* the most features of a plugin */

typedef enum dlc_entry_state {
    DLC_ENTRY_USABLE = 1,
    DLC_ENTRY_UNAVAILABLE =
        2, /* valid, but its load() says that it cannot work on this machine */
    DLC_ENTRY_REFUSED = 3,  /* unsafe, invalid, or built for another host */
    DLC_ENTRY_SHADOWED = 4, /* an earlier one of the same name is used */
    DLC_ENTRY_IGNORED = 5,  /* a feature of a kind that this host does not know */
    DLC_ENTRY_UNTRIED = 6,  /* load() was not called (dlc_registry_inspect) */
} dlc_entry_state;

/* Optional calls that change how the core uses a feature. */
enum {
    DLC_OFFERS_QUEUES = 1u << 0,     /* a device's queues, stream-ordered collectives */
    DLC_OFFERS_CAPTURE = 1u << 1,    /* captured graphs */
    DLC_OFFERS_SEMAPHORES = 1u << 2, /* semaphores of queues */
    DLC_OFFERS_IPC = 1u << 3,        /* memory that other processes map */
};

typedef struct dlc_feature_entry {
    uint32_t kind; /* dlc_kind, or one that this host does not know */
    const char *name, *help, *device; /* as in dlc_feature; in a refused feature they
                                         may be any text, and help NULL */
    uint64_t caps;
    uint32_t offers;     /* DLC_OFFERS_ bits; 0 if it is refused */
    const char *endings; /* of a decoder's files, joined by commas; NULL: none, or it is
                            refused */
    const struct dlc_plugin_entry *plugin;
    dlc_entry_state state;
    const char *reason; /* NULL if usable */
} dlc_feature_entry;

typedef struct dlc_plugin_entry {
    const char *path; /* of the file, symbolic links resolved */
    const char
        *name; /* its own, or that of the file if it could not be read; never NULL */
    const char *version, *license; /* NULL if it could not be read */
    uint32_t abi_minor;
    dlc_entry_state state;
    const char *reason; /* NULL if usable */
    size_t features;
    const dlc_feature_entry *feature;
} dlc_plugin_entry;

/* A folder that was searched. */
typedef struct dlc_folder_entry {
    const char *path;   /* as given; "" for an empty entry */
    const char *reason; /* why it was not searched; NULL if it was */
    int is_default;     /* the one beside libdlcore; it may not exist */
} dlc_folder_entry;

/* "device", "transport", ...; "unknown" for any other number. */
const char *dlc_kind_text(dlc_kind kind);
/* "usable", "unavailable", "refused", ... */
const char *dlc_entry_state_text(dlc_entry_state state);

/* ---- Reports --------------------------------------------------------------------- */

/* The result of inspecting one file: the facts of its descriptor, or why it is refused.
 * A file is inspected in another process (scan.h), so a report can be packed into
 * bytes, sent, and cached (cache.h). */

/* Until when a report is true. */
typedef enum dlc_report_scope {
    DLC_REPORT_ONCE,      /* it may have been chance */
    DLC_REPORT_OF_FILE,   /* until the file changes */
    DLC_REPORT_OF_SYSTEM, /* or what dlc_system_stamp sums up: a library or a driver may
                             be installed later */
    DLC_REPORT_SCOPES
} dlc_report_scope;

typedef struct dlc_report {
    /* `state` is USABLE, UNAVAILABLE, UNTRIED or REFUSED, that of a feature USABLE if
     * it is valid. There is no path, and no name either if the descriptor could not be
     * read. */
    dlc_plugin_entry plugin;
    dlc_feature_entry *feature; /* own: plugin.feature */
    dlc_report_scope scope;
} dlc_report;

void dlc_report_pack(const dlc_report *report, dlc_text *bytes);

/* Unpacks a report; its strings point into `bytes`, which must stay. DLC_ERR_DATA if
 * they are no report. Release `feature` with dlc_free. */
dlc_status dlc_report_unpack(const char *bytes, size_t size, dlc_report *report);

/* The elements of packed data, in native byte order; a string may be NULL. After the
 * first incomplete element `failed` is set and all reads return 0 or NULL. */
typedef struct dlc_unpacking {
    const char *next;
    size_t left;
    int failed;
} dlc_unpacking;

void dlc_pack_number(dlc_text *bytes, uint64_t number);
void dlc_pack_text(dlc_text *bytes, const char *text);
uint64_t dlc_unpack_number(dlc_unpacking *from);
const char *dlc_unpack_text(dlc_unpacking *from);

#endif
