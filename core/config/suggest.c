/* Finds the name that was meant, by a table of synonyms and by edit distance. */
#include "config/suggest.h"

#include <string.h>

#define NAME_MAX_COMPARED 63

static size_t min3(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of
 * neighbours. A distance of `most` or more may be any such number: then most names are
 * done after a few characters. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb,
                            size_t most) {
    size_t rows[3][NAME_MAX_COMPARED + 2];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    size_t least = 0;
    for (size_t j = 0; j <= nb; j++)
        last[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t least_before = least;
        row[0] = least = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t differs = a[i - 1] != b[j - 1];
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + differs);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
            least = row[j] < least ? row[j] : least;
        }
        if (least >= most && least_before >= most)
            return most;
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[nb];
}

static const char *nearest_spelling(const char *name, const char *const *candidates,
                                    size_t count) {
    size_t length = strlen(name);
    if (length > NAME_MAX_COMPARED)
        return NULL;
    /* Up to one typo in three characters; more is a different word. */
    size_t best = length / 3 + 2;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(candidates[i]);
        size_t more = n > length ? n - length : length - n;
        if (n > NAME_MAX_COMPARED || more >= best)
            continue;
        size_t distance = edit_distance(name, length, candidates[i], n, best);
        if (distance < best && distance < n) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

/* ---- Synonyms ---- */

/* Normalizes a name: lower case, without '_' and '-', and without the arguments of
 * "Conv2d(3)". */
static void normalize(const char *name, char normal[NAME_MAX_COMPARED + 1]) {
    size_t length = 0;
    for (; *name && *name != '(' && length < NAME_MAX_COMPARED; name++)
        if (*name >= 'A' && *name <= 'Z')
            normal[length++] = (char)(*name - 'A' + 'a');
        else if (*name != '_' && *name != '-')
            normal[length++] = *name;
    normal[length] = '\0';
}

/* Whether `word` is one of the words of `list`. */
static int holds(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (n == length && memcmp(at, word, n) == 0)
            return 1;
        at += n;
    }
    return 0;
}

/* The first word of `names` that is a candidate. */
static const char *find_candidate(const char *names, const char *const *candidates,
                                  size_t count) {
    for (const char *at = names; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        for (size_t i = 0; i < count; i++)
            if (strlen(candidates[i]) == n && memcmp(candidates[i], at, n) == 0)
                return candidates[i];
        at += n;
    }
    return NULL;
}

static const char *find_synonym(const char *normal, const char *const *candidates,
                                size_t count) {
    char candidate[NAME_MAX_COMPARED + 1];
    for (size_t i = 0; i < count && *normal; i++) {
        normalize(candidates[i], candidate);
        if (strcmp(normal, candidate) == 0)
            return candidates[i];
    }
    for (dlc_synonym row = {0}; dlc_synonym_next(&row);) {
        const char *found = holds(row.words, normal)
                                ? find_candidate(row.names, candidates, count)
                                : NULL;
        if (found)
            return found;
    }
    return NULL;
}

/* "Conv2d" of "torch.nn.Conv2d"; NULL without a dot. */
static const char *last_component(const char *normal) {
    const char *dot = strrchr(normal, '.');
    return dot && dot[1] ? dot + 1 : NULL;
}

const char *dlc_nearest_synonym(const char *name, const char *const *candidates,
                                size_t count) {
    char normal[NAME_MAX_COMPARED + 1];
    if (strlen(name) > NAME_MAX_COMPARED)
        return NULL;
    normalize(name, normal);
    const char *found = find_synonym(normal, candidates, count);
    const char *last = last_component(normal);
    return found || !last ? found : find_synonym(last, candidates, count);
}

const char *dlc_nearest(const char *name, const char *const *candidates, size_t count) {
    const char *found = dlc_nearest_synonym(name, candidates, count);
    return found ? found : nearest_spelling(name, candidates, count);
}

int dlc_advise(dlc_text *text, const char *before, const char *name) {
    char normal[NAME_MAX_COMPARED + 1];
    if (strlen(name) > NAME_MAX_COMPARED)
        return 0;
    normalize(name, normal);
    for (const char *word = normal; word; word = last_component(word))
        for (dlc_synonym row = {0}; dlc_synonym_next(&row);) {
            if (!*row.advice || !holds(row.words, word))
                continue;
            dlc_text_add(text, "%s", before);
            if (strncmp(row.advice, "in ", 3) == 0 ||
                strncmp(row.advice, "of ", 3) == 0)
                dlc_text_add(text, "that is `%.*s` ", (int)strcspn(row.names, " "),
                             row.names);
            dlc_text_add(text, "%s", row.advice);
            return 1;
        }
    return 0;
}

void dlc_suggest(dlc_text *text, const char *name, const char *const *candidates,
                 size_t count) {
    const char *found = dlc_nearest_synonym(name, candidates, count);
    if (!found && dlc_advise(text, "; ", name))
        return;
    if (!found)
        found = nearest_spelling(name, candidates, count);
    if (found)
        dlc_text_add(text, "; did you mean %s?", found);
}
