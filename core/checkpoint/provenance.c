/* Asks the dynamic loader and /proc where a run comes from. */
#include "checkpoint/provenance.h"

#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/read.h"

/* ---- What is loaded ---------------------------------------------------------- */

typedef struct loaded_files {
    const dlc_registry *registry; /* NULL: libraries, not plugins */
    dlc_text *text;
} loaded_files;

static void add_line(dlc_text *text, const char *first, const char *second) {
    dlc_text_add(text, "%s%s%s%s", text->length ? "\n" : "", first, second ? " " : "",
                 second ? second : "");
}

static void add_plugin(const loaded_files *files, const char *path) {
    const dlc_plugin_entry *plugin;
    for (size_t i = 0; (plugin = dlc_registry_plugin(files->registry, i)); i++)
        if (plugin->version && strcmp(plugin->path, path) == 0)
            add_line(files->text, plugin->name, plugin->version);
}

static int add_file(struct dl_phdr_info *info, size_t size, void *context) {
    const loaded_files *files = context;
    char path[PATH_MAX];
    (void)size;
    if (!info->dlpi_name[0] || !realpath(info->dlpi_name, path))
        return 0; /* the program itself, or the kernel's own */
    const char *slash = strrchr(path, '/');
    if (files->registry)
        add_plugin(files, path);
    else if (slash && strncmp(slash + 1, "lib", 3) == 0)
        add_line(files->text, slash + 1, NULL);
    return 0;
}

void dlc_provenance_plugins(const dlc_registry *registry, dlc_text *text) {
    loaded_files files = {registry, text};
    (void)dl_iterate_phdr(add_file, &files);
}

void dlc_provenance_libraries(dlc_text *text) {
    loaded_files files = {NULL, text};
    (void)dl_iterate_phdr(add_file, &files);
}

/* ---- Command and paths ------------------------------------------------------- */

static int is_plain(const char *word) {
    return *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_-./=,:+@%")];
}

/* Other programs read metadata as UTF-8, which a command line need not be. */
static void add_byte(dlc_text *text, char byte) {
    if (byte == '\'')
        dlc_text_add(text, "'\\''");
    else if ((unsigned char)byte < ' ' || (unsigned char)byte > '~')
        dlc_text_add(text, "?");
    else
        dlc_text_append(text, &byte, 1);
}

static void add_word(dlc_text *text, const char *word) {
    if (text->length)
        dlc_text_add(text, " ");
    if (is_plain(word)) {
        dlc_text_add(text, "%s", word);
        return;
    }
    dlc_text_add(text, "'");
    for (; *word; word++)
        add_byte(text, *word);
    dlc_text_add(text, "'");
}

void dlc_provenance_command(dlc_text *text) {
    enum { MOST = 65536 };
    char words[MOST];
    size_t bytes = dlc_read_text("/proc/self/cmdline", words, sizeof words);
    for (size_t at = 0; at < bytes; at += strlen(words + at) + 1)
        add_word(text, words + at);
}

void dlc_provenance_paths(const dlc_settings *settings, dlc_text *text) {
    for (size_t i = 0; i < dlc_settings_count(settings); i++) {
        dlc_setting setting = dlc_settings_at(settings, i);
        char path[PATH_MAX];
        if (setting.option->type != DLC_OPT_PATH || !setting.text)
            continue;
        const char *given = dlc_settings_get_string(settings, setting.name);
        dlc_text_add(text, "%s%s = %s", text->length ? "\n" : "", setting.name,
                     given && realpath(given, path) ? path : setting.text);
    }
}
