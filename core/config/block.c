/* Reads and checks the blocks of a file at their declaration, so that a mistake is
 * reported once however often the block is used. */
#include "config/block.h"
#include "config/value.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* ---- Names ---- */

dlc_block *dlc_block_find(const dlc_blocks *blocks, const char *name) {
    ptrdiff_t at = dlc_names_find(&blocks->names, name);
    return at < 0 ? NULL : &blocks->block[at];
}

dlc_status dlc_blocks_open(dlc_blocks *blocks) {
    for (size_t i = 0; i < blocks->sections; i++)
        if (blocks->section[i].block)
            DLC_TRY(dlc_names_add(&blocks->heads,
                                  blocks->section[i].name + strlen(DLC_BLOCK), i));
    return DLC_OK;
}

/* The section [block `name`], above or below. */
static const dlc_section *find_head(const dlc_blocks *blocks, const char *name,
                                    size_t length) {
    ptrdiff_t at = dlc_names_find_part(&blocks->heads, name, length);
    return at < 0 ? NULL : &blocks->section[at];
}

const char *dlc_member_name(const dlc_block *block, const dlc_section *member) {
    return member->name + strlen(block->name) + 1;
}

static int is_member(const char *block, const char *section) {
    size_t length = strlen(block);
    return strncmp(section, block, length) == 0 && section[length] == '.';
}

size_t dlc_block_parameter(const dlc_block *block, const char *name, size_t length) {
    size_t i = 0;
    while (i < block->parameters &&
           (strncmp(block->parameter[i].name, name, length) != 0 ||
            block->parameter[i].name[length] != '\0'))
        i++;
    return i;
}

size_t dlc_parameter_length(const char *text) {
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
}

const char *dlc_input_next(const char **at, size_t *length) {
    const char *name = *at + strspn(*at, " \t");
    const char *end = name + strcspn(name, ",");
    *at = *end ? end + 1 : NULL;
    while (end > name && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *length = (size_t)(end - name);
    return name;
}

int dlc_repeat_parse(const char *text, char *why, size_t room) {
    int64_t times = 0;
    char shown[DLC_SHOWN];
    dlc_number is = dlc_parse_int(text, strlen(text), &times);
    if (is == DLC_NOT_A_NUMBER)
        snprintf(why, room, "\"%s\" is not a whole number", dlc_show(text, shown));
    else if (is != DLC_NUMBER || times < 1 || times > DLC_REPEAT_MAX)
        snprintf(why, room, "%s is out of range: 1 .. %d", dlc_show(text, shown),
                 DLC_REPEAT_MAX);
    else
        return (int)times;
    return 0;
}

/* ---- Parameters ---- */

const dlc_option dlc_block_options[] = {
    DLC_STRING("params", NULL, "parameters that a use must give, separated by commas"),
    DLC_OPTIONS_END};

const dlc_option dlc_use_options[] = {
    DLC_OPTION("block", DLC_OPT_STRING, DLC_OPT_REQUIRED, NULL, 0, 0, NULL,
               "the block to use; it must be declared above"),
    DLC_STRING("input", NULL,
               "what `in` is in the block: layers separated by commas, or data, label; "
               "default: the layer above"),
    DLC_INT("repeat", NULL, 1, DLC_REPEAT_MAX,
            "copies, each of which reads the one before, named [NAME.1.LAYER] and so "
            "on; default: one, named [NAME.LAYER]"),
    DLC_OPTIONS_END};

static int is_core_key(const char *name) {
    const dlc_option *row = dlc_use_options;
    while (row->name && strcmp(row->name, name) != 0)
        row = DLC_NEXT(row);
    return row->name != NULL;
}

static dlc_status add_parameter(dlc_blocks *blocks, dlc_block *block, const char *name,
                                size_t length, const dlc_entry *entry) {
    char shown[DLC_SHOWN];
    int required = strcmp(entry->key, "params") == 0;
    char *copy = dlc_strndup(name, length);
    if (!copy)
        return DLC_ERR_NOMEM;
    const char *wrong = NULL;
    if (!length || dlc_parameter_length(copy) != length)
        wrong = "is not a valid name for a parameter: use a-z 0-9 _";
    else if (is_core_key(copy) || (required && strcmp(copy, "params") == 0))
        wrong = "is a key that every use of a block has; rename the parameter";
    else if (dlc_block_parameter(block, copy, length) < block->parameters)
        wrong = "is declared twice";
    if (wrong) {
        dlc_problems_add_in(blocks->problems, blocks->config, block->head, entry->key,
                            "\"%s\" %s", dlc_show(copy, shown), wrong);
        dlc_free(copy);
        return DLC_OK;
    }
    dlc_parameter *grown = dlc_grow_by_one(block->parameter, block->parameters,
                                           sizeof *grown);
    if (!grown) {
        dlc_free(copy);
        return DLC_ERR_NOMEM;
    }
    block->parameter = grown;
    block->parameter[block->parameters++] = (dlc_parameter){
        .name = copy, .value = required ? NULL : entry->value, .line = entry->line};
    return DLC_OK;
}

static dlc_status read_parameters(dlc_blocks *blocks, dlc_block *block) {
    const dlc_entry *params = dlc_section_entry(block->head, "params");
    for (const char *at = params && !params->broken ? params->value : NULL; at;) {
        size_t length;
        const char *name = dlc_input_next(&at, &length);
        DLC_TRY(add_parameter(blocks, block, name, length, params));
    }
    for (size_t i = 0; i < block->head->count; i++) {
        const dlc_entry *entry = &block->head->entries[i];
        if (entry != params)
            DLC_TRY(
                add_parameter(blocks, block, entry->key, strlen(entry->key), entry));
        if (entry != params && strchr(entry->value, '$'))
            dlc_problems_add_in(
                blocks->problems, blocks->config, block->head, entry->key,
                "%s: a default cannot refer to other parameters", entry->key);
    }
    return DLC_OK;
}

/* "; did you mean x?" or "; it takes x, y". */
static dlc_status propose_parameter(const dlc_block *block, const char *name,
                                    dlc_text *text) {
    const char **names = dlc_alloc(block->parameters, sizeof *names);
    if (!names)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < block->parameters; i++)
        names[i] = block->parameter[i].name;
    dlc_suggest(text, name, names, block->parameters);
    if (!text->length) {
        for (size_t i = 0; i < block->parameters; i++)
            dlc_text_add(text, "%s%s", i ? ", " : "; it takes ", names[i]);
        if (!block->parameters)
            dlc_text_add(text, "; it takes none");
    }
    dlc_free(names);
    return dlc_text_status(text);
}

/* Checks that every '$' of a value names a parameter. */
static dlc_status check_value(dlc_blocks *blocks, dlc_block *block,
                              dlc_section *section, dlc_entry *entry) {
    char name[DLC_CONFIG_LINE + 1];
    for (const char *at = entry->value; (at = strchr(at, '$'));) {
        size_t length = dlc_parameter_length(++at);
        size_t which = dlc_block_parameter(block, at, length);
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        at += length;
        if (which < block->parameters) {
            block->parameter[which].used = 1;
            continue;
        }
        dlc_text instead = {0};
        dlc_status rc = propose_parameter(block, name, &instead);
        if (rc == DLC_OK && length)
            dlc_problems_add_in(blocks->problems, blocks->config, section, entry->key,
                                "%s: block %s has no parameter \"%s\"%s", entry->key,
                                block->name, name, dlc_text_string(&instead));
        else if (rc == DLC_OK)
            dlc_problems_add_in(blocks->problems, blocks->config, section, entry->key,
                                "%s: '$' without the name of a parameter", entry->key);
        dlc_text_free(&instead);
        if (rc != DLC_OK)
            return rc;
        entry->broken = 1;
    }
    return DLC_OK;
}

/* ---- Inputs ---- */

/* Whether `name` is one of the first `count` layers, or a layer inside one of them. */
static int names_layer(const dlc_blocks *blocks, const dlc_block *block, size_t count,
                       const char *name, size_t length) {
    for (size_t i = 0; i < count; i++) {
        const dlc_section *member = &block->member[i];
        const char *own = dlc_member_name(block, member);
        size_t used = strlen(own);
        if (used > length || strncmp(own, name, used) != 0)
            continue;
        if (used == length)
            return 1;
        const dlc_entry *use = dlc_section_entry(member, "block");
        const dlc_block *inner = use ? dlc_block_find(blocks, use->value) : NULL;
        if (!inner || name[used++] != '.')
            continue;
        if (dlc_section_entry(member, "repeat")) {
            size_t digits = strspn(name + used, "0123456789");
            used += digits;
            if (digits && used == length)
                return 1;
            if (!digits || name[used++] != '.')
                continue;
        }
        if (names_layer(blocks, inner, inner->members, name + used, length - used))
            return 1;
    }
    return 0;
}

static int is_block_name(const char *name, size_t length, const char *word) {
    return strlen(word) == length && memcmp(name, word, length) == 0;
}

static dlc_status report_input(const dlc_blocks *blocks, const dlc_block *block,
                               const dlc_section *section, size_t above,
                               const char *name) {
    char shown[DLC_SHOWN];
    if (!dlc_problems_want_advice(blocks->problems))
        above = 0;
    const char **names = dlc_alloc(above + 3, sizeof *names);
    dlc_text instead = {0};
    if (!names)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < above; i++)
        names[i] = dlc_member_name(block, &block->member[i]);
    names[above] = "in";
    names[above + 1] = "data";
    names[above + 2] = "label";
    dlc_suggest(&instead, name, names, above + 3);
    if (strcmp(name, dlc_member_name(block, section)) == 0)
        dlc_problems_add_in(blocks->problems, blocks->config, section, "input",
                            "cannot be its own input");
    else
        dlc_problems_add_in(
            blocks->problems, blocks->config, section, "input",
            "input = %s: no layer of that name above in the block; `in` is "
            "what the block reads%s",
            dlc_show(name, shown), dlc_text_string(&instead));
    dlc_status rc = dlc_text_status(&instead);
    dlc_text_free(&instead);
    dlc_free(names);
    return rc;
}

static dlc_status check_input(dlc_blocks *blocks, dlc_block *block,
                              dlc_section *section, dlc_entry *entry) {
    size_t above = (size_t)(section - block->member);
    char copy[DLC_CONFIG_LINE + 1];
    for (const char *at = entry->value; at;) {
        size_t length;
        const char *name = dlc_input_next(&at, &length);
        size_t bare = strcspn(name, ":,");
        if (is_block_name(name, length, "in") || is_block_name(name, length, "data") ||
            is_block_name(name, length, "label") ||
            names_layer(blocks, block, above, name, bare < length ? bare : length))
            continue;
        entry->broken = 1;
        snprintf(copy, sizeof copy, "%.*s", (int)length, name);
        DLC_TRY(report_input(blocks, block, section, above, copy));
    }
    return DLC_OK;
}

/* ---- Uses ---- */

static dlc_status report_block(dlc_blocks *blocks, const dlc_section *section,
                               const char *name, const dlc_block *inside) {
    const dlc_section *below = find_head(blocks, name, strlen(name));
    if (inside && strcmp(inside->name, name) == 0) {
        dlc_problems_add_in(blocks->problems, blocks->config, section, "block",
                            "block %s cannot use itself", name);
        return DLC_OK;
    }
    if (below) {
        dlc_problems_add_in(
            blocks->problems, blocks->config, section, "block",
            "block %s is declared below, in line %d; it must be declared above", name,
            below->line);
        return DLC_OK;
    }
    size_t known = blocks->block && dlc_problems_want_advice(blocks->problems)
                       ? blocks->count
                       : 0;
    const char **names = dlc_alloc(known, sizeof *names);
    if (!names)
        return DLC_ERR_NOMEM;
    char shown[DLC_SHOWN];
    dlc_text instead = {0};
    for (size_t i = 0; i < known; i++)
        names[i] = blocks->block[i].name;
    dlc_suggest(&instead, name, names, known);
    dlc_problems_add_in(blocks->problems, blocks->config, section, "block",
                        "no block is called \"%s\"%s", dlc_show(name, shown),
                        dlc_text_string(&instead));
    dlc_status rc = dlc_text_status(&instead);
    dlc_text_free(&instead);
    dlc_free(names);
    return rc;
}

/* Checks that a use gives known parameters, and all required ones. */
static dlc_status check_arguments(dlc_blocks *blocks, const dlc_section *section,
                                  const dlc_block *block) {
    for (size_t i = 0; i < section->count; i++) {
        const char *key = section->entries[i].key;
        if (is_core_key(key) ||
            dlc_block_parameter(block, key, strlen(key)) < block->parameters)
            continue;
        char shown[DLC_SHOWN];
        dlc_text instead = {0};
        dlc_status rc = propose_parameter(block, key, &instead);
        if (rc == DLC_OK)
            dlc_problems_add_in(blocks->problems, blocks->config, section, key,
                                "block %s has no parameter \"%s\"%s", block->name,
                                dlc_show(key, shown), dlc_text_string(&instead));
        dlc_text_free(&instead);
        if (rc != DLC_OK)
            return rc;
    }
    for (size_t i = 0; i < block->parameters && !section->broken; i++)
        if (!block->parameter[i].value &&
            !dlc_section_entry(section, block->parameter[i].name))
            dlc_problems_add_in(blocks->problems, blocks->config, section, NULL,
                                "needs %s, a parameter of block %s in line %d",
                                block->parameter[i].name, block->name,
                                block->head->line);
    return DLC_OK;
}

dlc_status dlc_block_check_use(dlc_blocks *blocks, dlc_section *section,
                               dlc_block *inside) {
    char why[200];
    dlc_entry *name = dlc_section_entry(section, "block");
    dlc_entry *repeat = dlc_section_entry(section, "repeat");
    if (repeat && !repeat->broken && !(inside && strchr(repeat->value, '$')) &&
        !dlc_repeat_parse(repeat->value, why, sizeof why)) {
        dlc_problems_add_in(blocks->problems, blocks->config, section, "repeat",
                            "repeat: %s", why);
        repeat->broken = 1;
    }
    if (name->broken)
        return DLC_OK;
    dlc_block *block = dlc_block_find(blocks, name->value);
    if (!block) {
        name->broken = 1;
        return report_block(blocks, section, name->value, inside);
    }
    block->used = 1;
    return check_arguments(blocks, section, block);
}

void dlc_block_check_place(const dlc_blocks *blocks, const dlc_section *section) {
    size_t length = strcspn(section->name, ".");
    const dlc_section *head = find_head(blocks, section->name, length);
    if (head && section->name[length])
        dlc_problems_add_in(blocks->problems, blocks->config, section, NULL,
                            "the layers of [%s], line %d, must follow it directly",
                            head->name, head->line);
    else if (head)
        dlc_problems_add_in(blocks->problems, blocks->config, section, NULL,
                            "is the name of the block in line %d; rename one of them",
                            head->line);
}

/* ---- Declarations ---- */

static dlc_status check_member(dlc_blocks *blocks, dlc_block *block,
                               dlc_section *member) {
    const char *name = dlc_member_name(block, member);
    if (strcmp(name, "in") == 0 || strcmp(name, "data") == 0 ||
        strcmp(name, "label") == 0)
        dlc_problems_add_in(blocks->problems, blocks->config, member, NULL,
                            "\"%s\" means something else in a block; rename the layer",
                            name);
    for (size_t i = 0; i < member->count; i++) {
        dlc_entry *entry = &member->entries[i];
        int is_input = strcmp(entry->key, "input") == 0;
        if (!entry->broken)
            DLC_TRY(is_input ? check_input(blocks, block, member, entry)
                             : check_value(blocks, block, member, entry));
    }
    if (dlc_section_entry(member, "block"))
        return dlc_block_check_use(blocks, member, block);
    return DLC_OK;
}

static int is_broken(const dlc_section *section) {
    int broken = section->broken;
    for (size_t i = 0; i < section->count; i++)
        broken |= section->entries[i].broken;
    return broken;
}

static void check_unused(const dlc_blocks *blocks, const dlc_block *block) {
    for (size_t i = 0; i < block->members; i++)
        if (is_broken(&block->member[i]))
            return; /* it may be used in the invalid line */
    for (size_t i = 0; i < block->parameters; i++)
        if (!block->parameter[i].used)
            dlc_problems_at(blocks->problems, blocks->config,
                            &(dlc_problem_place){.line = block->parameter[i].line,
                                                 .name = block->head->name},
                            "no layer of the block uses \"%s\"",
                            block->parameter[i].name);
}

static dlc_status check_members(dlc_blocks *blocks, dlc_block *block) {
    for (size_t i = 0; i < block->members; i++)
        DLC_TRY(check_member(blocks, block, &block->member[i]));
    if (block->members)
        check_unused(blocks, block);
    else
        dlc_problems_add_in(blocks->problems, blocks->config, block->head, NULL,
                            "has no layers; [%s.x] must follow it directly",
                            block->name);
    return DLC_OK;
}

static void block_clear(dlc_block *block) {
    for (size_t i = 0; i < block->parameters; i++)
        dlc_free(block->parameter[i].name);
    dlc_free(block->parameter);
}

void dlc_blocks_free(dlc_blocks *blocks) {
    for (size_t i = 0; i < blocks->count; i++)
        block_clear(&blocks->block[i]);
    dlc_names_free(&blocks->names);
    dlc_names_free(&blocks->heads);
    dlc_free(blocks->block);
}

dlc_status dlc_block_declare(dlc_blocks *blocks, size_t at) {
    dlc_section *head = &blocks->section[at];
    dlc_block block = {.name = head->name + strlen(DLC_BLOCK), .head = head};
    block.member = head + 1;
    while (at + 1 + block.members < blocks->sections &&
           is_member(block.name, block.member[block.members].name))
        block.members++;
    if (strpbrk(block.name, "./") || is_core_key(block.name) ||
        strcmp(block.name, "data") == 0)
        dlc_problems_add_in(
            blocks->problems, blocks->config, head, NULL,
            "is not a valid name for a block: use a-z 0-9 _ -, and no keyword of "
            "net.ini");
    dlc_status rc = read_parameters(blocks, &block);
    if (rc == DLC_OK)
        rc = check_members(blocks, &block);
    dlc_block *grown = NULL;
    if (rc == DLC_OK) {
        grown = dlc_grow_by_one(blocks->block, blocks->count, sizeof *grown);
        rc = grown ? DLC_OK : DLC_ERR_NOMEM;
    }
    if (!grown) {
        block_clear(&block);
        return rc;
    }
    blocks->block = grown;
    blocks->block[blocks->count++] = block;
    return dlc_names_add(&blocks->names, block.name, blocks->count - 1);
}
