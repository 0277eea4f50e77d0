/* Expands every use of a block into layers, ordinary sections that remember the line
 * where they were written, so that all later code can ignore blocks. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "config/block.h"

typedef struct expander {
    dlc_blocks blocks;
    dlc_config *config; /* receives the expanded sections */
    dlc_problems *problems;
    const dlc_section *use; /* the section of the file that is being expanded */
} expander;

/* The input given to a use, and the line and section that say so. */
typedef struct given {
    const char *names; /* NULL: none, so it reads the layer above */
    int line;
    const char *owner;
} given;

/* One copy of a block. */
typedef struct copy {
    const dlc_block *block;
    char **value;     /* of the parameters; own; NULL: not given, which was reported */
    const char *name; /* of the copy: the prefix of its layers' names */
    given in;
} copy;

static dlc_status expand_use(expander *x, const copy *outer, const dlc_section *use,
                             const char *name, const given *in);

/* ---- Adding ---- */

/* Reports a name that another layer or group already has. */
static void check_block_name(expander *x, const char *name) {
    if (dlc_config_section(x->config, name) ||
        dlc_config_find_group(x->config, name, strlen(name)))
        dlc_problems_add_in(x->problems, x->config, x->use, NULL,
                            "two layers get the name [%s]; rename one of them", name);
}

/* Fails if `more` entries would exceed the limit. */
static dlc_status check_size(const expander *x, size_t more) {
    if (x->config->entries + more <= DLC_CONFIG_ENTRIES)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "%s:%d: more than %d sections and keys once [%s] is expanded",
                    x->config->name, x->use->line, DLC_CONFIG_ENTRIES, x->use->name);
}

static dlc_status add_group(expander *x, const char *name, size_t first, int open) {
    dlc_config *config = x->config;
    dlc_group *grown = dlc_grow_by_one(config->groups, config->ngroups, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    config->groups = grown;
    dlc_group group = {.name = dlc_strdup(name),
                       .first = config->sections[first].name,
                       .last = config->sections[config->count - 1].name,
                       .open = open};
    if (!group.name)
        return DLC_ERR_NOMEM;
    config->groups[config->ngroups++] = group;
    config->entries++;
    DLC_TRY(dlc_names_add(&config->group_names, group.name, config->ngroups - 1));
    return check_size(x, 0);
}

/* Adds a copy of a section, still without keys. */
static dlc_status add_section(expander *x, const copy *outer, const dlc_section *from,
                              const char *name, dlc_section **section) {
    check_block_name(x, name);
    if (strlen(name) > DLC_CONFIG_NAME)
        dlc_problems_add_in(x->problems, x->config, x->use, NULL,
                            "a layer of it gets a name of more than %d characters",
                            DLC_CONFIG_NAME);
    DLC_TRY(dlc_config_add_section(x->config, name, from->line, section));
    (*section)->broken = from->broken;
    DLC_TRY(check_size(x, 0));
    if (!outer)
        return DLC_OK;
    (*section)->use_line = x->use->line;
    (*section)->origin = dlc_strdup(from->name);
    return (*section)->origin ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status set_owner(dlc_section *section, const char *owner) {
    dlc_entry *entry = &section->entries[section->count - 1];
    entry->owner = dlc_strdup(owner);
    return entry->owner ? DLC_OK : DLC_ERR_NOMEM;
}

/* Adds a placeholder for a use whose block is unknown: a layer of invalid type, so that
 * its readers are not reported as well. */
static dlc_status add_stub(expander *x, const copy *outer, const dlc_section *use,
                           const char *name) {
    dlc_section *section = NULL;
    DLC_TRY(add_section(x, outer, use, name, &section));
    section->broken = 1;
    return dlc_section_add(x->config, section, "type", "", use->line, 1);
}

/* ---- Values ---- */

static void report_value(expander *x, const copy *outer, const dlc_section *section,
                         const dlc_entry *entry, const char *what) {
    dlc_problem_place place = {.line = entry->line, .name = section->name};
    if (outer) {
        place.as = outer->name;
        place.use_line = x->use->line;
    }
    dlc_problems_at(x->problems, x->config, &place, "%s: %s", entry->key, what);
}

/* Reports values that grow from block to block before they fill the memory. */
static int is_short(expander *x, const copy *outer, const dlc_section *section,
                    const dlc_entry *entry, const dlc_text *text) {
    char what[80];
    if (text->length <= DLC_CONFIG_LINE)
        return 1;
    snprintf(what, sizeof what, "more than %d bytes once the block is expanded",
             DLC_CONFIG_LINE);
    report_value(x, outer, section, entry, what);
    return 0;
}

/* Substitutes the parameters in a value. *broken if one is missing or the value is
 * invalid. */
static dlc_status fill_in(expander *x, const copy *outer, const dlc_section *section,
                          const dlc_entry *entry, dlc_text *text, int *broken) {
    *broken = entry->broken;
    if (!outer || entry->broken) {
        dlc_text_add(text, "%s", entry->broken ? "" : entry->value);
        return dlc_text_status(text);
    }
    const char *at = entry->value, *dollar;
    while ((dollar = strchr(at, '$')) && !*broken) {
        size_t length = dlc_parameter_length(dollar + 1);
        size_t which = dlc_block_parameter(outer->block, dollar + 1, length);
        dlc_text_append(text, at, (size_t)(dollar - at));
        if (which < outer->block->parameters && outer->value[which])
            dlc_text_add(text, "%s", outer->value[which]);
        else
            *broken = 1;
        at = dollar + 1 + length;
    }
    dlc_text_add(text, "%s", at);
    *broken |= !is_short(x, outer, section, entry, text);
    return dlc_text_status(text);
}

/* Translates the names of an `input` to those in the net. In a section of the file they
 * are used as they are. */
static dlc_status name_inputs(const copy *outer, const char *names, dlc_text *text) {
    for (const char *at = outer ? names : NULL; at;) {
        size_t length;
        const char *name = dlc_input_next(&at, &length);
        if (length == 2 && memcmp(name, "in", 2) == 0 && outer->in.names)
            dlc_text_add(text, "%s", outer->in.names);
        else if ((length == 4 && memcmp(name, "data", 4) == 0) ||
                 (length == 5 && memcmp(name, "label", 5) == 0))
            dlc_text_append(text, name, length);
        else
            dlc_text_add(text, "%s.%.*s", outer->name, (int)length, name);
        dlc_text_add(text, "%s", at ? ", " : "");
    }
    if (!outer)
        dlc_text_add(text, "%s", names);
    return dlc_text_status(text);
}

/* Whether the list contains `in`: mistakes in it then belong to the use that gave the
 * input. */
static int names_given(const char *names) {
    for (const char *at = names; at;) {
        size_t length;
        const char *name = dlc_input_next(&at, &length);
        if (length == 2 && memcmp(name, "in", 2) == 0)
            return 1;
    }
    return 0;
}

/* The input of a layer of a copy: its own, or for the first layer that of the copy. */
static dlc_status find_given(expander *x, const copy *outer, const dlc_section *section,
                             dlc_text *text, given *in) {
    const dlc_entry *entry = dlc_section_entry(section, "input");
    *in = (given){0};
    if (!entry && outer && section == outer->block->member)
        *in = outer->in;
    if (!entry || entry->broken)
        return DLC_OK;
    DLC_TRY(name_inputs(outer, entry->value, text));
    if (!is_short(x, outer, section, entry, text))
        return DLC_OK;
    int passed = outer && outer->in.names && names_given(entry->value);
    in->names = dlc_text_string(text);
    in->line = passed ? outer->in.line : entry->line;
    in->owner = passed ? outer->in.owner : section->name;
    return DLC_OK;
}

/* ---- Layers ---- */

static dlc_status add_expanded_key(expander *x, const copy *outer,
                                   const dlc_section *from, const dlc_entry *entry,
                                   dlc_section *section) {
    dlc_text text = {0};
    int broken = 0;
    dlc_status rc = fill_in(x, outer, from, entry, &text, &broken);
    if (rc == DLC_OK)
        rc = dlc_section_add(x->config, section, entry->key,
                             broken ? "" : dlc_text_string(&text), entry->line, broken);
    dlc_text_free(&text);
    return rc;
}

static dlc_status add_block_input(expander *x, const copy *outer,
                                  const dlc_section *from, dlc_section *section) {
    dlc_text text = {0};
    given in = {0};
    dlc_status rc = find_given(x, outer, from, &text, &in);
    if (rc == DLC_OK && in.names)
        rc = dlc_section_add(x->config, section, "input", in.names, in.line, 0);
    if (rc == DLC_OK && in.names && strcmp(in.owner, from->name) != 0)
        rc = set_owner(section, in.owner);
    dlc_text_free(&text);
    return rc;
}

static dlc_status add_expanded_layer(expander *x, const copy *outer,
                                     const dlc_section *from, const char *name) {
    dlc_section *section = NULL;
    DLC_TRY(add_section(x, outer, from, name, &section));
    DLC_TRY(add_block_input(x, outer, from, section));
    for (size_t i = 0; i < from->count; i++)
        if (strcmp(from->entries[i].key, "input") != 0)
            DLC_TRY(add_expanded_key(x, outer, from, &from->entries[i], section));
    return check_size(x, 0);
}

static dlc_status add_member(expander *x, const copy *outer,
                             const dlc_section *member) {
    dlc_text text = {0};
    given in = {0};
    char *name = dlc_format("%s.%s", outer->name,
                            dlc_member_name(outer->block, member));
    dlc_status rc = name ? DLC_OK : DLC_ERR_NOMEM;
    if (rc == DLC_OK && dlc_section_entry(member, "block")) {
        rc = find_given(x, outer, member, &text, &in);
        if (rc == DLC_OK)
            rc = expand_use(x, outer, member, name, &in);
    } else if (rc == DLC_OK) {
        rc = add_expanded_layer(x, outer, member, name);
    }
    dlc_text_free(&text);
    dlc_free(name);
    return rc;
}

/* ---- Uses ---- */

static dlc_status add_section_copy(expander *x, const copy *made) {
    size_t first = x->config->count;
    for (size_t i = 0; i < made->block->members; i++)
        DLC_TRY(add_member(x, made, &made->block->member[i]));
    check_block_name(x, made->name);
    return add_group(x, made->name, first, !made->in.names);
}

/* Adds `times` copies, each reading the one before. */
static dlc_status add_copies(expander *x, const dlc_section *use, const copy *made,
                             int times) {
    size_t first = x->config->count;
    copy next = *made;
    char *before = NULL;
    dlc_status rc = DLC_OK;
    for (int i = 1; i <= times && rc == DLC_OK; i++) {
        char *name = dlc_format("%s.%d", made->name, i);
        if (before)
            next.in = (given){before, use->line, use->name};
        next.name = name;
        rc = name ? add_section_copy(x, &next) : DLC_ERR_NOMEM;
        dlc_free(before);
        before = name;
    }
    dlc_free(before);
    if (rc != DLC_OK)
        return rc;
    check_block_name(x, made->name);
    return add_group(x, made->name, first, !made->in.names);
}

/* The `repeat` of a use; 0 if it has none or an invalid one. */
static dlc_status read_repeat(expander *x, const copy *outer, const dlc_section *use,
                              const given *in, int *times) {
    const dlc_entry *entry = dlc_section_entry(use, "repeat");
    dlc_text text = {0};
    char why[200];
    int broken = 1;
    *times = 0;
    dlc_status rc = entry ? fill_in(x, outer, use, entry, &text, &broken) : DLC_OK;
    if (rc == DLC_OK && !broken) {
        *times = dlc_repeat_parse(dlc_text_string(&text), why, sizeof why);
        if (!*times && outer) /* else it was reported before */
            report_value(x, outer, use, entry, why);
        if (in->names && strchr(in->names, ','))
            report_value(x, outer, use, entry,
                         "a copy reads the one before, so there can be one input only");
    }
    dlc_text_free(&text);
    return rc;
}

static dlc_status read_values(expander *x, const copy *outer, const dlc_section *use,
                              const copy *made) {
    for (size_t i = 0; i < made->block->parameters; i++) {
        const dlc_parameter *parameter = &made->block->parameter[i];
        const dlc_entry *entry = dlc_section_entry(use, parameter->name);
        dlc_text text = {0};
        int broken = !entry && !parameter->value;
        dlc_status rc = DLC_OK;
        if (entry)
            rc = fill_in(x, outer, use, entry, &text, &broken);
        if (rc == DLC_OK && !broken) {
            made->value[i] = dlc_strdup(entry ? dlc_text_string(&text)
                                              : parameter->value);
            rc = made->value[i] ? DLC_OK : DLC_ERR_NOMEM;
        }
        dlc_text_free(&text);
        if (rc != DLC_OK)
            return rc;
    }
    return DLC_OK;
}

static dlc_status expand_use(expander *x, const copy *outer, const dlc_section *use,
                             const char *name, const given *in) {
    const dlc_entry *which = dlc_section_entry(use, "block");
    const dlc_block *block = dlc_block_find(&x->blocks, which->value);
    if (which->broken || !block || !block->members || strlen(name) > DLC_CONFIG_NAME)
        return add_stub(x, outer, use, name);
    copy made = {.block = block, .name = name, .in = *in};
    made.value = dlc_alloc(block->parameters, sizeof *made.value);
    int times = 0;
    dlc_status rc = made.value ? read_values(x, outer, use, &made) : DLC_ERR_NOMEM;
    if (rc == DLC_OK)
        rc = read_repeat(x, outer, use, in, &times);
    if (rc == DLC_OK)
        rc = times ? add_copies(x, use, &made, times) : add_section_copy(x, &made);
    for (size_t i = 0; i < block->parameters && made.value; i++)
        dlc_free(made.value[i]);
    dlc_free(made.value);
    return rc;
}

/* ---- The file ---- */

/* Keeps a section that is neither a block nor a use of one. */
static dlc_status keep_section(expander *x, dlc_section *section) {
    dlc_config *config = x->config;
    dlc_section *kept = NULL;
    DLC_TRY(check_size(x, 1 + section->count));
    dlc_block_check_place(&x->blocks, section);
    check_block_name(x, section->name);
    DLC_TRY(dlc_config_add_section(config, section->name, section->line, &kept));
    dlc_free(section->name);
    section->name = kept->name;
    config->entries += section->count;
    *kept = *section;
    *section = (dlc_section){0};
    return DLC_OK;
}

static dlc_status expand_at(expander *x, size_t *at) {
    dlc_section *section = &x->blocks.section[*at];
    dlc_text text = {0};
    given in = {0};
    x->use = section;
    *at += 1;
    if (section->block) {
        DLC_TRY(dlc_block_declare(&x->blocks, *at - 1));
        *at += x->blocks.block[x->blocks.count - 1].members;
        return DLC_OK;
    }
    if (section->reserved || !dlc_section_entry(section, "block"))
        return keep_section(x, section);
    dlc_block_check_place(&x->blocks, section);
    DLC_TRY(dlc_block_check_use(&x->blocks, section, NULL));
    dlc_status rc = find_given(x, NULL, section, &text, &in);
    if (rc == DLC_OK)
        rc = expand_use(x, NULL, section, section->name, &in);
    dlc_text_free(&text);
    return rc;
}

static void warn_unused(const expander *x) {
    for (size_t i = 0; i < x->blocks.count; i++)
        if (!x->blocks.block[i].used)
            dlc_problems_warn(x->problems, x->config, x->blocks.block[i].head->line,
                              "block %s is not used", x->blocks.block[i].name);
}

dlc_status dlc_blocks_expand(dlc_config *config, dlc_problems *problems) {
    expander x = {.config = config, .problems = problems};
    size_t at = 0, before = problems->errors;
    x.blocks = (dlc_blocks){.config = config,
                            .problems = problems,
                            .section = config->sections,
                            .sections = config->count};
    config->sections = NULL;
    config->count = config->entries = 0;
    dlc_names_free(&config->names);
    dlc_status rc = dlc_blocks_open(&x.blocks);
    while (rc == DLC_OK && at < x.blocks.sections)
        rc = expand_at(&x, &at);
    if (rc == DLC_OK && problems->errors == before)
        warn_unused(&x);
    for (size_t i = 0; i < x.blocks.sections; i++)
        dlc_section_clear(&x.blocks.section[i]);
    dlc_free(x.blocks.section);
    dlc_blocks_free(&x.blocks);
    return rc;
}
