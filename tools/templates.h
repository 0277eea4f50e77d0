/* The files that `dlcore plugin new` writes, as they lie under tools/templates: put
 * into the command when it is built (cmake/embed.cmake), so that they are always
 * there and always of its version. */
#ifndef DLC_TOOLS_TEMPLATES_H
#define DLC_TOOLS_TEMPLATES_H

#include <stddef.h>

typedef struct dlc_template_file {
    const char *path; /* "layer/NAME.c" */
    const char *text; /* ends with a NUL beyond `length` */
    size_t length;
} dlc_template_file;

extern const dlc_template_file dlc_template_files[]; /* ends with a NULL path */

#endif
