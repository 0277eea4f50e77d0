/* Applies --set section.key=value: replaces or adds one key after the file was read. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/internal.h"
#include "config/value.h"

/* The section name, of the file or reserved, that is nearest to `name`; NULL if none is
 * near. */
static dlc_status nearest_section(const dlc_config *config, const char *const *reserved,
                                  const char *name, const char **nearest) {
    size_t count = 0, nreserved = 0;
    while (reserved && reserved[nreserved])
        nreserved++;
    const char **names = dlc_alloc(config->count + nreserved + 1, sizeof *names);
    if (!names)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < config->count; i++)
        names[count++] = config->sections[i].name;
    for (size_t i = 0; i < nreserved; i++)
        names[count++] = reserved[i];
    *nearest = dlc_nearest(name, names, count);
    dlc_free(names);
    return DLC_OK;
}

/* Finds the section to set in, or creates it if it is reserved. NULL if it is neither:
 * to be retried later, or reported. */
static dlc_status target_section(dlc_config *config, const char *const *reserved,
                                 const char *name, dlc_problems *problems, char *later,
                                 dlc_section **section) {
    *section = dlc_config_section(config, name);
    if (*section)
        return DLC_OK;
    for (const char *const *s = reserved; s && *s; s++) {
        if (strcmp(*s, name) != 0)
            continue;
        DLC_TRY(dlc_config_add_section(config, name, DLC_LINE_SET, section));
        (*section)->reserved = 1;
        return DLC_OK;
    }
    if (later) {
        *later = 1;
        return DLC_OK;
    }
    const char *nearest = NULL;
    DLC_TRY(nearest_section(config, reserved, name, &nearest));
    char shown[DLC_SHOWN];
    dlc_problems_add(problems, config, DLC_LINE_SET, "no section [%s]%s%s%s",
                     dlc_show(name, shown), nearest ? "; did you mean [" : "",
                     nearest ? nearest : "", nearest ? "]?" : "");
    return DLC_OK;
}

/* Splits "section.key=value" in place at the '=' and the last dot before it. NULL, or
 * what is wrong. */
static const char *split(char *text, char **section, char **key, char **value) {
    char *equals = strchr(text, '=');
    if (!equals)
        return "no '='; write section.key=value";
    *equals = '\0';
    char *name = dlc_trim(text);
    char *dot = strrchr(name, '.');
    if (!dot)
        return "no '.' before the '='; write section.key=value";
    *dot = '\0';
    *section = name;
    *key = dot + 1;
    *value = equals + 1;
    return NULL;
}

static int is_sound(const char *text, char *why, size_t room) {
    size_t length = strlen(text);
    if (length > DLC_CONFIG_LINE)
        snprintf(why, room, "%zu bytes; at most %d are allowed", length,
                 DLC_CONFIG_LINE);
    else if (dlc_utf8_check(text, length) < length)
        snprintf(why, room, "not UTF-8 text");
    else
        for (const char *c = text;; c++) {
            if (!*c)
                return 1;
            if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f) {
                snprintf(why, room, "control character 0x%02x", (unsigned char)*c);
                break;
            }
        }
    return 0;
}

/* Sets a key. In a copy of a block's layer, the value belongs to that layer from now
 * on. */
static dlc_status set_key(dlc_config *config, dlc_section *section, const char *key,
                          const char *value) {
    dlc_entry *entry = dlc_section_entry(section, key);
    if (!entry) {
        DLC_TRY(dlc_section_add(config, section, key, value, DLC_LINE_SET, 0));
        entry = dlc_section_entry(section, key);
    } else {
        char *copy = dlc_strdup(value);
        if (!copy)
            return DLC_ERR_NOMEM;
        dlc_free(entry->value);
        entry->value = copy;
    }
    entry->line = DLC_LINE_SET;
    entry->broken = 0;
    if (!section->origin)
        return DLC_OK;
    dlc_free(entry->owner);
    entry->owner = dlc_strdup(section->name);
    return entry->owner ? DLC_OK : DLC_ERR_NOMEM;
}

/* Checks and applies one --set; `text` is modified. `why` is set if it is malformed. */
static dlc_status apply_set_text(dlc_config *config, const char *const *reserved,
                                 char *text, dlc_problems *problems, char *later,
                                 char *why, size_t room) {
    char *name, *key, *value;
    int usable;
    const char *wrong = split(text, &name, &key, &value);
    if (wrong) {
        snprintf(why, room, "%s", wrong);
        return DLC_OK;
    }
    if (!dlc_name_check(name, &usable, why, room) ||
        !dlc_name_check(key, &usable, why, room))
        return DLC_OK;
    value = dlc_value_scan(value, 0, why, room);
    if (!value)
        return DLC_OK;
    dlc_section *section = NULL;
    DLC_TRY(target_section(config, reserved, name, problems, later, &section));
    return section ? set_key(config, section, key, value) : DLC_OK;
}

dlc_status dlc_set_apply(dlc_config *config, const char *const *reserved,
                         const char *set, dlc_problems *problems, char *later) {
    char why[200] = "", shown[DLC_SHOWN];
    if (is_sound(set, why, sizeof why)) {
        char *copy = dlc_strdup(set);
        if (!copy)
            return DLC_ERR_NOMEM;
        dlc_status rc = apply_set_text(config, reserved, copy, problems, later, why,
                                       sizeof why);
        dlc_free(copy);
        if (rc != DLC_OK)
            return rc;
    }
    if (why[0])
        dlc_problems_add(problems, config, DLC_LINE_SET, "\"%s\": %s",
                         dlc_show(set, shown), why);
    return DLC_OK;
}
