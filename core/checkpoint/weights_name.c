/* Renames tensors by rules "FROM=TO", in which one '*' stands for any text. */
#include "checkpoint/weights_name.h"

#include <string.h>

#include "base/memory.h"

/* A pattern: the text before its '*' and after it; `has_star` 0: only `before`. */
typedef struct pattern {
    const char *before, *after;
    size_t before_length, after_length;
    int has_star;
} pattern;

static pattern parse(const char *text, size_t length) {
    const char *star = memchr(text, '*', length);
    pattern made = {.before = text, .before_length = length};
    if (star) {
        made.has_star = 1;
        made.before_length = (size_t)(star - text);
        made.after = star + 1;
        made.after_length = length - made.before_length - 1;
    }
    return made;
}

static int has_two_stars(const pattern *p) {
    return p->has_star && memchr(p->after, '*', p->after_length);
}

static pattern from_of(const char *map) {
    return parse(map, (size_t)(strchr(map, '=') - map));
}

static pattern to_of(const char *map) {
    const char *to = strchr(map, '=') + 1;
    return parse(to, strlen(to));
}

dlc_status dlc_weights_check_map(const char *map) {
    const char *equals = strchr(map, '=');
    if (!equals || equals == map || !equals[1] || strchr(equals + 1, '='))
        return dlc_fail(DLC_ERR_CONFIG,
                        "'%s' renames no tensor: write FROM=TO, such as "
                        "'fc.weight=ip1.weight' or 'backbone.*=*'",
                        map);
    pattern from = from_of(map), to = to_of(map);
    if (has_two_stars(&from) || has_two_stars(&to))
        return dlc_fail(DLC_ERR_CONFIG,
                        "'%s' has more than one '*' on one side: only one can stand "
                        "for a part of the name",
                        map);
    if (to.has_star && !from.has_star)
        return dlc_fail(DLC_ERR_CONFIG,
                        "'%s': the '*' after the '=' stands for what a '*' before it "
                        "has matched, and there is none",
                        map);
    return DLC_OK;
}

int dlc_weights_rename(const char *map, char **name) {
    pattern from = from_of(map), to = to_of(map);
    size_t length = strlen(*name), least = from.before_length + from.after_length;
    if (from.has_star ? length < least : length != least)
        return 0;
    if (strncmp(*name, from.before, from.before_length) != 0 ||
        (from.has_star && strncmp(*name + length - from.after_length, from.after,
                                  from.after_length) != 0))
        return 0;
    char *renamed = dlc_format("%.*s%.*s%.*s", (int)to.before_length, to.before,
                               to.has_star ? (int)(length - least) : 0,
                               *name + from.before_length, (int)to.after_length,
                               to.has_star ? to.after : "");
    dlc_free(*name);
    *name = renamed;
    return 1;
}
