/* Suggests what an unknown name may mean: a synonym of other frameworks, or a typo. */
#ifndef DLC_BASE_SUGGEST_H
#define DLC_BASE_SUGGEST_H

#include <stddef.h>

#include "base/text.h"

/* Names that other frameworks use for something that has another name here, or does not
 * exist: a row of the table in synonyms.c. */
typedef struct dlc_synonym {
    /* Their names, separated by blanks; in lower case, without '_' and '-'. */
    const char *words;
    /* The names here, separated by blanks: the first one that is valid at the place in
     * question is meant. Empty: there is none. */
    const char *names;
    /* What to say where none of `names` is valid: where the first of them is, as in "in
     * [solver]", or a part of a sentence that says it otherwise. Empty: nothing. */
    const char *advice;
    const char *end; /* of the row in the table */
    char line[240];  /* what the columns point to */
} dlc_synonym;

/* Reads the next row, or with {0} the first. False at the end. */
int dlc_synonym_next(dlc_synonym *row);

/* The candidate that is the same name except for case, '_' and '-', or that is a
 * synonym of it ("Conv2d", "torch.nn.Linear"); NULL if there is none. */
const char *dlc_nearest_synonym(const char *name, const char *const *candidates,
                                size_t count);

/* As dlc_nearest_synonym, or else the candidate with the smallest edit distance
 * (Damerau-Levenshtein). NULL if none is near enough. */
const char *dlc_nearest(const char *name, const char *const *candidates, size_t count);

/* Appends `before` and the advice of the table for a name: "that is `learning_rate` in
 * [solver]". False, and nothing is appended, if there is none. */
int dlc_advise(dlc_text *text, const char *before, const char *name);

/* Appends "; did you mean x?" for a synonym, or "; " and the advice, or "; did you mean
 * x?" for a typo. Appends nothing if none applies. */
void dlc_suggest(dlc_text *text, const char *name, const char *const *candidates,
                 size_t count);

#endif
