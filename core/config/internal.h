/* Declarations shared by the files of core/config; not for others. */
#ifndef DLC_CONFIG_INTERNAL_H
#define DLC_CONFIG_INTERNAL_H

#include "base/names.h"
#include "config/config.h"
#include "config/suggest.h"

/* The most sections and keys of a file. The deepest published networks need a few
 * thousand. */
#define DLC_CONFIG_ENTRIES 20000
/* iniparser reads a file in parts of so many sections and keys: it looks one up by
 * going through all of them. */
#define DLC_CONFIG_PART 256
/* The most bytes of a line; iniparser's own limit is 1,023. */
#define DLC_CONFIG_LINE 1000
#define DLC_CONFIG_BYTES (1u << 20)

/* The most bytes of a layer's name, once blocks are expanded. */
#define DLC_CONFIG_NAME 120

/* The prefix of the name of a block's section. */
#define DLC_BLOCK "block "

typedef struct dlc_entry {
    char *key;
    char *value; /* "" if broken */
    char *
        owner; /* own; the section that `line` is in, if it is another one; else NULL */
    int line;
    int broken; /* its mistake was reported: do not check the value */
} dlc_entry;

struct dlc_section {
    char *name;   /* "block x" of a block */
    char *origin; /* own; the section of the block that it is a copy of; NULL: none */
    int line;     /* of the origin, if there is one */
    int use_line; /* the line of the use that it was made for */
    int reserved;
    int block;
    int broken; /* it has invalid lines, so a missing key may be in one of them */
    dlc_entry *entries;
    size_t count;
    dlc_names keys; /* their places in `entries`, if there are many */
};

struct dlc_config {
    char *name;
    char *folder;          /* "" for the current folder, else with '/' at the end */
    dlc_section *sections; /* reallocated while loading */
    size_t count;
    dlc_names names; /* of sections: their places */
    size_t entries;  /* sections, keys and groups */
    dlc_group *groups;
    size_t ngroups;
    dlc_names group_names;
};

/* ---- section.c ---- */
/* Copies the name; `section` is valid until the next one is added. */
dlc_status dlc_config_add_section(dlc_config *config, const char *name, int line,
                                  dlc_section **section);
dlc_section *dlc_config_section(const dlc_config *config, const char *name);
dlc_entry *dlc_section_entry(const dlc_section *section, const char *key);
/* Copies the strings; the key must be new. */
dlc_status dlc_section_add(dlc_config *config, dlc_section *section, const char *key,
                           const char *value, int line, int broken);
void dlc_section_clear(dlc_section *section);

/* ---- file.c: bytes ---- */
/* Reads a whole file and checks that it is text: a regular file of at most
 * DLC_CONFIG_BYTES, UTF-8, without NUL; a byte order mark is skipped. NUL-terminated,
 * the caller's to free. */
dlc_status dlc_file_read(const char *path, char **bytes, size_t *length);
/* The offset of the first byte that is not well-formed UTF-8, or `length`. */
size_t dlc_utf8_check(const char *bytes, size_t length);

/* ---- scan.c: lines ---- */
dlc_status dlc_scan(const char *bytes, size_t length, dlc_config *config,
                    const char *const *reserved, dlc_problems *problems);
/* Checks a name and lowers it, in place. Returns 0 with `why` if it is invalid; an
 * upper-case name is a mistake, too, but usable: then *usable is 1. */
int dlc_name_check(char *name, int *usable, char *why, size_t room);
/* Extracts the value from the text after the '=', in place. NULL with `why` if it is
 * invalid. `comments`: a comment may follow. */
char *dlc_value_scan(char *text, int comments, char *why, size_t room);
char *dlc_trim(char *text);

/* ---- expand.c: blocks ---- */
/* Replaces every use of a block by its layers, and removes the blocks. */
dlc_status dlc_blocks_expand(dlc_config *config, dlc_problems *problems);

/* ---- set.c: --set ---- */
/* Applies one --set. If there is no such section, sets *later, or reports it if that is
 * NULL. */
dlc_status dlc_set_apply(dlc_config *config, const char *const *reserved,
                         const char *set, dlc_problems *problems, char *later);

/* ---- problems.c ---- */
/* The position of a mistake: `line`, in section `name`. In a block, `as` is the layer
 * in whose copy it was found, made for `use_line`; the same mistake in other copies is
 * reported once. NULL: not in a block. */
typedef struct dlc_problem_place {
    int line;
    const char *name;
    const char *as;
    int use_line;
} dlc_problem_place;
void dlc_problems_at(dlc_problems *problems, const dlc_config *config,
                     const dlc_problem_place *place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- iniparser_check.c ---- */
/* Reads the same bytes with iniparser and reports every difference. */
dlc_status dlc_iniparser_compare(const dlc_config *config, const char *bytes,
                                 size_t length, dlc_problems *problems);

/* ---- options.c: tables ---- */
void dlc_option_range(const dlc_option *option, dlc_text *text); /* "1 .. 4096" */

/* ---- number.c: text that is a number and nothing else ---- */
typedef enum dlc_number { DLC_NUMBER, DLC_NOT_A_NUMBER, DLC_NUMBER_TOO_BIG } dlc_number;
dlc_number dlc_parse_int(const char *text, size_t length, int64_t *number);
/* Accepts "inf" and "-inf", never NaN. */
dlc_number dlc_parse_float(const char *text, size_t length, double *number);
/* 65536, 64K, 16M, 2G */
dlc_number dlc_parse_bytes(const char *text, size_t length, int64_t *number);

#endif
