/* Checks the ELF header and the program headers of a file. */
#include "plugin/image.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

static int read_at(int fd, uint64_t offset, void *bytes, size_t count) {
    return offset <= INT64_MAX &&
           pread(fd, bytes, count, (off_t)offset) == (ssize_t)count;
}

/* Whether [offset, offset + count) is inside `size` bytes. */
static int inside(uint64_t offset, uint64_t count, uint64_t size) {
    return offset <= size && count <= size - offset;
}

/* Compares with the running program, which is for this machine. */
static dlc_status check_machine(const char *path, const ElfW(Ehdr) * header) {
    ElfW(Ehdr) own;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return DLC_OK; /* the loader will report it, less clearly */
    int known = read_at(fd, 0, &own, sizeof own);
    close(fd);
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

static dlc_status check_extent(const char *path, int fd, uint64_t size,
                               const ElfW(Ehdr) * header) {
    int whole = header->e_phentsize == sizeof(ElfW(Phdr)) &&
                inside(header->e_phoff, (uint64_t)header->e_phnum * sizeof(ElfW(Phdr)),
                       size) &&
                inside(header->e_shoff, (uint64_t)header->e_shnum * header->e_shentsize,
                       size);
    for (unsigned i = 0; whole && i < header->e_phnum; i++) {
        ElfW(Phdr) part;
        whole = read_at(fd, header->e_phoff + i * sizeof part, &part, sizeof part) &&
                inside(part.p_offset, part.p_filesz, size);
    }
    if (!whole)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: truncated or damaged: its headers describe more than its "
                        "%llu bytes; build or install it again",
                        path, (unsigned long long)size);
    return DLC_OK;
}

dlc_status dlc_image_check(const char *path) {
    ElfW(Ehdr) header;
    struct stat info;
    dlc_status rc;

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: cannot be read: %s", path,
                        strerror(errno));
    if (fstat(fd, &info) != 0)
        rc = dlc_fail(DLC_ERR_PLUGIN, "%s: cannot be read: %s", path, strerror(errno));
    else if (!read_at(fd, 0, &header, sizeof header) ||
             memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        rc = dlc_fail(DLC_ERR_PLUGIN, "%s: not a shared object", path);
    else if ((rc = check_machine(path, &header)) == DLC_OK)
        rc = check_extent(path, fd, (uint64_t)info.st_size, &header);
    close(fd);
    return rc;
}
