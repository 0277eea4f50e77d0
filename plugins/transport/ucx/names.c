/* Names of the transports that UCX uses. It has an API for them only since 1.14, and
 * not for a context, so this parses what UCX prints for people:
 *
 *     #      resource 1  :  md 1  dev 1  flags -- tcp/lo
 *     #                 lane[0]:  3:sysv/memory.0 md[2]           -> md[2]/sysv ...
 *
 * With a version that prints something else the names are missing, and nothing more.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ucx.h"

/* Does it reach processes of this machine only? */
static int is_local(const char *name) {
    static const char *const local[] = {
        "self/",  "posix/",     "sysv/",     "cma/",      "knem/",      "xpmem/",
        "tcp/lo", "cuda_copy/", "cuda_ipc/", "gdr_copy/", "rocm_copy/", "rocm_ipc/"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        size_t n = strlen(local[i]);
        if (strncmp(name, local[i], n) == 0 &&
            (local[i][n - 1] == '/' || name[n] == '\0'))
            return 1;
    }
    return 0;
}

/* Is it in the list already? */
static int has(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = strstr(list, name); at; at = strstr(at + n, name))
        if ((at == list || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0'))
            return 1;
    return 0;
}

static void add(const char *name, char *text, size_t bytes) {
    size_t used = strlen(text);
    if (has(text, name) || used + strlen(name) + 3 > bytes)
        return;
    (void)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
}

/* Cuts the path number that UCX appends to the device ("self/memory0.0"). */
static void cut_path(char *name) {
    char *dot = strrchr(name, '.');
    if (dot && isdigit((unsigned char)dot[1]) &&
        strspn(dot + 1, "0123456789") == strlen(dot + 1))
        *dot = '\0';
}

static void read_resource(char *line, int external_only, char *text, size_t bytes) {
    char *name = strrchr(line, ' ');
    if (!strstr(line, " resource ") || !name || !strchr(name, '/'))
        return;
    name++;
    if (!external_only || !is_local(name))
        add(name, text, bytes);
}

static void read_lane(char *line, char *text, size_t bytes) {
    char *name = strstr(line, "lane["), *end;
    if (!name || !(name = strchr(name, ':')) || !(name = strchr(name + 1, ':')))
        return;
    name++;
    end = strchr(name, ' ');
    if (!end)
        return;
    *end = '\0';
    cut_path(name);
    if (strchr(name, '/'))
        add(name, text, bytes);
}

/* Returns the next line of a text, or NULL, and terminates it. */
static char *next_line(char **rest) {
    char *line = *rest;
    if (!line || *line == '\0')
        return NULL;
    size_t n = strcspn(line, "\n");
    *rest = line + n + (line[n] == '\n');
    line[n] = '\0';
    return line;
}

void names_of_context(ucp_context_h context, int external_only, char *text,
                      size_t bytes) {
    char *printed = NULL, *rest;
    size_t size = 0;
    FILE *stream = open_memstream(&printed, &size);

    text[0] = '\0';
    if (!stream)
        return;
    ucx.context_print_info(context, stream);
    if (fclose(stream) == 0) {
        rest = printed;
        for (char *line; (line = next_line(&rest)) != NULL;)
            read_resource(line, external_only, text, bytes);
    }
    free(printed);
}

void names_of_ep(ucp_ep_h ep, char *text, size_t bytes) {
    char *printed = NULL, *rest;
    size_t size = 0;
    FILE *stream = open_memstream(&printed, &size);

    text[0] = '\0';
    if (!stream)
        return;
    ucx.ep_print_info(ep, stream);
    if (fclose(stream) == 0) {
        rest = printed;
        for (char *line; (line = next_line(&rest)) != NULL;)
            read_lane(line, text, bytes);
    }
    free(printed);
}
