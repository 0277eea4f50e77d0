/* Suggests what an unknown name may mean: a synonym of other frameworks, or a typo. */
#ifndef DLC_BASE_SUGGEST_H
#define DLC_BASE_SUGGEST_H

#include <stddef.h>

#include "base/text.h"

/* Names that other frameworks use for something that has another name here, or does not
 * exist. */
typedef struct dlc_synonym {
    /* Their names, separated by blanks; in lower case, without '_' and '-'. */
    const char *words;
    /* The names here, separated by blanks: the first one that is valid at the place in
     * question is meant. NULL: there is none. */
    const char *names;
    /* A part of a sentence that says where to find it, or what to use instead, for
     * places where none of `names` is valid. NULL: none. */
    const char *advice;
} dlc_synonym;

/* The table (synonyms.c); the last row has no words. */
extern const dlc_synonym dlc_synonyms[];

/* The candidate that is the same name except for case, '_' and '-', or that is a
 * synonym of it ("Conv2d", "torch.nn.Linear"); NULL if there is none. */
const char *dlc_nearest_synonym(const char *name, const char *const *candidates,
                                size_t count);

/* As dlc_nearest_synonym, or else the candidate with the smallest edit distance
 * (Damerau-Levenshtein). NULL if none is near enough. */
const char *dlc_nearest(const char *name, const char *const *candidates, size_t count);

/* The advice of the table for a name: "that is `learning_rate` in [solver]". NULL:
 * none. */
const char *dlc_advice(const char *name);

/* Appends "; did you mean x?" for a synonym, or "; " and the advice, or "; did you mean
 * x?" for a typo. Appends nothing if none applies. */
void dlc_suggest(dlc_text *text, const char *name, const char *const *candidates,
                 size_t count);

#endif
