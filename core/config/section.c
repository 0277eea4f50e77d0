/* A loaded net.ini with its --set texts: sections in order, each key with its line. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/internal.h"

/* ---- Building ---- */

dlc_section *dlc_config_section(const dlc_config *config, const char *name) {
    ptrdiff_t at = dlc_names_find(&config->names, name);
    return at < 0 ? NULL : &config->sections[at];
}

/* So many keys are found faster one after the other. */
enum { FEW_KEYS = 16 };

dlc_entry *dlc_section_entry(const dlc_section *section, const char *key) {
    if (section->count > FEW_KEYS) {
        ptrdiff_t at = dlc_names_find(&section->keys, key);
        return at < 0 ? NULL : &section->entries[at];
    }
    for (size_t i = 0; i < section->count; i++)
        if (strcmp(section->entries[i].key, key) == 0)
            return &section->entries[i];
    return NULL;
}

/* Adds the last key to the index, or all, once there are many. */
static dlc_status index_keys(dlc_section *section) {
    size_t i = section->keys.count ? section->count - 1 : 0;
    for (; section->count > FEW_KEYS && i < section->count; i++)
        DLC_TRY(dlc_names_add(&section->keys, section->entries[i].key, i));
    return DLC_OK;
}

dlc_status dlc_config_add_section(dlc_config *config, const char *name, int line,
                                  dlc_section **section) {
    dlc_section *grown = dlc_grow_by_one(config->sections, config->count,
                                         sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    config->sections = grown;
    dlc_section added = {.name = dlc_strdup(name), .line = line};
    if (!added.name)
        return DLC_ERR_NOMEM;
    config->sections[config->count] = added;
    *section = &config->sections[config->count++];
    config->entries++;
    return dlc_names_add(&config->names, added.name, config->count - 1);
}

dlc_status dlc_section_add(dlc_config *config, dlc_section *section, const char *key,
                           const char *value, int line, int broken) {
    dlc_entry *grown = dlc_grow_by_one(section->entries, section->count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    section->entries = grown;
    dlc_entry entry = {.key = dlc_strdup(key),
                       .value = dlc_strdup(value),
                       .line = line,
                       .broken = broken};
    if (!entry.key || !entry.value) {
        dlc_free(entry.key);
        dlc_free(entry.value);
        return DLC_ERR_NOMEM;
    }
    section->entries[section->count++] = entry;
    config->entries++;
    return index_keys(section);
}

static dlc_status config_new(const char *path, dlc_config **config) {
    dlc_config *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    const char *slash = path ? strrchr(path, '/') : NULL;
    made->name = dlc_strdup(path ? path : "--set");
    made->folder = dlc_strndup(path ? path : "",
                               slash ? (size_t)(slash + 1 - path) : 0);
    if (!made->name || !made->folder) {
        dlc_config_free(made);
        return DLC_ERR_NOMEM;
    }
    *config = made;
    return DLC_OK;
}

void dlc_section_clear(dlc_section *section) {
    for (size_t i = 0; i < section->count; i++) {
        dlc_free(section->entries[i].key);
        dlc_free(section->entries[i].value);
        dlc_free(section->entries[i].owner);
    }
    dlc_names_free(&section->keys);
    dlc_free(section->entries);
    dlc_free(section->origin);
    dlc_free(section->name);
    *section = (dlc_section){0};
}

void dlc_config_free(dlc_config *config) {
    if (!config)
        return;
    for (size_t i = 0; i < config->count; i++)
        dlc_section_clear(&config->sections[i]);
    for (size_t i = 0; i < config->ngroups; i++)
        dlc_free((char *)config->groups[i].name);
    dlc_names_free(&config->group_names);
    dlc_names_free(&config->names);
    dlc_free(config->groups);
    dlc_free(config->sections);
    dlc_free(config->folder);
    dlc_free(config->name);
    dlc_free(config);
}

/* ---- Loading ---- */

static dlc_status load_file(const char *path, const char *const *reserved,
                            dlc_problems *problems, dlc_config *config) {
    char *bytes = NULL;
    size_t length = 0;
    DLC_TRY(dlc_file_read(path, &bytes, &length));
    size_t before = problems->errors;
    dlc_status rc = dlc_scan(bytes, length, config, reserved, problems);
    /* After a mistake the two readers will differ. */
    if (rc == DLC_OK && problems->errors == before)
        rc = dlc_iniparser_compare(config, bytes, length, problems);
    dlc_free(bytes);
    return rc;
}

/* A --set may name a section of the file, or one that exists only once blocks are
 * expanded. */
static dlc_status apply_sets(dlc_config *config, const char *const *reserved,
                             const char *const *sets, size_t nsets,
                             dlc_problems *problems) {
    char *later = dlc_alloc(nsets, sizeof *later);
    dlc_status rc = later ? DLC_OK : DLC_ERR_NOMEM;
    for (size_t i = 0; i < nsets && rc == DLC_OK; i++)
        rc = dlc_set_apply(config, reserved, sets[i], problems, &later[i]);
    if (rc == DLC_OK)
        rc = dlc_blocks_expand(config, problems);
    for (size_t i = 0; i < nsets && rc == DLC_OK; i++)
        if (later[i])
            rc = dlc_set_apply(config, reserved, sets[i], problems, NULL);
    dlc_free(later);
    return rc;
}

dlc_status dlc_config_load(const char *path, const char *const *reserved,
                           const char *const *sets, size_t nsets,
                           dlc_problems *problems, dlc_config **config) {
    dlc_config *made = NULL;
    DLC_TRY(config_new(path, &made));
    dlc_status rc = path ? load_file(path, reserved, problems, made) : DLC_OK;
    if (rc == DLC_OK)
        rc = apply_sets(made, reserved, sets, nsets, problems);
    if (rc == DLC_OK && problems->failed)
        rc = dlc_fail(DLC_ERR_NOMEM, "out of memory");
    if (rc != DLC_OK) {
        dlc_config_free(made);
        return rc;
    }
    *config = made;
    return DLC_OK;
}

/* ---- Reading ---- */

const char *dlc_config_name(const dlc_config *config) {
    return config->name;
}

const dlc_section *dlc_config_find(const dlc_config *config, const char *name) {
    return dlc_config_section(config, name);
}

const dlc_section *dlc_config_next(const dlc_config *config, const dlc_section *after) {
    size_t next = after ? (size_t)(after - config->sections) + 1 : 0;
    return next < config->count ? &config->sections[next] : NULL;
}

const char *dlc_section_name(const dlc_section *section) {
    return section->name;
}

int dlc_section_line(const dlc_section *section) {
    return section->line;
}

const char *dlc_section_value(const dlc_section *section, const char *key) {
    const dlc_entry *entry = dlc_section_entry(section, key);
    return entry ? entry->value : NULL;
}

int dlc_section_key_line(const dlc_section *section, const char *key) {
    const dlc_entry *entry = dlc_section_entry(section, key);
    return entry ? entry->line : section->line;
}

int dlc_section_is_broken(const dlc_section *section, const char *key) {
    const dlc_entry *entry = dlc_section_entry(section, key);
    return entry && entry->broken;
}

const char *dlc_section_key(const dlc_section *section, size_t i) {
    return i < section->count ? section->entries[i].key : NULL;
}

const dlc_group *dlc_config_group(const dlc_config *config, size_t i) {
    return i < config->ngroups ? &config->groups[i] : NULL;
}

const dlc_group *dlc_config_find_group(const dlc_config *config, const char *name,
                                       size_t length) {
    ptrdiff_t at = dlc_names_find_part(&config->group_names, name, length);
    return at < 0 ? NULL : &config->groups[at];
}
