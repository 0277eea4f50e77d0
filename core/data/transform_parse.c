/* Parses a list of transforms: `name(value, key=value), name, ...`. A value that is a
 * list is in parentheses. Every mistake is reported with its place in the list. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"
#include "base/memory.h"
#include "config/suggest.h"
#include "data/transform_kinds.h"

enum { WHY_BYTES = 512 };

const dlc_transform *const dlc_transform_table[] = {
    &dlc_transform_resize,         &dlc_transform_center_crop,
    &dlc_transform_random_crop,    &dlc_transform_random_resized_crop,
    &dlc_transform_mirror,         &dlc_transform_rotate,
    &dlc_transform_color_jitter,   &dlc_transform_lighting,
    &dlc_transform_grayscale,      &dlc_transform_rand_augment,
    &dlc_transform_random_erasing, &dlc_transform_cutout,
    &dlc_transform_normalize,      NULL,
};

int dlc_transforms_describe(size_t i, dlc_transform_info *info) {
    const dlc_transform *kind = dlc_transform_table[i];
    if (!kind)
        return 0;
    *info = (dlc_transform_info){kind->name, kind->help, kind->options};
    return 1;
}

/* A part of the text. */
typedef struct part {
    const char *begin, *end;
} part;

/* The list that is parsed, and the transform that it has come to. */
typedef struct parser {
    const dlc_config *config;
    const dlc_section *section;
    dlc_problems *problems;
    int32_t index;
    char *name; /* own */
    int is_sound;
} parser;

void dlc_transform_place(dlc_text *text, int32_t index, const char *name) {
    int n = index + 1, teen = n % 100 >= 11 && n % 100 <= 13;
    const char *ending = teen          ? "th"
                         : n % 10 == 1 ? "st"
                         : n % 10 == 2 ? "nd"
                         : n % 10 == 3 ? "rd"
                                       : "th";
    dlc_text_add(text, "the %d%s, %s", n, ending, name);
}

/* Reports a mistake in the transform that is parsed. */
__attribute__((format(printf, 2, 3))) static void report(parser *at, const char *format,
                                                         ...) {
    char why[WHY_BYTES];
    va_list args;
    va_start(args, format);
    /* The analyzer loses va_start where it inlines a call. */
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized)
    (void)dlc_print(why, sizeof why, format, args);
    va_end(args);
    dlc_text place = {0};
    dlc_transform_place(&place, at->index, at->name && *at->name ? at->name : "\"\"");
    const char *says = dlc_text_string(&place);
    if (at->section)
        dlc_problems_add_in(at->problems, at->config, at->section, "transforms",
                            "transforms: %s: %s", says, why);
    else
        dlc_problems_add(at->problems, at->config, DLC_LINE_FILE, "transforms: %s: %s",
                         says, why);
    dlc_text_free(&place);
    at->is_sound = 0;
}

static part trim(part text) {
    while (text.begin < text.end && (*text.begin == ' ' || *text.begin == '\t'))
        text.begin++;
    while (text.begin < text.end && (text.end[-1] == ' ' || text.end[-1] == '\t'))
        text.end--;
    return text;
}

/* Takes the part before the next comma outside parentheses. 0: there is none. */
static int next_argument(part *rest, part *found) {
    if (!rest->begin)
        return 0;
    const char *at = rest->begin;
    for (int depth = 0; at < rest->end && (depth > 0 || *at != ','); at++)
        depth += (*at == '(') - (*at == ')');
    *found = trim((part){rest->begin, at});
    *rest = at < rest->end ? (part){at + 1, rest->end} : (part){0};
    return 1;
}

static int is_wrapped(part text) {
    return text.end - text.begin >= 2 && *text.begin == '(' && text.end[-1] == ')';
}

static size_t count_options(const dlc_transform *kind) {
    size_t count = 0;
    while (kind->options && kind->options[count].name)
        count++;
    return count;
}

/* ---- Arguments --------------------------------------------------------------- */

static void report_unknown_option(parser *at, const dlc_transform *kind,
                                  const char *key) {
    const char *names[DLC_TRANSFORM_OPTIONS];
    char shown[DLC_SHOWN];
    size_t count = count_options(kind);
    for (size_t i = 0; i < count; i++)
        names[i] = kind->options[i].name;
    dlc_text instead = {0};
    const char *nearest = dlc_nearest(key, names, count);
    if (nearest)
        dlc_text_add(&instead, "; did you mean %s?", nearest);
    for (size_t i = 0; !nearest && i < count; i++)
        dlc_text_add(&instead, "%s%s", i ? ", " : "; it takes ", names[i]);
    report(at, "has no option \"%s\"%s", dlc_show(key, shown),
           dlc_text_string(&instead));
    dlc_text_free(&instead);
}

/* The option that an argument sets, or its number of options; *value is what is left of
 * the argument. */
static dlc_status find_option(parser *at, const dlc_transform_step *step,
                              size_t position, part *value, size_t *option) {
    const dlc_option *options = step->kind->options;
    size_t count = count_options(step->kind);
    const char *equals = NULL;
    if (!is_wrapped(*value))
        equals = memchr(value->begin, '=', (size_t)(value->end - value->begin));
    *option = count;
    if (!equals) {
        if (position >= count)
            report(at, "takes at most %zu argument%s", count, count == 1 ? "" : "s");
        else
            *option = position;
        return DLC_OK;
    }
    part key = trim((part){value->begin, equals});
    *value = trim((part){equals + 1, value->end});
    char *name = dlc_strndup(key.begin, (size_t)(key.end - key.begin));
    if (!name)
        return DLC_ERR_NOMEM;
    size_t i = 0;
    while (i < count && strcmp(options[i].name, name) != 0)
        i++;
    if (i == count)
        report_unknown_option(at, step->kind, name);
    *option = i;
    dlc_free(name);
    return DLC_OK;
}

static dlc_status set_option(parser *at, dlc_transform_step *step, size_t i,
                             part value) {
    char why[WHY_BYTES - 128];
    const dlc_option *option = &step->kind->options[i];
    int is_list = option->type == DLC_OPT_INTS || option->type == DLC_OPT_FLOATS;
    if (step->given & 1u << i) {
        report(at, "%s is given twice", option->name);
        return DLC_OK;
    }
    if (is_list && is_wrapped(value))
        value = (part){value.begin + 1, value.end - 1};
    char *text = dlc_strndup(value.begin, (size_t)(value.end - value.begin));
    if (!text)
        return DLC_ERR_NOMEM;
    dlc_option_value parsed = {0};
    dlc_status status = dlc_value_parse(option, text, "", &parsed, why, sizeof why);
    dlc_free(text);
    step->given |= 1u << i;
    if (status == DLC_ERR_CONFIG) {
        report(at, "%s: %s", option->name, why);
        return DLC_OK;
    }
    if (status == DLC_OK)
        step->value[i] = parsed;
    return status;
}

/* Sets what was not given. */
static dlc_status set_defaults(parser *at, dlc_transform_step *step) {
    char why[WHY_BYTES];
    for (size_t i = 0; i < count_options(step->kind); i++) {
        const dlc_option *option = &step->kind->options[i];
        int is_given = !!(step->given & 1u << i);
        if (!is_given && option->flags & DLC_OPT_REQUIRED)
            report(at, "needs %s, %s", option->name, option->help);
        if (!is_given && option->def)
            DLC_TRY(dlc_value_parse(option, option->def, "", &step->value[i], why,
                                    sizeof why));
    }
    return DLC_OK;
}

/* Which option the first argument without a name sets: as in torchvision, one number is
 * a size, and two are height and width. */
static size_t first_option(const dlc_transform *kind, part text) {
    enum { SIZE, HEIGHT };
    size_t unnamed = 0;
    part value;
    for (part rest = trim(text); rest.begin < rest.end && next_argument(&rest, &value);)
        unnamed += !memchr(value.begin, '=', (size_t)(value.end - value.begin));
    return kind->flags & DLC_TRANSFORM_SIZED && unnamed > 1 ? HEIGHT : SIZE;
}

static dlc_status parse_arguments(parser *at, part text, dlc_transform_step *step) {
    part value;
    int named = 0;
    size_t position = first_option(step->kind, text), option = 0;
    for (part rest = trim(text);
         rest.begin < rest.end && next_argument(&rest, &value);) {
        part whole = value;
        if (value.begin == value.end) {
            report(at, "an argument is empty");
            continue;
        }
        DLC_TRY(find_option(at, step, position, &value, &option));
        if (value.begin == whole.begin && named)
            report(at, "arguments without a name come before those with one");
        named |= value.begin != whole.begin;
        position++;
        if (option < count_options(step->kind))
            DLC_TRY(set_option(at, step, option, value));
    }
    return set_defaults(at, step);
}

/* ---- Transforms -------------------------------------------------------------- */

static void report_unknown_transform(parser *at) {
    enum { ALL = sizeof dlc_transform_table / sizeof *dlc_transform_table - 1 };
    const char *names[ALL];
    size_t count = 0;
    for (; count < ALL; count++)
        names[count] = dlc_transform_table[count]->name;
    dlc_text instead = {0};
    dlc_suggest(&instead, at->name, names, count);
    for (size_t i = 0, all = instead.length ? 0 : count; i < all; i++)
        dlc_text_add(&instead, "%s%s", i ? ", " : "; there are ", names[i]);
    report(at, "there is no such transform%s", dlc_text_string(&instead));
    dlc_text_free(&instead);
}

static const dlc_transform *find_kind(const char *name) {
    const dlc_transform *const *kind = dlc_transform_table;
    while (*kind && strcmp((*kind)->name, name) != 0)
        kind++;
    return *kind;
}

static void free_step(dlc_transform_step *step) {
    for (size_t i = 0; step->kind && i < count_options(step->kind); i++)
        dlc_value_free(&step->kind->options[i], &step->value[i]);
    *step = (dlc_transform_step){0};
}

static dlc_status parse_step(parser *at, part text, dlc_transform_step *step) {
    const char *open = memchr(text.begin, '(', (size_t)(text.end - text.begin));
    part name = trim((part){text.begin, open ? open : text.end});
    part arguments = {open ? open + 1 : text.end, text.end};
    at->name = dlc_strndup(name.begin, (size_t)(name.end - name.begin));
    if (!at->name)
        return DLC_ERR_NOMEM;
    if (open && text.end[-1] != ')') {
        report(at, "\")\" is missing, or something follows it");
        return DLC_OK;
    }
    if (!*at->name) {
        report(at, "the name of a transform is missing");
        return DLC_OK;
    }
    step->kind = find_kind(at->name);
    if (!step->kind) {
        report_unknown_transform(at);
        return DLC_OK;
    }
    if (open)
        arguments.end--;
    DLC_TRY(parse_arguments(at, arguments, step));
    if (at->is_sound && step->kind->check && step->kind->check(step) != DLC_OK)
        report(at, "%s", dlc_detail());
    return DLC_OK;
}

/* Parses the next transform of the list; what is not sound is left out. */
static dlc_status add_step(parser *at, part text, dlc_transforms *list) {
    dlc_transform_step step = {0};
    at->is_sound = 1;
    at->name = NULL;
    dlc_status status = parse_step(at, text, &step);
    int is_full = list->count == DLC_TRANSFORMS_MAX;
    if (status == DLC_OK && is_full)
        report(at, "a list has at most %d transforms", DLC_TRANSFORMS_MAX);
    const dlc_transform_step *last = list->count ? &list->step[list->count - 1] : NULL;
    if (status == DLC_OK && last && (last->kind->flags & DLC_TRANSFORM_LAST))
        report(at, "comes after %s, which must be the last", last->kind->name);
    dlc_free(at->name);
    at->index++;
    if (status == DLC_OK && at->is_sound)
        list->step[list->count++] = step;
    else
        free_step(&step);
    return status;
}

dlc_status dlc_transforms_parse(const char *text, const dlc_config *config,
                                const char *section, dlc_problems *problems,
                                dlc_transforms **list) {
    dlc_transforms *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    parser at = {.config = config,
                 .section = config ? dlc_config_find(config, section) : NULL,
                 .problems = problems};
    part one, rest = {0};
    if (text && *text)
        rest = (part){text, text + strlen(text)};
    dlc_status status = DLC_OK;
    while (status == DLC_OK && next_argument(&rest, &one))
        status = add_step(&at, one, made);
    if (status != DLC_OK) {
        dlc_transforms_free(made);
        return status;
    }
    *list = made;
    return DLC_OK;
}

void dlc_transforms_free(dlc_transforms *list) {
    for (int32_t i = 0; list && i < list->count; i++)
        free_step(&list->step[i]);
    dlc_free(list);
}
