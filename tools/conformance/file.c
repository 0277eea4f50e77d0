/* The checks of the file: the symbols that it exports and needs, and its descriptor.
 * None of the plugin's code runs, except for what the dynamic loader runs. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <dlcore/dlcore.h>

#include "base/process_state.h"
#include "base/status.h"
#include "plugin/object.h"
#include "plugin/registry.h"
#include "suite.h"
#include "symbols.h"

static void open_file(suite_run *run, elf_file *file) {
    suite_must(run, dlc_image_check(run->subject->path), "reading the file");
    suite_must(run, elf_open(run->subject->path, file), "reading its symbols");
}

static int is_exported(const ElfW(Sym) * symbol) {
    unsigned binding = ELF64_ST_BIND(symbol->st_info);
    unsigned visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    return symbol->st_shndx != SHN_UNDEF && symbol->st_shndx != SHN_ABS &&
           binding != STB_LOCAL &&
           (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
}

static void exports_one_symbol(suite_run *run) {
    elf_file file;
    int found = 0;
    open_file(run, &file);
    for (size_t i = 0; i < file.symbols; i++) {
        const char *name = elf_name(&file, file.symbol[i].st_name);
        if (!is_exported(&file.symbol[i]))
            continue;
        if (strcmp(name, DLC_PLUGIN_SYMBOL) != 0)
            suite_fail(
                run,
                "it exports '%s', which may clash with another plugin; build with "
                "-fvisibility=hidden and a symbol map",
                name);
        found = 1;
    }
    if (!found)
        suite_fail(run, "it exports no %s", DLC_PLUGIN_SYMBOL);
}

static void exports_data(suite_run *run) {
    elf_file file;
    open_file(run, &file);
    for (size_t i = 0; i < file.symbols; i++)
        if (is_exported(&file.symbol[i]) &&
            strcmp(elf_name(&file, file.symbol[i].st_name), DLC_PLUGIN_SYMBOL) == 0) {
            if (ELF64_ST_TYPE(file.symbol[i].st_info) != STT_OBJECT)
                suite_fail(run, "its %s is not a data object", DLC_PLUGIN_SYMBOL);
            if (file.symbol[i].st_size < offsetof(dlc_plugin, load))
                suite_fail(run, "its %s has only %" PRIu64 " bytes, which is too small",
                           DLC_PLUGIN_SYMBOL, (uint64_t)file.symbol[i].st_size);
        }
}

static void is_independent(suite_run *run) {
    elf_file file;
    open_file(run, &file);
    for (size_t i = 0; i < file.dynamics && file.dynamic[i].d_tag != DT_NULL; i++) {
        const char *name = elf_name(&file, file.dynamic[i].d_un.d_val);
        if (file.dynamic[i].d_tag == DT_NEEDED && strstr(name, "libdlcore"))
            suite_fail(run,
                       "it is linked with %s; a plugin may use the host table only",
                       name);
    }
    for (size_t i = 0; i < file.symbols; i++) {
        const char *name = elf_name(&file, file.symbol[i].st_name);
        if (file.symbol[i].st_shndx == SHN_UNDEF && strncmp(name, "dlc_", 4) == 0)
            suite_fail(run, "it calls '%s', which is not part of the SDK", name);
    }
}

static void is_safe(suite_run *run) {
    elf_file file;
    open_file(run, &file);
    if (file.executable_stack)
        suite_fail(run,
                   "it requires an executable stack (link with -Wl,-z,noexecstack)");
    for (size_t i = 0; i < file.dynamics && file.dynamic[i].d_tag != DT_NULL; i++)
        if (file.dynamic[i].d_tag == DT_TEXTREL ||
            (file.dynamic[i].d_tag == DT_FLAGS &&
             file.dynamic[i].d_un.d_val & DF_TEXTREL))
            suite_fail(run, "it has text relocations (build with -fPIC)");
}

/* Objects that are linked with -ffast-math change how the process that opens them
 * computes, before any of their functions is called. */
static void leaves_modes_alone(suite_run *run) {
    if (!dlopen(run->subject->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))
        suite_fail(run, "cannot be loaded: %s", dlerror());
    const char *changed = dlc_modes_restore();
    if (changed)
        suite_fail(run,
                   "opening it changes %s; is it, or a library that it uses, linked "
                   "with -ffast-math?",
                   changed);
}

/* ---- The descriptor --------------------------------------------------------- */

/* 1 if the byte at `at` is in writable memory. */
static int is_writable(suite_run *run, const void *at) {
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t address = (uintptr_t)at;
    char line[512];
    int writable = 0;
    if (!maps)
        suite_skip(run, "/proc/self/maps: %s", strerror(errno));
    while (fgets(line, sizeof line, maps)) {
        uintptr_t from = 0, to = 0;
        char how[8] = "";
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &from, &to, how) == 3 &&
            address >= from && address < to)
            writable = how[1] == 'w';
    }
    (void)fclose(maps);
    return writable;
}

static void must_be_constant(suite_run *run, const void *at, const char *what) {
    if (at && is_writable(run, at))
        suite_fail(run, "%s is writable; declare it const", what);
}

static void descriptor_is_constant(suite_run *run) {
    suite_check_descriptor(run);
    must_be_constant(run, run->plugin, "its " DLC_PLUGIN_SYMBOL);
    must_be_constant(run, run->plugin->features, "its table of features");
    for (const dlc_feature *f = run->plugin->features; f->name; f = DLC_NEXT(f)) {
        must_be_constant(run, f->options, "a table of options");
        must_be_constant(run, f->ops, "a table of operations");
    }
}

static void has_no_duplicates(suite_run *run) {
    suite_check_descriptor(run);
    for (const dlc_feature *a = run->plugin->features; a->name; a = DLC_NEXT(a))
        for (const dlc_feature *b = DLC_NEXT(a); b->name; b = DLC_NEXT(b))
            if (a->kind == b->kind && strcmp(a->name, b->name) == 0 &&
                (a->device == b->device ||
                 (a->device && b->device && strcmp(a->device, b->device) == 0)))
                suite_fail(run, "it offers %s twice; the second one is never found",
                           a->name);
}

/* The loader has rules of its own: who may write the file, what a feature may need. */
static void is_accepted(suite_run *run) {
    dlc_registry *registry = NULL;
    suite_must(run, dlc_registry_inspect(run->subject->path, &registry), "inspection");
    const dlc_plugin_entry *plugin = dlc_registry_plugin(registry, 0);
    if (!plugin)
        suite_fail(run, "dlcore does not find a plugin in it");
    if (plugin->state != DLC_ENTRY_UNTRIED)
        suite_fail(run, "dlcore refuses it: %s", plugin->reason);
    for (size_t i = 0; i < plugin->features; i++)
        if (plugin->feature[i].state != DLC_ENTRY_UNTRIED)
            suite_fail(run, "dlcore refuses its feature '%s': %s",
                       plugin->feature[i].name, plugin->feature[i].reason);
    dlc_registry_close(registry);
}

const suite_check suite_file_checks[] = {
    {"file.accepted", "dlcore accepts the file and each of its features", 0, 0,
     SUITE_CLOSED, 30, is_accepted},
    {"file.exports", "it exports dlc_plugin_v0 and nothing else", 0, 0, SUITE_CLOSED,
     10, exports_one_symbol},
    {"file.data", "dlc_plugin_v0 is a data object and large enough", 0, 0, SUITE_CLOSED,
     10, exports_data},
    {"file.independent", "it uses nothing of the core except the host table", 0, 0,
     SUITE_CLOSED, 10, is_independent},
    {"file.safe", "no executable stack and no text relocations", 0, 0, SUITE_CLOSED, 10,
     is_safe},
    {"file.modes", "opening it does not change how the process computes", 0, 0,
     SUITE_CLOSED, 30, leaves_modes_alone},
    {"file.descriptor", "valid sizes, name, version, license and features", 0, 0,
     SUITE_OPENED, 30, suite_check_descriptor},
    {"file.constant", "the descriptor and its tables are constant", 0, 0, SUITE_OPENED,
     30, descriptor_is_constant},
    {"file.duplicates", "no feature is offered twice", 0, 0, SUITE_OPENED, 30,
     has_no_duplicates},
    {.name = NULL},
};
