/* Prints the sections of net.ini and their keys, from the core's option tables. */
#include "plugin_sections.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "data/transform.h"
#include "plugin_json.h"
#include "setup/sections.h"

static int is_meant(const dlc_section_keys *section, const char *name) {
    return name && (!strcmp(name, DLC_ALL_SECTIONS) || !strcmp(name, section->name));
}

static int is_transforms_meant(const char *name) {
    return name && (!strcmp(name, DLC_ALL_SECTIONS) || !strcmp(name, DLC_TRANSFORMS));
}

int dlc_section_is_known(const char *name) {
    for (const dlc_section_keys *section = dlc_section_table; section->name; section++)
        if (is_meant(section, name))
            return 1;
    return is_transforms_meant(name);
}

const char *dlc_section_nth(size_t i) {
    size_t count = 0;
    while (dlc_section_table[count].name)
        count++;
    if (i == count)
        return DLC_TRANSFORMS;
    if (i == count + 1)
        return DLC_ALL_SECTIONS;
    return i < count ? dlc_section_table[i].name : NULL;
}

/* Is it the first of its kind and name? Two devices may have layers of the same name.
 */
static int is_first(const dlc_registry *registry, const dlc_feature_entry *feature) {
    const dlc_feature_entry *other;
    for (size_t i = 0; (other = dlc_registry_feature(registry, feature->kind, i)); i++)
        if (other == feature || !strcmp(other->name, feature->name))
            return other == feature;
    return 1;
}

/* The plugins whose keys may be in this section, too. */
static void print_plugins(const dlc_registry *registry,
                          const dlc_section_keys *section) {
    const dlc_feature_entry *feature;
    const char *between = "";
    printf("\nThe %s is named by `%s` and may have keys of its own here, which "
           "`dlcore plugin inspect NAME`\nshows. Found: ",
           section->kind == DLC_KIND_DATA ? "data source"
                                          : dlc_kind_text(section->kind),
           section->key);
    for (size_t i = 0; (feature = dlc_registry_feature(registry, section->kind, i));
         i++)
        if (feature->state != DLC_ENTRY_REFUSED && is_first(registry, feature)) {
            printf("%s%s", between, feature->name);
            between = ", ";
        }
    puts(*between ? "" : "none");
}

static dlc_status print_section(const dlc_registry *registry,
                                const dlc_section_keys *section) {
    dlc_text text = {0};
    dlc_options_help(section->tables, DLC_SECTION_TABLES, &text);
    dlc_status rc = dlc_text_status(&text);
    if (rc == DLC_OK)
        printf("%s: %s\n%s", section->title, section->help, dlc_text_string(&text));
    dlc_text_free(&text);
    if (rc == DLC_OK && section->kind)
        print_plugins(registry, section);
    return rc;
}

static dlc_status print_transforms(void) {
    dlc_transform_info info;
    puts("transforms: what happens to a sample before the net reads it");
    for (size_t i = 0; dlc_transforms_describe(i, &info); i++) {
        dlc_text text = {0};
        dlc_options_help(&info.options, 1, &text);
        dlc_status rc = dlc_text_status(&text);
        if (rc == DLC_OK)
            printf("\n%s: %s\n%s", info.name, info.help, dlc_text_string(&text));
        dlc_text_free(&text);
        DLC_TRY(rc);
    }
    return DLC_OK;
}

dlc_status dlc_sections_print(const dlc_registry *registry, const char *name) {
    const char *between = "";
    for (const dlc_section_keys *section = dlc_section_table; section->name;
         section++) {
        if (!is_meant(section, name))
            continue;
        printf("%s", between);
        between = "\n";
        DLC_TRY(print_section(registry, section));
    }
    if (!is_transforms_meant(name))
        return DLC_OK;
    printf("%s", between);
    return print_transforms();
}

static void json_transforms(dlc_json *json, const char *name) {
    dlc_transform_info info;
    dlc_json_array(json, "transforms");
    for (size_t i = 0; is_transforms_meant(name) && dlc_transforms_describe(i, &info);
         i++) {
        dlc_json_object(json, NULL);
        dlc_json_string(json, "name", info.name);
        dlc_json_string(json, "help", info.help);
        dlc_json_options(json, &info.options, 1);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
}

void dlc_json_sections(dlc_json *json, const char *name) {
    dlc_json_array(json, "sections");
    for (const dlc_section_keys *section = dlc_section_table; section->name;
         section++) {
        if (!is_meant(section, name))
            continue;
        dlc_json_object(json, NULL);
        dlc_json_string(json, "name", section->name);
        dlc_json_string(json, "title", section->title);
        dlc_json_string(json, "help", section->help);
        dlc_json_string(json, "plugins",
                        section->kind ? dlc_kind_text(section->kind) : NULL);
        dlc_json_string(json, "named_by", section->key);
        dlc_json_options(json, section->tables, DLC_SECTION_TABLES);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
    json_transforms(json, name);
}

static int has_key(const dlc_option *table, const char *key) {
    for (const dlc_option *row = table; row && row->name; row = DLC_NEXT(row))
        if (!strcmp(row->name, key))
            return 1;
    return 0;
}

static void add_place(dlc_text *text, const char *kind, const char *name) {
    dlc_text_add(text, "%s%s%s%s", text->length ? ", " : "", kind, *kind ? " " : "",
                 name);
}

dlc_status dlc_sections_find_key(const dlc_registry *registry, const char *key,
                                 dlc_text *text) {
    const dlc_feature_entry *entry;
    for (const dlc_section_keys *section = dlc_section_table; section->name; section++)
        if (has_key(section->tables[0], key) || has_key(section->tables[1], key))
            add_place(text, "", section->title);
    for (size_t i = 0; (entry = dlc_registry_feature(registry, 0, i)); i++) {
        const dlc_feature *feature = NULL;
        if (!is_first(registry, entry))
            continue;
        dlc_status rc = dlc_registry_peek(registry, entry, &feature);
        if (rc == DLC_ERR_NOMEM)
            return rc;
        if (rc == DLC_OK && has_key(feature->options, key))
            add_place(text, dlc_kind_text((dlc_kind)entry->kind), entry->name);
    }
    return dlc_text_status(text);
}
