/* Reads the symbols and the dynamic section of a shared object without loading it. */
#ifndef DLC_TOOLS_CONFORMANCE_SYMBOLS_H
#define DLC_TOOLS_CONFORMANCE_SYMBOLS_H

#include <link.h>
#include <stddef.h>

#include <dlcore/status.h>

typedef struct elf_file {
    const unsigned char *bytes; /* the whole file, mapped */
    size_t size;
    const ElfW(Sym) * symbol; /* of the dynamic symbol table */
    size_t symbols;
    const char *names; /* the string table of the symbols and libraries */
    size_t name_bytes;
    const ElfW(Dyn) * dynamic;
    size_t dynamics;
    int executable_stack;
} elf_file;

/* Maps and parses a file that has passed dlc_image_check. Returns DLC_ERR_PLUGIN with a
 * sentence if it cannot be read. It stays mapped: a check has a process of its own. */
dlc_status elf_open(const char *path, elf_file *file);

/* The name at an offset of the string table; "" for an invalid offset. */
const char *elf_name(const elf_file *file, size_t offset);

#endif
