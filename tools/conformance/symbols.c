/* Implements the reader of ELF files; every offset is checked against the size of the
 * file. */
#include "symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

/* 1 if `count` items of `each` bytes at `offset` are all inside the file. */
static int is_inside(const elf_file *file, uint64_t offset, uint64_t count,
                     uint64_t each) {
    return offset <= file->size && each && count <= (file->size - offset) / each;
}

static void find_names(elf_file *file, const ElfW(Shdr) * section, size_t sections,
                       size_t link) {
    const ElfW(Shdr) *names = &section[link];
    if (link >= sections || !is_inside(file, names->sh_offset, names->sh_size, 1) ||
        !names->sh_size || file->bytes[names->sh_offset + names->sh_size - 1])
        return;
    file->names = (const char *)file->bytes + names->sh_offset;
    file->name_bytes = names->sh_size;
}

static dlc_status find_sections(const char *path, elf_file *file) {
    const ElfW(Ehdr) *head = (const void *)file->bytes;
    const ElfW(Shdr) *section = (const void *)(file->bytes + head->e_shoff);
    if (head->e_shentsize != sizeof *section ||
        !is_inside(file, head->e_shoff, head->e_shnum, sizeof *section))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: its section table is damaged", path);
    for (size_t i = 0; i < head->e_shnum; i++) {
        if (!is_inside(file, section[i].sh_offset, section[i].sh_size, 1))
            continue;
        const void *at = file->bytes + section[i].sh_offset;
        if (section[i].sh_type == SHT_DYNSYM) {
            file->symbol = at;
            file->symbols = section[i].sh_size / sizeof *file->symbol;
            find_names(file, section, head->e_shnum, section[i].sh_link);
        } else if (section[i].sh_type == SHT_DYNAMIC) {
            file->dynamic = at;
            file->dynamics = section[i].sh_size / sizeof *file->dynamic;
        }
    }
    if (!file->symbol || !file->names || !file->dynamic)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: it has no dynamic symbol table", path);
    return DLC_OK;
}

static void look_at_stack(elf_file *file) {
    const ElfW(Ehdr) *head = (const void *)file->bytes;
    const ElfW(Phdr) *segment = (const void *)(file->bytes + head->e_phoff);
    file->executable_stack = 1; /* the default if there is no PT_GNU_STACK */
    if (!is_inside(file, head->e_phoff, head->e_phnum, sizeof *segment))
        return;
    for (size_t i = 0; i < head->e_phnum; i++)
        if (segment[i].p_type == PT_GNU_STACK)
            file->executable_stack = (segment[i].p_flags & PF_X) != 0;
}

dlc_status elf_open(const char *path, elf_file *file) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: %s", path, strerror(errno));
    void *bytes = fstat(fd, &info) == 0 && info.st_size > (off_t)sizeof(ElfW(Ehdr))
                      ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                      : MAP_FAILED;
    (void)close(fd);
    if (bytes == MAP_FAILED)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: cannot be read", path);
    *file = (elf_file){.bytes = bytes, .size = (size_t)info.st_size};
    DLC_TRY(find_sections(path, file));
    look_at_stack(file);
    return DLC_OK;
}

const char *elf_name(const elf_file *file, size_t offset) {
    return offset < file->name_bytes ? file->names + offset : "";
}
