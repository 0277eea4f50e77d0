/* Renames tensors by rules "FROM=TO", in which each '*' stands for any text. */
#include "checkpoint/weights_name.h"

#include <string.h>

#include "base/memory.h"
#include "base/text.h"

enum { STARS_MOST = 4 };

/* The texts that the stars of FROM stand for. */
typedef struct matched {
    const char *text[STARS_MOST];
    size_t length[STARS_MOST];
} matched;

static size_t count_stars(const char *pattern, size_t length) {
    size_t stars = 0;
    for (size_t i = 0; i < length; i++)
        stars += pattern[i] == '*';
    return stars;
}

dlc_status dlc_weights_check_map(const char *map) {
    const char *equals = strchr(map, '=');
    if (!equals || equals == map || !equals[1] || strchr(equals + 1, '='))
        return dlc_fail(DLC_ERR_CONFIG,
                        "'%s' renames no tensor: write FROM=TO, such as "
                        "'fc.weight=ip1.weight' or 'backbone.*=*'",
                        map);
    size_t from = count_stars(map, (size_t)(equals - map));
    size_t to = count_stars(equals + 1, strlen(equals + 1));
    if (from > STARS_MOST)
        return dlc_fail(DLC_ERR_CONFIG, "'%s' has more than %d '*' before the '='", map,
                        STARS_MOST);
    if (to > from)
        return dlc_fail(DLC_ERR_CONFIG,
                        "'%s': each '*' after the '=' stands for what a '*' before it "
                        "has matched, and there are more after it than before it",
                        map);
    return DLC_OK;
}

/* Finds the first `length` bytes of `piece` in a text; NULL: they do not occur. */
static const char *find_piece(const char *text, const char *piece, size_t length) {
    size_t left = strlen(text);
    return left < length ? NULL : length ? memmem(text, left, piece, length) : text;
}

/* Matches the whole name. Every star but the last stands for the shortest text that
 * lets the rest match. */
static int match(const char *pattern, size_t length, const char *name, matched *found) {
    const char *end = pattern + length;
    const char *star = memchr(pattern, '*', length);
    size_t piece = star ? (size_t)(star - pattern) : length;
    if (strncmp(name, pattern, piece) != 0)
        return 0;
    name += piece;
    for (size_t i = 0; star; i++) {
        pattern = star + 1;
        star = memchr(pattern, '*', (size_t)(end - pattern));
        piece = (size_t)((star ? star : end) - pattern);
        const char *next = name;
        if (star)
            next = find_piece(name, pattern, piece);
        else if (strlen(name) >= piece)
            next = name + strlen(name) - piece;
        if (!next || strlen(next) < piece || strncmp(next, pattern, piece) != 0)
            return 0;
        found->text[i] = name;
        found->length[i] = (size_t)(next - name);
        name = next + piece;
    }
    return !*name;
}

int dlc_weights_rename(const char *map, char **name) {
    const char *equals = strchr(map, '=');
    matched found = {{NULL}, {0}};
    if (!match(map, (size_t)(equals - map), *name, &found))
        return 0;
    dlc_text renamed = {0};
    const char *to = equals + 1;
    for (size_t i = 0; *to; i++) {
        size_t piece = strcspn(to, "*");
        dlc_text_append(&renamed, to, piece);
        to += piece;
        if (!*to)
            break;
        dlc_text_append(&renamed, found.text[i], found.length[i]);
        to++;
    }
    char *made = dlc_text_status(&renamed) == DLC_OK
                     ? dlc_strdup(dlc_text_string(&renamed))
                     : NULL;
    dlc_text_free(&renamed);
    dlc_free(*name);
    *name = made;
    return 1;
}

/* ---- PyTorch's names ----------------------------------------------------------- */

int dlc_weights_is_counter(const char *name) {
    static const char counter[] = ".num_batches_tracked";
    size_t length = strlen(name), own = strlen(counter);
    return length > own && strcmp(name + length - own, counter) == 0;
}

char *dlc_weights_batch_norm_name(const char *name) {
    static const char *const names[][2] = {{".weight", ".scale"},
                                           {".running_mean", ".mean"},
                                           {".running_var", ".variance"}};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t own = strlen(names[i][0]);
        if (length > own && strcmp(name + length - own, names[i][0]) == 0)
            return dlc_format("%.*s%s", (int)(length - own), name, names[i][1]);
    }
    return dlc_strdup(name);
}
