/* The mistakes that `dlcore check --json` lists, kept until the document is written. */
#ifndef DLCORE_CHECK_MISTAKES_H
#define DLCORE_CHECK_MISTAKES_H

#include "base/json.h"
#include "config/config.h"

/* Start with {0}; release with check_mistakes_free. */
typedef struct check_mistakes {
    dlc_mistake *list; /* own, with their texts */
    size_t count;
    int failed; /* memory ran out */
} check_mistakes;

/* dlc_setup_args.tell, with the list as its context. */
void check_mistakes_keep(void *context, const dlc_mistake *mistake);
/* Ends with this failure (its detail sentence), unless the list says why already. */
void check_mistakes_end(check_mistakes *mistakes, dlc_status status);
/* "mistakes": [{file, line, section, key, severity, message}, ...] */
void check_mistakes_write(const check_mistakes *mistakes, dlc_json *json);
void check_mistakes_free(check_mistakes *mistakes);

#endif
