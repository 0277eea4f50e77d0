/* The mistakes that `dlcore check --json` lists: collected while the net is checked,
 * written when the document ends. */
#ifndef DLCORE_CHECK_MISTAKES_H
#define DLCORE_CHECK_MISTAKES_H

#include "base/json.h"
#include "config/config.h"

/* Initialize with {0}; release with check_mistakes_free. */
typedef struct check_mistakes {
    dlc_mistake *list; /* owned, with their texts */
    size_t count;
    int failed; /* memory ran out */
} check_mistakes;

/* dlc_setup_args.tell, with the list as its context. */
void check_mistakes_keep(void *context, const dlc_mistake *mistake);
/* Appends this failure (its detail sentence), unless an error is in the list already.
 */
void check_mistakes_end(check_mistakes *mistakes, dlc_status status);
/* "mistakes": [{file, line, section, key, severity, message}, ...] */
void check_mistakes_write(const check_mistakes *mistakes, dlc_json *json);
void check_mistakes_free(check_mistakes *mistakes);

#endif
