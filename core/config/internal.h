/* What the files of core/config share and nobody else sees. */
#ifndef DLC_CONFIG_INTERNAL_H
#define DLC_CONFIG_INTERNAL_H

#include "base/suggest.h"
#include "config/config.h"

/* Sections and keys of one file: keeps the quadratic look-ups (here and in
 * iniparser) short. The deepest published networks need a few thousand. */
#define DLC_CONFIG_ENTRIES 20000
/* Bytes of one line; iniparser's own limit is 1,023. */
#define DLC_CONFIG_LINE 1000
#define DLC_CONFIG_BYTES (1u << 20)

/* Bytes of a layer's name, once the blocks are put in. */
#define DLC_CONFIG_NAME 120

/* What the name of a block's section begins with. */
#define DLC_BLOCK "block "

typedef struct dlc_entry {
    char *key;
    char *value; /* "" where broken */
    char
        *owner; /* own; the section that `line` is part of, NULL: as the section says */
    int line;
    int broken; /* the mistake was already told: don't check the value */
} dlc_entry;

struct dlc_section {
    char *name;   /* "block x" of a block */
    char *origin; /* own; the block's section that it was made from, NULL: none */
    int line;     /* of the origin, if there is one */
    int use_line; /* where the block was used that it is of */
    int standing;
    int block;
    int broken; /* has lines that were not understood: a missing key may be there */
    dlc_entry *entries;
    size_t count, room;
};

struct dlc_config {
    char *name;
    char *folder;          /* "" for the current one, else with '/' at its end */
    dlc_section *sections; /* they move while it is being loaded */
    size_t count, room;
    size_t entries; /* sections, keys and groups */
    dlc_group *groups;
    size_t ngroups, groups_room;
};

/* ---- config.c ---- */
/* Takes a copy of the name; `section` is good until the next is added. */
dlc_status dlc_config_add_section(dlc_config *config, const char *name, int line,
                                  dlc_section **section);
dlc_section *dlc_config_section(const dlc_config *config, const char *name);
dlc_entry *dlc_section_entry(const dlc_section *section, const char *key);
/* Takes copies of the texts; the key must be new. */
dlc_status dlc_section_add(dlc_config *config, dlc_section *section, const char *key,
                           const char *value, int line, int broken);
void dlc_section_clear(dlc_section *section);

/* ---- file.c: bytes ---- */
/* The whole file, checked to be text: a regular file of at most DLC_CONFIG_BYTES,
 * UTF-8, without NUL; a byte order mark is left out. Ends with a NUL. */
dlc_status dlc_file_read(const char *path, char **bytes, size_t *length);
/* The first byte that isn't part of well-formed UTF-8, or `length`. */
size_t dlc_utf8_check(const char *bytes, size_t length);

/* ---- scan.c: lines ---- */
dlc_status dlc_scan(const char *bytes, size_t length, dlc_config *config,
                    const char *const *standing, dlc_problems *problems);
/* Puts the name in order, in place: 0 where it can't be one, with `why` saying so. An
 * upper-case name is lowered, but still a mistake: 0, and `*usable` is 1. */
int dlc_name_check(char *name, int *usable, char *why, size_t room);
/* A value as it stands behind the '=', in place: what is left is the value alone.
 * NULL and `why` where it can't be one. `comments`: text behind '#' may follow. */
char *dlc_value_scan(char *text, int comments, char *why, size_t room);
char *dlc_trim(char *text);

/* ---- expand.c: blocks ---- */
/* Leaves standing sections and layers only: blocks are gone, and where one was used
 * its layers stand. */
dlc_status dlc_blocks_expand(dlc_config *config, dlc_problems *problems);

/* ---- set.c: --set ---- */
/* Where there is no such section: sets *later, or tells it if that is NULL. */
dlc_status dlc_set_apply(dlc_config *config, const char *const *standing,
                         const char *set, dlc_problems *problems, char *later);

/* ---- problems.c ---- */
/* Where a mistake stands: in `line`, part of section `name`. In a block: `as` is the
 * layer in whose copy it was found, made for `use_line`; the same mistake in other
 * copies is told once. NULL: in no block. */
typedef struct dlc_place {
    int line;
    const char *name;
    const char *as;
    int use_line;
} dlc_place;
void dlc_problems_at(dlc_problems *problems, const dlc_config *config,
                     const dlc_place *place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- peer.c: iniparser ---- */
dlc_status dlc_peer_compare(const dlc_config *config, const char *bytes, size_t length,
                            dlc_problems *problems);

/* ---- value.c: one option's value ---- */
typedef union dlc_value {
    int64_t i; /* INT, BYTES, BOOL */
    double f;  /* FLOAT */
    char *s;   /* STRING, CHOICE, PATH, FILLER; own */
    struct {
        size_t count;
        void *memory; /* int64_t or double; own */
    } list;           /* INTS, FLOATS */
} dlc_value;

/* Parses the whole text and checks the row's range. DLC_ERR_CONFIG: `why` says what
 * is wrong; else DLC_ERR_NOMEM. `folder` goes before a relative path. */
dlc_status dlc_value_parse(const dlc_option *option, const char *text,
                           const char *folder, dlc_value *value, char *why,
                           size_t room);
void dlc_value_free(const dlc_option *option, dlc_value *value);

int dlc_type_is_text(uint32_t type);

/* The i-th of "max|average" and its length; NULL beyond the last. */
const char *dlc_choice(const char *choices, size_t i, size_t *length);

/* A value for a message: cut to 60 bytes, without control characters. */
#define DLC_SHOWN 80
const char *dlc_show(const char *text, char shown[DLC_SHOWN]);

/* ---- options.c: tables ---- */
void dlc_option_range(const dlc_option *option, dlc_text *text); /* "1 .. 4096" */

/* ---- number.c: text that is a number and nothing else ---- */
typedef enum dlc_number { DLC_NUMBER, DLC_NOT_A_NUMBER, DLC_NUMBER_TOO_BIG } dlc_number;
dlc_number dlc_parse_int(const char *text, size_t length, int64_t *number);
/* Infinite only as "inf" and "-inf"; never NaN. */
dlc_number dlc_parse_float(const char *text, size_t length, double *number);
/* 65536, 64K, 16M, 2G */
dlc_number dlc_parse_bytes(const char *text, size_t length, int64_t *number);

#endif
