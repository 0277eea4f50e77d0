/* Checks that a file is a complete shared object for this machine, opens it with
 * dlopen(), and calls load() with the services of the host. */
#include "plugin/object.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dlcore/layer.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/process_state.h"
#include "base/read.h"
#include "base/status.h"
#include "base/thread.h"
#include "config/config.h"
#include "plugin/cache.h"

/* ---- The image --------------------------------------------------------------------
 */

typedef struct image {
    const char *path;
    int fd;
    uint64_t size;
    int error; /* errno of a read that has failed; 0: none has */
} image;

static int read_image(image *from, uint64_t offset, void *bytes, size_t count) {
    if (offset > INT64_MAX)
        return 0;
    size_t got = dlc_read_at(from->fd, bytes, count, (off_t)offset);
    if (got < count && errno)
        from->error = errno;
    return got == count;
}

/* Whether [offset, offset + count) is inside `size` bytes. */
static int inside(uint64_t offset, uint64_t count, uint64_t size) {
    return offset <= size && count <= size - offset;
}

/* Compares with the running program, which is for this machine. */
static dlc_status check_elf_machine(const char *path, const ElfW(Ehdr) * header) {
    ElfW(Ehdr) own;
    image program = {.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    if (program.fd < 0)
        return DLC_OK; /* the loader will report it, less clearly */
    int known = read_image(&program, 0, &own, sizeof own);
    close(program.fd);
    if (known && (header->e_ident[EI_CLASS] != own.e_ident[EI_CLASS] ||
                  header->e_ident[EI_DATA] != own.e_ident[EI_DATA] ||
                  header->e_machine != own.e_machine))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: built for another machine (ELF machine %u, this is %u)",
                        path, header->e_machine, own.e_machine);
    if (header->e_type != ET_DYN)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: not a shared object", path);
    return DLC_OK;
}

static dlc_status check_extent(image *file, const ElfW(Ehdr) * header) {
    int whole = header->e_phentsize == sizeof(ElfW(Phdr)) &&
                inside(header->e_phoff, (uint64_t)header->e_phnum * sizeof(ElfW(Phdr)),
                       file->size) &&
                inside(header->e_shoff, (uint64_t)header->e_shnum * header->e_shentsize,
                       file->size);
    for (unsigned i = 0; whole && i < header->e_phnum; i++) {
        ElfW(Phdr) part;
        whole = read_image(file, header->e_phoff + i * sizeof part, &part,
                           sizeof part) &&
                inside(part.p_offset, part.p_filesz, file->size);
    }
    if (!whole)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: truncated or damaged: its headers describe more than its "
                        "%llu bytes; build or install it again",
                        file->path, (unsigned long long)file->size);
    return DLC_OK;
}

static dlc_status fail_read(const char *path, int error) {
    return dlc_fail(DLC_ERR_IO, "%s: cannot be read: %s", path, strerror(error));
}

static dlc_status check_image(image *file) {
    ElfW(Ehdr) header;
    dlc_status rc;
    if (!read_image(file, 0, &header, sizeof header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        rc = dlc_fail(DLC_ERR_PLUGIN, "%s: not a shared object", file->path);
    else if ((rc = check_elf_machine(file->path, &header)) == DLC_OK)
        rc = check_extent(file, &header);
    return file->error ? fail_read(file->path, file->error) : rc;
}

dlc_status dlc_image_check(const char *path) {
    struct stat info;
    image file = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file.fd < 0)
        return fail_read(path, errno);
    int known = fstat(file.fd, &info) == 0;
    file.size = known ? (uint64_t)info.st_size : 0;
    dlc_status rc = known ? check_image(&file) : fail_read(path, errno);
    close(file.fd);
    return rc;
}

/* ---- The services -----------------------------------------------------------------
 */

static void *host_alloc(size_t bytes) {
    return dlc_alloc(bytes, 1);
}

static const dlc_host host = {
    .size = sizeof(dlc_host),
    .abi_minor = DLC_ABI_MINOR,
    .log = dlc_log,
    .fail = dlc_fail,
    .alloc = host_alloc,
    .free = dlc_free,
    .get_int = dlc_settings_get_int,
    .get_float = dlc_settings_get_float,
    .get_bool = dlc_settings_get_bool,
    .get_string = dlc_settings_get_string,
    .get_ints = dlc_settings_get_ints,
    .get_floats = dlc_settings_get_floats,
    .is_set = dlc_settings_is_set,
    .where = dlc_settings_where,
    .now_ns = dlc_now_ns,
};

const dlc_host *dlc_host_services(void) {
    return &host;
}

/* ---- Opening ----------------------------------------------------------------------
 */

#define MAJORS_TRIED 32 /* interface versions to look for in a plugin without ours */

static dlc_status no_symbol(const char *path, void *handle) {
    for (int major = 0; major < MAJORS_TRIED; major++) {
        char symbol[32];
        snprintf(symbol, sizeof symbol, "dlc_plugin_v%d", major);
        if (dlsym(handle, symbol))
            return dlc_fail(DLC_ERR_PLUGIN,
                            "%s: built for version %d of the plugin interface, this "
                            "dlcore has version %d",
                            path, major, DLC_ABI_MAJOR);
    }
    return dlc_fail(DLC_ERR_PLUGIN, "%s: not a plugin: it exports no %s", path,
                    DLC_PLUGIN_SYMBOL);
}

/* dlsym() also searches the libraries that an object depends on: a symbol found there
 * belongs to another plugin. */
static dlc_status check_home(const char *path, void *handle, void *symbol) {
    struct link_map *object = NULL, *home = NULL;
    Dl_info info;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &object) != 0 ||
        !dladdr1(symbol, &info, (void **)&home, RTLD_DL_LINKMAP))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: cannot find out where its %s comes from",
                        path, DLC_PLUGIN_SYMBOL);
    if (home != object)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: exports no %s of its own, only that of %s",
                        path, DLC_PLUGIN_SYMBOL, info.dli_fname);
    return DLC_OK;
}

/* Objects that were linked with -ffast-math set FTZ for the thread that opens them. */
static void restore_modes(const char *path, const char *call) {
    const char *changed = dlc_modes_restore();
    if (changed)
        dlc_warn("%s: %s changes %s; that is undone (was it, or a library that it "
                 "uses, built with -ffast-math?)",
                 path, call, changed);
}

/* Whether a sentence of the loader is about the file, or a library that it needs. It
 * has many more, about memory or descriptors that ran out or a disk that failed, and
 * translations. */
static int is_about_files(const char *sentence) {
    static const char *const about[] = {
        "undefined symbol", "' not found",     "cannot allocate memory in static TLS",
        "ELF file",         "wrong ELF class", "invalid ELF header",
    };
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        if (strstr(sentence, about[i]))
            return 1;
    return strstr(sentence,
                  strerror(ENOENT)) != NULL; // NOLINT(concurrency-mt-unsafe)
}

static dlc_status fail_loader(const char *path) {
    const char *sentence = dlerror();
    sentence = sentence ? sentence : "the loader gives no reason";
    return dlc_fail(is_about_files(sentence) ? DLC_ERR_PLUGIN : DLC_ERR_IO,
                    "%s: cannot be loaded: %s", path, sentence);
}

dlc_status dlc_object_open(const char *path, const struct stat *info,
                           const dlc_plugin **plugin) {
    struct stat now;
    dlc_signal_guard guard;
    DLC_TRY(dlc_image_check(path));
    /* Opened by path, not by descriptor: the loader treats two objects of one name
     * (/proc/self/fd/5) as the same. Signals are guarded because libraries start
     * threads when they are loaded (libcuda does, long before CUDA is used). */
    dlc_signals_guard_begin(&guard);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    dlc_signals_guard_end(&guard);
    dlc_process_return();
    restore_modes(path, "opening it");
    if (!handle)
        return fail_loader(path);
    if (stat(path, &now) != 0 || !dlc_stat_same_bytes(&now, info))
        return dlc_fail(DLC_ERR_IO, "%s: was replaced while it was being loaded", path);
    void *symbol = dlsym(handle, DLC_PLUGIN_SYMBOL);
    if (!symbol)
        return no_symbol(path, handle);
    DLC_TRY(check_home(path, handle, symbol));
    *plugin = symbol;
    return DLC_OK;
}

/* The results of every load(). They outlive registries, because plugins are loaded into
 * the process. */
typedef struct answer {
    const dlc_plugin *plugin;
    struct answer *next;
    dlc_status status;
    char detail[1024];
} answer;

static answer *answers;
static pthread_mutex_t answers_lock = PTHREAD_MUTEX_INITIALIZER;

enum { STREAMS = 3 }; /* stdin, stdout and stderr */

static void keep_streams(int kept[STREAMS]) {
    for (int fd = 0; fd < STREAMS; fd++)
        kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, STREAMS);
}

/* What is opened next would take the place of a closed stream, and get its output. */
static int restore_streams(const int kept[STREAMS]) {
    int restored = 0;
    for (int fd = 0; fd < STREAMS; fd++) {
        if (kept[fd] >= 0 && fcntl(fd, F_GETFD) < 0)
            restored = dup2(kept[fd], fd) == fd;
        (void)close(kept[fd]);
    }
    return restored;
}

static void call_load(answer *asked) {
    dlc_signal_guard guard;
    int kept[STREAMS];
    dlc_detail_clear();
    if (!DLC_CAN(asked->plugin, load))
        return;
    keep_streams(kept);
    dlc_signals_guard_begin(&guard);
    asked->status = asked->plugin->load(dlc_host_services());
    dlc_signals_guard_end(&guard);
    dlc_process_return();
    restore_modes(asked->plugin->name, "load()");
    if (restore_streams(kept))
        asked->status = dlc_fail(DLC_ERR_PLUGIN,
                                 "its load() closes stdin, stdout or stderr");
    if (asked->status == DLC_OK)
        return;
    const char *detail = dlc_detail();
    if (*detail)
        snprintf(asked->detail, sizeof asked->detail, "%s", detail);
    else
        snprintf(asked->detail, sizeof asked->detail,
                 "its load() failed without a reason: %s",
                 dlc_status_text(asked->status));
}

dlc_status dlc_object_load(const dlc_plugin *plugin) {
    dlc_status rc = DLC_OK;
    pthread_mutex_lock(&answers_lock);
    answer *known = answers;
    while (known && known->plugin != plugin)
        known = known->next;
    if (!known) {
        known = dlc_alloc(1, sizeof *known);
        if (!known) {
            rc = DLC_ERR_NOMEM;
            goto out;
        }
        known->plugin = plugin;
        known->next = answers;
        answers = known;
        call_load(known);
    }
    if (known->status != DLC_OK)
        rc = dlc_fail(known->status == DLC_ERR_UNAVAILABLE ||
                              known->status == DLC_ERR_PLUGIN
                          ? DLC_ERR_UNAVAILABLE
                          : DLC_ERR_IO,
                      "%s", known->detail);
out:
    pthread_mutex_unlock(&answers_lock);
    return rc;
}

static int is_it(const dlc_feature *feature, const void *of) {
    const dlc_layer_ops *layer = feature->kind == DLC_KIND_LAYER ? feature->ops : NULL;
    return feature == of || feature->ops == of ||
           (DLC_HAS(layer, family) && layer->family == of);
}

const dlc_feature *dlc_object_find(const void *of, const char **plugin) {
    const dlc_feature *found = NULL;
    pthread_mutex_lock(&answers_lock);
    for (const answer *known = answers; known && !found; known = known->next)
        for (const dlc_feature *f = known->plugin->features; f->name && !found;
             f = DLC_NEXT(f))
            if (is_it(f, of)) {
                found = f;
                *plugin = known->plugin->name;
            }
    pthread_mutex_unlock(&answers_lock);
    return found;
}
