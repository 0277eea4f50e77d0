/* Creates the folder of a new plugin: `dlcore plugin new`.
 *
 * The files under tools/templates/common and tools/templates/<kind> are copied, with
 * NAME in their paths and the words between two @ in their texts replaced. They are
 * written into a temporary folder, which is then renamed, so that nothing is left half
 * written. */
#include "plugin_new.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "config/suggest.h"
#include "plugin/registry.h"
#include "templates.h"

enum { NAME_MOST = 40 }; /* kind and name together name packages and files */

/* A word between two @, and its replacement. */
typedef struct word {
    const char *word, *value;
} word;

static const char *const kinds[] = {"device",      "transport", "layer",  "solver",
                                    "consistency", "data",      "decoder"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static dlc_status check_kind(const char *kind) {
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kind, kinds[i]) == 0)
            return DLC_OK;
    const char *nearest = dlc_nearest(kind, kinds, KINDS);
    return dlc_fail(DLC_ERR_CONFIG,
                    "unknown kind of plugin '%s'%s%s%s; the kinds are device, "
                    "transport, layer, solver, consistency, data and decoder",
                    kind, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                    nearest ? "'?" : "");
}

static dlc_status check_name(const char *name) {
    size_t length = strlen(name);
    if (length < 1 || length > NAME_MOST || name[0] < 'a' || name[0] > 'z' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != length)
        return dlc_fail(DLC_ERR_CONFIG,
                        "'%s' is not a valid plugin name: use 1 to %d of a-z, 0-9, '-' "
                        "and '_', starting with a-z",
                        name, NAME_MOST);
    return DLC_OK;
}

/* A second plugin, or a second feature of a kind, with one name is never used: the one
 * that is found first is. */
static dlc_status check_free(const dlc_registry *registry, const char *kind,
                             const char *name) {
    const dlc_plugin_entry *plugin;
    const dlc_feature_entry *feature;
    for (size_t i = 0; (feature = dlc_registry_feature(registry, 0, i)); i++)
        if (strcmp(feature->name, name) == 0 &&
            strcmp(dlc_kind_text((dlc_kind)feature->kind), kind) == 0)
            return dlc_fail(
                DLC_ERR_CONFIG,
                "there is a %s '%s' already, by plugin %s (%s), which would "
                "be used instead; take another name",
                kind, name, feature->plugin->name, feature->plugin->path);
    for (size_t i = 0; (plugin = dlc_registry_plugin(registry, i)); i++)
        if (strcmp(plugin->name, name) == 0)
            return dlc_fail(DLC_ERR_CONFIG,
                            "there is a plugin '%s' already (%s), which would be used "
                            "instead; take another name",
                            name, plugin->path);
    return DLC_OK;
}

static dlc_status check_unused(const char *kind, const char *name) {
    dlc_registry *registry = NULL;
    DLC_TRY(dlc_registry_open(&registry));
    dlc_status rc = check_free(registry, kind, name);
    dlc_registry_close(registry);
    return rc;
}

/* ---- Texts ----------------------------------------------------------------------- */

/* The replacement of the word between an @ and the next; NULL if it is not one of ours.
 */
static const word *find_word(const word *words, const char *at) {
    for (; words->word; words++) {
        size_t length = strlen(words->word);
        if (strncmp(at, words->word, length) == 0 && at[length] == '@')
            return words;
    }
    return NULL;
}

static void fill_in(const char *text, const word *words, dlc_text *out) {
    while (*text) {
        size_t plain = strcspn(text, "@");
        dlc_text_append(out, text, plain);
        text += plain;
        if (!*text)
            break;
        const word *found = find_word(words, text + 1);
        if (found) {
            dlc_text_add(out, "%s", found->value);
            text += strlen(found->word) + 2;
        } else {
            dlc_text_append(out, text++, 1);
        }
    }
}

/* "layer/tests/NAME.ini" -> "FOLDER/tests/softsign.ini". NULL: out of memory. */
static char *place_of(const char *folder, const char *path, const char *name) {
    dlc_text place = {0};
    path = strchr(path, '/') + 1;
    dlc_text_add(&place, "%s/", folder);
    for (const char *at; (at = strstr(path, "NAME")); path = at + strlen("NAME")) {
        dlc_text_append(&place, path, (size_t)(at - path));
        dlc_text_add(&place, "%s", name);
    }
    dlc_text_add(&place, "%s", path);
    return place.failed ? NULL : place.bytes;
}

/* ---- Files ----------------------------------------------------------------------- */

static dlc_status cannot_write(const char *path) {
    return dlc_fail(DLC_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

/* Makes the folders between `root` and the file. */
static dlc_status make_folders(char *path, size_t root) {
    for (char *slash = path + root; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        int failed = mkdir(path, 0777) != 0 && errno != EEXIST;
        if (failed)
            (void)cannot_write(path);
        *slash = '/';
        if (failed)
            return DLC_ERR_IO;
    }
    return DLC_OK;
}

static dlc_status write_file(const char *path, const dlc_text *text) {
    const char *bytes = dlc_text_string(text);
    int mode = strncmp(bytes, "#!", 2) == 0 ? 0777 : 0666;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        dlc_status rc = cannot_write(path);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    size_t put = fwrite(bytes, 1, text->length, file);
    if (fclose(file) != 0 || put != text->length)
        return cannot_write(path);
    return DLC_OK;
}

static dlc_status write_template(const char *root, const dlc_template_file *file,
                                 const char *name, const word *words) {
    dlc_text text = {0};
    char *path = place_of(root, file->path, name);
    fill_in(file->text, words, &text);
    dlc_status rc = path ? dlc_text_status(&text) : DLC_ERR_NOMEM;
    if (rc == DLC_OK)
        rc = make_folders(path, strlen(root) + 1);
    if (rc == DLC_OK)
        rc = write_file(path, &text);
    dlc_text_free(&text);
    dlc_free(path);
    return rc;
}

static int belongs(const dlc_template_file *file, const char *kind) {
    size_t length = strlen(kind);
    return strncmp(file->path, "common/", 7) == 0 ||
           (strncmp(file->path, kind, length) == 0 && file->path[length] == '/');
}

static dlc_status write_all(const char *root, const char *kind, const char *name) {
    char date[64], year[16];
    time_t now = time(NULL);
    struct tm utc;
    if (!gmtime_r(&now, &utc) ||
        strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S +0000", &utc) == 0)
        return dlc_fail(DLC_ERR_INTERNAL, "the system clock has no valid date");
    (void)snprintf(year, sizeof year, "%d", utc.tm_year + 1900);
    char package[NAME_MOST + 1]; /* Debian allows no '_' in names of packages */
    (void)snprintf(package, sizeof package, "%s", name);
    for (char *at = package; *at; at++)
        *at = (char)(*at == '_' ? '-' : *at);
    const word words[] = {{"KIND", kind},
                          {"NAME", name},
                          {"DATE", date},
                          {"YEAR", year},
                          {"PACKAGE", package},
                          {"VERSION", DLC_VERSION},
                          {0}};
    for (const dlc_template_file *file = dlc_template_files; file->path; file++)
        if (belongs(file, kind))
            DLC_TRY(write_template(root, file, name, words));
    return DLC_OK;
}

/* ---- The folder ------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *info, int type,
                      struct FTW *where) {
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

static dlc_status fail_exists(const char *folder) {
    return dlc_fail(DLC_ERR_CONFIG,
                    "%s already exists; use another name, or another folder with "
                    "--dir",
                    folder);
}

/* Never replaces anything, not even an empty folder, which rename() would replace. */
static dlc_status rename_new(const char *from, const char *to) {
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return DLC_OK;
    if (errno == EEXIST)
        return fail_exists(to);
    /* This file system has no RENAME_NOREPLACE; existence was checked before. */
    if (errno == EINVAL && rename(from, to) == 0)
        return DLC_OK;
    return cannot_write(to);
}

static dlc_status make_folder(const char *folder, const char *kind, const char *name) {
    struct stat there;
    mode_t mask = umask(0);
    umask(mask);
    if (lstat(folder, &there) == 0)
        return fail_exists(folder);
    char *part = dlc_format("%s.XXXXXX", folder);
    if (!part)
        return DLC_ERR_NOMEM;
    dlc_status rc = DLC_OK;
    if (!mkdtemp(part)) {
        rc = cannot_write(folder);
        goto out;
    }
    rc = write_all(part, kind, name);
    if (rc == DLC_OK && chmod(part, 0777 & ~mask) != 0)
        rc = cannot_write(folder);
    if (rc == DLC_OK)
        rc = rename_new(part, folder);
    if (rc != DLC_OK)
        (void)nftw(part, remove_one, 16, FTW_DEPTH | FTW_PHYS);
out:
    dlc_free(part);
    return rc;
}

/* What tells CMake where dlcore is, if this command is not where CMake looks anyway: a
 * folder of a clone, or of an installation. "" otherwise. */
static void find_option(char *option, size_t room) {
    static const char *const usual[] = {"/usr", "/usr/local"};
    char path[PATH_MAX], config[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    option[0] = '\0';
    for (int i = 0; i < 2 && length > 0; i++) { /* PREFIX/bin/dlcore */
        path[length] = '\0';
        char *slash = strrchr(path, '/');
        length = slash ? slash - path : 0;
    }
    if (length <= 0)
        return;
    path[length] = '\0';
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(path, usual[i]) == 0)
            return;
    (void)snprintf(config, sizeof config, "%s/dlcoreConfig.cmake", path);
    (void)snprintf(option, room, " -D %s='%s'",
                   access(config, R_OK) == 0 ? "dlcore_DIR" : "CMAKE_PREFIX_PATH",
                   path);
}

dlc_status dlc_plugin_new(const char *kind, const char *name, const char *folder) {
    DLC_TRY(check_kind(kind));
    DLC_TRY(check_name(name));
    DLC_TRY(check_unused(kind, name));
    char *made = folder ? dlc_strdup(folder) : dlc_format("%s-%s", kind, name);
    if (!made)
        return DLC_ERR_NOMEM;
    for (size_t n = strlen(made); n > 1 && made[n - 1] == '/'; n--)
        made[n - 1] = '\0';
    dlc_status rc = made[0] ? make_folder(made, kind, name)
                            : dlc_fail(DLC_ERR_CONFIG, "--dir is empty");
    char option[PATH_MAX + 32];
    find_option(option, sizeof option);
    if (rc == DLC_OK)
        printf("%s: a plugin of kind %s. Build and test it:\n\n"
               "    cmake -S %s -B %s/build%s\n"
               "    cmake --build %s/build\n"
               "    ctest --test-dir %s/build --output-on-failure\n\n"
               "%s/README.md describes the next steps.\n",
               made, kind, made, made, option, made, made, made);
    dlc_free(made);
    return rc;
}
