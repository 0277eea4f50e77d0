/* What was meant by a name that isn't known: by its meaning elsewhere, or by its
 * letters. */
#ifndef DLC_BASE_SUGGEST_H
#define DLC_BASE_SUGGEST_H

#include <stddef.h>

#include "base/text.h"

/* Words that other frameworks have for what is called otherwise here, or isn't there.
 */
typedef struct dlc_foreign {
    /* As said elsewhere, separated by blanks; in small letters, without '_' and '-'. */
    const char *words;
    /* What it is called here, separated by blanks: the first one that can stand where
     * the word was read is meant. NULL: nothing is. */
    const char *here;
    /* Where it is, or what there is instead, for places where none of `here` can stand;
     * part of a sentence. NULL: nothing is known. */
    const char *advice;
} dlc_foreign;

/* Ends with a row without words. */
extern const dlc_foreign dlc_foreign_words[];

/* The candidate that is the same name but for capitals, '_' and '-', or has the meaning
 * of this word elsewhere ("Conv2d", "torch.nn.Linear"); NULL if none has. */
const char *dlc_nearest_meaning(const char *name, const char *const *candidates,
                                size_t count);

/* The same; else, since it may be a slip of the pen, the candidate nearest in letters
 * changed (Damerau-Levenshtein). NULL if none is near enough to be meant. */
const char *dlc_nearest(const char *name, const char *const *candidates, size_t count);

/* Where this word of others has its place, or what there is instead: "the learning rate
 * is `rate` in [solver]". NULL: nothing is known. */
const char *dlc_advice(const char *name);

/* "; did you mean x?" by its meaning; or "; " and the advice; or "; did you mean x?" by
 * its letters. Adds nothing where none of them helps. */
void dlc_suggest(dlc_text *text, const char *name, const char *const *candidates,
                 size_t count);

#endif
