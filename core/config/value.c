/* Parses the value of one option by its type, and checks its range. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/internal.h"
#include "config/value.h"

const char *dlc_show(const char *text, char shown[DLC_SHOWN]) {
    enum { MAX_SHOWN = 60 };
    size_t length = strlen(text);
    const char *more = "";
    if (length > MAX_SHOWN) {
        length = MAX_SHOWN;
        more = "...";
        while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--; /* not in the middle of a character */
    }
    snprintf(shown, DLC_SHOWN, "%.*s%s", (int)length, text, more);
    for (char *c = shown; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* control characters could command a terminal */
    return shown;
}

const char *dlc_choice(const char *choices, size_t i, size_t *length) {
    const char *at = choices;
    for (; i; i--) {
        at = strchr(at, '|');
        if (!at)
            return NULL;
        at++;
    }
    *length = strcspn(at, "|");
    return at;
}

/* How messages call a value of this type. */
static const char *type_noun(uint32_t type) {
    switch (type) {
    case DLC_OPT_INT:
    case DLC_OPT_INTS:
        return "a whole number";
    case DLC_OPT_BYTES:
        return "a size such as 65536, 64K, 16M or 2G";
    default:
        return "a number";
    }
}

static dlc_status wrong_number(const dlc_option *option, dlc_number is,
                               const char *text, size_t length, char *why,
                               size_t room) {
    char shown[DLC_SHOWN];
    char number[DLC_CONFIG_LINE + 1];
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    if (is == DLC_NUMBER_TOO_BIG)
        snprintf(why, room, "\"%s\" is too large for a number",
                 dlc_show(number, shown));
    else
        snprintf(why, room, "\"%s\" is not %s", dlc_show(number, shown),
                 type_noun(option->type));
    return DLC_ERR_CONFIG;
}

static dlc_status out_of_range(const dlc_option *option, const char *text,
                               size_t length, char *why, size_t room) {
    dlc_text range = {0};
    dlc_option_range(option, &range);
    snprintf(why, room, "%.*s is out of range: %s", (int)(length < 60 ? length : 60),
             text, dlc_text_string(&range));
    int failed = range.failed;
    dlc_text_free(&range);
    return failed ? DLC_ERR_NOMEM : DLC_ERR_CONFIG;
}

/* Compares as long double, which holds every int64_t. */
static dlc_status parse_int(const dlc_option *option, const char *text, size_t length,
                            int64_t *value, char *why, size_t room) {
    int64_t number = 0;
    dlc_number is = option->type == DLC_OPT_BYTES
                        ? dlc_parse_bytes(text, length, &number)
                        : dlc_parse_int(text, length, &number);
    if (is != DLC_NUMBER)
        return wrong_number(option, is, text, length, why, room);
    if ((long double)number < (long double)option->min ||
        (long double)number > (long double)option->max)
        return out_of_range(option, text, length, why, room);
    *value = number;
    return DLC_OK;
}

static dlc_status parse_float(const dlc_option *option, const char *text, size_t length,
                              double *value, char *why, size_t room) {
    double number = 0;
    dlc_number is = dlc_parse_float(text, length, &number);
    if (is != DLC_NUMBER)
        return wrong_number(option, is, text, length, why, room);
    if (!(number >= option->min && number <= option->max))
        return out_of_range(option, text, length, why, room);
    *value = number;
    return DLC_OK;
}

static dlc_status parse_bool(const char *text, int64_t *value, char *why, size_t room) {
    static const char *const names[] = {"false", "true", "no", "yes",
                                        "off",   "on",   "0",  "1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0) {
            *value = (int64_t)(i & 1);
            return DLC_OK;
        }
    char shown[DLC_SHOWN];
    const char *nearest = dlc_nearest(text, names, 6);
    snprintf(why, room, "\"%s\" is neither true nor false%s%s%s", dlc_show(text, shown),
             nearest ? "; did you mean " : "", nearest ? nearest : "",
             nearest ? "?" : "");
    return DLC_ERR_CONFIG;
}

static dlc_status wrong_choice(const char *choices, const char *text, char *why,
                               size_t room) {
    enum { MAX_SHOWN = 64 };
    const char *names[MAX_SHOWN];
    size_t count = 0, length;
    char *copy = dlc_strdup(choices);
    if (!copy)
        return DLC_ERR_NOMEM;
    for (const char *at; count < MAX_SHOWN && (at = dlc_choice(copy, count, &length));)
        names[count++] = at;
    for (char *bar = copy; (bar = strchr(bar, '|')); bar++)
        *bar = '\0';
    char shown[DLC_SHOWN];
    const char *nearest = dlc_nearest(text, names, count);
    if (nearest)
        snprintf(why, room, "\"%s\" is not one of %s; did you mean %s?",
                 dlc_show(text, shown), choices, nearest);
    else
        snprintf(why, room, "\"%s\" is not one of %s", dlc_show(text, shown), choices);
    dlc_free(copy);
    return DLC_ERR_CONFIG;
}

static dlc_status parse_choice(const dlc_option *option, const char *text, char *why,
                               size_t room) {
    size_t length;
    const char *at;
    for (size_t i = 0; (at = dlc_choice(option->choices, i, &length)); i++)
        if (strlen(text) == length && memcmp(text, at, length) == 0)
            return DLC_OK;
    return wrong_choice(option->choices, text, why, room);
}

static dlc_status copy_path(const char *folder, const char *text, char **value) {
    *value = dlc_format("%s%s", *text == '/' ? "" : folder, text);
    return *value ? DLC_OK : DLC_ERR_NOMEM;
}

/* The next part of a list, without blanks; moves `at` after its comma, or to NULL. */
static const char *next_part(const char **at, size_t *length) {
    const char *part = *at, *comma = strchr(part, ',');
    const char *end = comma ? comma : part + strlen(part);
    *at = comma ? comma + 1 : NULL;
    while (part < end && (*part == ' ' || *part == '\t'))
        part++;
    while (part < end && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *length = (size_t)(end - part);
    return part;
}

static dlc_status parse_value_list(const dlc_option *option, const char *text,
                                   dlc_option_value *value, char *why, size_t room) {
    size_t most = 1, count = 0;
    for (const char *c = text; *c; c++)
        most += *c == ',';
    int whole = option->type == DLC_OPT_INTS;
    void *list = dlc_alloc(most, whole ? sizeof(int64_t) : sizeof(double));
    if (!list)
        return DLC_ERR_NOMEM;
    dlc_status rc = DLC_OK;
    for (const char *at = text; at && rc == DLC_OK; count++) {
        size_t length;
        const char *part = next_part(&at, &length);
        rc = whole
                 ? parse_int(option, part, length, (int64_t *)list + count, why, room)
                 : parse_float(option, part, length, (double *)list + count, why, room);
    }
    if (rc != DLC_OK) {
        dlc_free(list);
        return rc;
    }
    value->list.count = count;
    value->list.memory = list;
    return DLC_OK;
}

static dlc_status check_filler(const char *text, char *why, size_t room) {
    dlc_filler filler;
    dlc_status rc = dlc_filler_parse(text, &filler);
    if (rc != DLC_OK)
        snprintf(why, room, "%s", dlc_detail());
    return rc;
}

dlc_status dlc_value_parse(const dlc_option *option, const char *text,
                           const char *folder, dlc_option_value *value, char *why,
                           size_t room) {
    dlc_option_value parsed = {0};
    dlc_status rc = DLC_OK;
    size_t length = strlen(text);
    if (length > DLC_CONFIG_LINE) {
        snprintf(why, room, "longer than %d bytes", DLC_CONFIG_LINE);
        return DLC_ERR_CONFIG;
    }
    switch (option->type) {
    case DLC_OPT_INT:
    case DLC_OPT_BYTES:
        rc = parse_int(option, text, length, &parsed.i, why, room);
        break;
    case DLC_OPT_FLOAT:
        rc = parse_float(option, text, length, &parsed.f, why, room);
        break;
    case DLC_OPT_BOOL:
        rc = parse_bool(text, &parsed.i, why, room);
        break;
    case DLC_OPT_INTS:
    case DLC_OPT_FLOATS:
        rc = parse_value_list(option, text, &parsed, why, room);
        break;
    case DLC_OPT_CHOICE:
        rc = parse_choice(option, text, why, room);
        break;
    case DLC_OPT_FILLER:
        rc = check_filler(text, why, room);
        break;
    case DLC_OPT_PATH:
        if (length == 0) {
            snprintf(why, room, "an empty path");
            rc = DLC_ERR_CONFIG;
        }
        break;
    default:
        break;
    }
    if (rc == DLC_OK && dlc_type_is_text(option->type))
        rc = copy_path(option->type == DLC_OPT_PATH ? folder : "", text, &parsed.s);
    if (rc == DLC_OK)
        *value = parsed;
    return rc;
}

int dlc_type_is_text(uint32_t type) {
    return type == DLC_OPT_STRING || type == DLC_OPT_CHOICE || type == DLC_OPT_PATH ||
           type == DLC_OPT_FILLER;
}

void dlc_value_free(const dlc_option *option, dlc_option_value *value) {
    if (dlc_type_is_text(option->type))
        dlc_free(value->s);
    else if (option->type == DLC_OPT_INTS || option->type == DLC_OPT_FLOATS)
        dlc_free(value->list.memory);
    *value = (dlc_option_value){0};
}
