/* The files that `dlcore plugin new` writes, from tools/templates. They are
 * built into the command (cmake/embed.cmake), so they always exist and match its
 * version. */
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
