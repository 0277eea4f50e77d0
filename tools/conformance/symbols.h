/* What a shared object's headers say, read without loading it. */
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
    const char *names; /* of the symbols and libraries */
    size_t name_bytes;
    const ElfW(Dyn) * dynamic;
    size_t dynamics;
    int executable_stack;
} elf_file;

/* A whole shared object of this machine's kind (dlc_image_check). DLC_ERR_PLUGIN with
 * a sentence for what cannot be read. */
dlc_status elf_open(const char *path, elf_file *file);
void elf_close(elf_file *file);

/* "" for a name that is not there. */
const char *elf_name(const elf_file *file, size_t offset);

#endif
