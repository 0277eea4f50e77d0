/* See suggest.h. */
#include "base/suggest.h"

#include <string.h>

#define NAME_MAX_COMPARED 63

static size_t min3(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Insertions, deletions, replacements and swaps of neighbours. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    size_t rows[3][NAME_MAX_COMPARED + 2];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= nb; j++)
        last[j] = j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t differs = a[i - 1] != b[j - 1];
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + differs);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[nb];
}

static const char *nearest_letters(const char *name, const char *const *candidates,
                                   size_t count) {
    size_t length = strlen(name);
    if (length > NAME_MAX_COMPARED)
        return NULL;
    /* One slip in three letters is a slip; more is another word. */
    size_t best = length / 3 + 2;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(candidates[i]);
        if (n > NAME_MAX_COMPARED)
            continue;
        size_t distance = edit_distance(name, length, candidates[i], n);
        if (distance < best && distance < n) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

/* ---- By meaning ---- */

/* In small letters, without '_' and '-', and without what is called: "Conv2d(3)". */
static void make_plain(const char *name, char plain[NAME_MAX_COMPARED + 1]) {
    size_t length = 0;
    for (; *name && *name != '(' && length < NAME_MAX_COMPARED; name++)
        if (*name >= 'A' && *name <= 'Z')
            plain[length++] = (char)(*name - 'A' + 'a');
        else if (*name != '_' && *name != '-')
            plain[length++] = *name;
    plain[length] = '\0';
}

/* Is `word` one of the words of `list`? */
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

/* The first word of `here` that is a candidate. */
static const char *find_here(const char *here, const char *const *candidates,
                             size_t count) {
    for (const char *at = here; at && *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        for (size_t i = 0; i < count; i++)
            if (strlen(candidates[i]) == n && memcmp(candidates[i], at, n) == 0)
                return candidates[i];
        at += n;
    }
    return NULL;
}

static const char *find_meaning(const char *plain, const char *const *candidates,
                                size_t count) {
    char candidate[NAME_MAX_COMPARED + 1];
    for (size_t i = 0; i < count && *plain; i++) {
        make_plain(candidates[i], candidate);
        if (strcmp(plain, candidate) == 0)
            return candidates[i];
    }
    for (const dlc_foreign *row = dlc_foreign_words; row->words; row++) {
        const char *found = holds(row->words, plain)
                                ? find_here(row->here, candidates, count)
                                : NULL;
        if (found)
            return found;
    }
    return NULL;
}

/* "torch.nn.Conv2d" means what "Conv2d" does. */
static const char *behind_modules(const char *plain) {
    const char *dot = strrchr(plain, '.');
    return dot && dot[1] ? dot + 1 : NULL;
}

const char *dlc_nearest_meaning(const char *name, const char *const *candidates,
                                size_t count) {
    char plain[NAME_MAX_COMPARED + 1];
    if (strlen(name) > NAME_MAX_COMPARED)
        return NULL;
    make_plain(name, plain);
    const char *found = find_meaning(plain, candidates, count);
    const char *last = behind_modules(plain);
    return found || !last ? found : find_meaning(last, candidates, count);
}

const char *dlc_nearest(const char *name, const char *const *candidates, size_t count) {
    const char *found = dlc_nearest_meaning(name, candidates, count);
    return found ? found : nearest_letters(name, candidates, count);
}

void dlc_suggest(dlc_text *text, const char *name, const char *const *candidates,
                 size_t count) {
    const char *advice = dlc_advice(name);
    const char *found = dlc_nearest_meaning(name, candidates, count);
    if (!found && !advice)
        found = nearest_letters(name, candidates, count);
    if (found)
        dlc_text_add(text, "; did you mean %s?", found);
    else if (advice)
        dlc_text_add(text, "; %s", advice);
}

const char *dlc_advice(const char *name) {
    char plain[NAME_MAX_COMPARED + 1];
    if (strlen(name) > NAME_MAX_COMPARED)
        return NULL;
    make_plain(name, plain);
    for (const char *word = plain; word; word = behind_modules(word))
        for (const dlc_foreign *row = dlc_foreign_words; row->words; row++)
            if (row->advice && holds(row->words, word))
                return row->advice;
    return NULL;
}
