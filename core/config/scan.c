/* Scans the lines of a net.ini strictly: what iniparser would guess, cut, merge or join
 * is reported here as a mistake, with its line.
 *
 *     [section]            names: a-z 0-9 _ . - /
 *     [block name]         see block.c
 *     key = value          # a comment
 *     key = "a; b"         ; quotes keep everything, and an empty value
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "config/internal.h"
#include "config/value.h"

typedef struct scanner {
    dlc_config *config;
    const char *const *reserved;
    dlc_problems *problems;
    dlc_section *section; /* the section of the following keys */
    int skip; /* ignore the following keys: their header was wrong, which was reported
               */
    int line;
} scanner;

static int is_blank(char c) {
    return c == ' ' || c == '\t';
}

char *dlc_trim(char *text) {
    while (is_blank(*text))
        text++;
    size_t length = strlen(text);
    while (length && is_blank(text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

static int is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c && strchr("_.-/", c) != NULL);
}

int dlc_name_check(char *name, int *usable, char *why, size_t room) {
    char shown[DLC_SHOWN];
    *usable = 0;
    if (!*name) {
        snprintf(why, room, "the name is empty");
        return 0;
    }
    int upper = 0;
    for (const char *c = name; *c; c++) {
        if (*c >= 'A' && *c <= 'Z') {
            upper = 1;
        } else if (!is_name_char(*c)) {
            snprintf(why, room,
                     "the name \"%s\" has a character other than a-z 0-9 _ . - /",
                     dlc_show(name, shown));
            return 0;
        }
    }
    if (!upper)
        return 1;
    char given[DLC_SHOWN];
    dlc_show(name, given);
    for (char *c = name; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    snprintf(why, room, "names are lower case: write \"%s\", not \"%s\"",
             dlc_show(name, shown), given);
    *usable = 1;
    return 0;
}

/* Takes a quoted value, and checks what follows the closing quote. */
static char *scan_quoted(char *text, int comments, char *why, size_t room) {
    char *close = strchr(text + 1, '"');
    if (!close) {
        snprintf(why, room, "the quote is not closed");
        return NULL;
    }
    if (memchr(text, '\\', (size_t)(close - text))) {
        snprintf(why, room,
                 "a backslash inside quotes: readers differ about its meaning");
        return NULL;
    }
    const char *rest = close + 1;
    while (is_blank(*rest))
        rest++;
    int comment = comments && rest > close + 1 && (*rest == '#' || *rest == ';');
    if (*rest && !comment) {
        snprintf(why, room, "text after the closing quote");
        return NULL;
    }
    *close = '\0';
    return text + 1;
}

static void cut_comment(char *text) {
    for (char *c = text; *c; c++)
        if ((*c == '#' || *c == ';') && (c == text || is_blank(c[-1]))) {
            *c = '\0';
            return;
        }
}

char *dlc_value_scan(char *text, int comments, char *why, size_t room) {
    text = dlc_trim(text);
    if (*text == '"')
        return scan_quoted(text, comments, why, room);
    if (comments)
        cut_comment(text);
    text = dlc_trim(text);
    const char *wrong = NULL;
    if (!*text)
        wrong = "no value; an empty one is written \"\"";
    else if (comments && *text == '\'')
        wrong = "single quotes; write \"...\"";
    else if (comments && *text == '=')
        wrong = "two '='; a line is: key = value";
    else if (comments && strchr(text, '"'))
        wrong = "a quote inside the value; put the quotes around all of it";
    else if (comments && strpbrk(text, "#;"))
        wrong = "'#' or ';' inside the value; put \"...\" around it, or white space "
                "before a comment";
    if (!wrong)
        return text;
    snprintf(why, room, "%s", wrong);
    return NULL;
}

static dlc_status open_section(scanner *scan, const char *name) {
    const dlc_section *first = dlc_config_section(scan->config, name);
    if (first) {
        dlc_problems_add(scan->problems, scan->config, scan->line,
                         "section [%s] is repeated; the first is in line %d", name,
                         first->line);
        return DLC_OK;
    }
    dlc_section *section = NULL;
    DLC_TRY(dlc_config_add_section(scan->config, name, scan->line, &section));
    section->reserved = dlc_is_listed(scan->reserved, name);
    section->block = strncmp(name, DLC_BLOCK, strlen(DLC_BLOCK)) == 0;
    scan->section = section;
    scan->skip = 0;
    return DLC_OK;
}

static dlc_status scan_header(scanner *scan, char *text) {
    char why[200];
    int usable;
    scan->section = NULL;
    scan->skip = 1;
    char *close = strchr(text, ']');
    if (!close) {
        dlc_problems_add(scan->problems, scan->config, scan->line, "'[' without ']'");
        return DLC_OK;
    }
    *close = '\0';
    const char *rest = dlc_trim(close + 1);
    if (*rest)
        dlc_problems_add(scan->problems, scan->config, scan->line, "text after ']'%s",
                         *rest == '#' || *rest == ';'
                             ? ": a comment needs a line of its own here"
                             : "");
    char *name = dlc_trim(text + 1);
    char *checked = name;
    if (strncmp(name, DLC_BLOCK, strlen(DLC_BLOCK)) == 0)
        checked += strlen(DLC_BLOCK);
    if (!dlc_name_check(checked, &usable, why, sizeof why)) {
        dlc_problems_add(scan->problems, scan->config, scan->line, "section: %s", why);
        if (!usable)
            return DLC_OK;
    }
    return open_section(scan, name);
}

/* Adds the key of a line; `text` is the part after the '='. */
static dlc_status add_scanned_key(scanner *scan, char *key, char *text) {
    char why[200];
    int usable = 1;
    dlc_section *section = scan->section;
    if (!dlc_name_check(key, &usable, why, sizeof why)) {
        if (!*key)
            snprintf(why, sizeof why, "no key before the '='");
        dlc_problems_add(scan->problems, scan->config, scan->line, "%s", why);
        if (!usable) {
            if (section)
                section->broken = 1;
            return DLC_OK;
        }
    }
    const char *value = dlc_value_scan(text, 1, why, sizeof why);
    if (!value)
        dlc_problems_add(scan->problems, scan->config, scan->line, "%s: %s", key, why);
    if (!section)
        return DLC_OK;
    const dlc_entry *first = dlc_section_entry(section, key);
    if (first) {
        dlc_problems_add(scan->problems, scan->config, scan->line,
                         "[%s] %s is repeated; the first is in line %d", section->name,
                         key, first->line);
        return DLC_OK;
    }
    return dlc_section_add(scan->config, section, key, value ? value : "", scan->line,
                           value == NULL);
}

static dlc_status scan_key(scanner *scan, char *text) {
    char shown[DLC_SHOWN];
    if (!scan->section && !scan->skip) {
        dlc_problems_add(scan->problems, scan->config, scan->line,
                         "text before the first [section]");
        scan->skip = 1; /* reported once */
        return DLC_OK;
    }
    char *equals = strchr(text, '=');
    if (!equals) {
        dlc_problems_add(scan->problems, scan->config, scan->line,
                         "no '=' in \"%s\"; a line is: key = value",
                         dlc_show(text, shown));
        if (scan->section)
            scan->section->broken = 1;
        return DLC_OK;
    }
    *equals = '\0';
    return add_scanned_key(scan, dlc_trim(text), equals + 1);
}

/* 0 if the line as a whole is wrong, which is reported. */
static int line_is_sound(const scanner *scan, const char *text, size_t length) {
    if (length > DLC_CONFIG_LINE) {
        dlc_problems_add(scan->problems, scan->config, scan->line,
                         "%zu bytes in one line; at most %d are allowed", length,
                         DLC_CONFIG_LINE);
        return 0;
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            dlc_problems_add(scan->problems, scan->config, scan->line,
                             "control character 0x%02x", c);
            return 0;
        }
    }
    while (length && is_blank(text[length - 1]))
        length--;
    if (length && text[length - 1] == '\\') {
        dlc_problems_add(scan->problems, scan->config, scan->line,
                         "a backslash at the end: lines are not joined");
        return 0;
    }
    return 1;
}

static dlc_status scan_line(scanner *scan, const char *text, size_t length) {
    char line[DLC_CONFIG_LINE + 1];
    if (length && text[length - 1] == '\r')
        length--;
    if (!line_is_sound(scan, text, length)) {
        if (scan->section)
            scan->section->broken = 1;
        return DLC_OK;
    }
    memcpy(line, text, length);
    line[length] = '\0';
    char *start = dlc_trim(line);
    if (!*start || *start == '#' || *start == ';')
        return DLC_OK;
    return *start == '[' ? scan_header(scan, start) : scan_key(scan, start);
}

dlc_status dlc_scan(const char *bytes, size_t length, dlc_config *config,
                    const char *const *reserved, dlc_problems *problems) {
    scanner scan = {.config = config, .reserved = reserved, .problems = problems};
    const char *end = bytes + length;
    while (bytes < end) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        const char *stop = newline ? newline : end;
        scan.line++;
        DLC_TRY(scan_line(&scan, bytes, (size_t)(stop - bytes)));
        if (config->entries > DLC_CONFIG_ENTRIES)
            return dlc_fail(DLC_ERR_CONFIG, "%s:%d: more than %d sections and keys",
                            config->name, scan.line, DLC_CONFIG_ENTRIES);
        bytes = newline ? newline + 1 : end;
    }
    if (scan.line == 0 || (!config->count && !scan.skip))
        dlc_problems_add(problems, config, DLC_LINE_FILE, "no [section] in it");
    return DLC_OK;
}
