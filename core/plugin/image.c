/* Checks the ELF header and the program headers of a file. */
#include "plugin/image.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/read.h"
#include "base/status.h"

typedef struct image {
    const char *path;
    int fd;
    uint64_t size;
    int error; /* errno of a read that has failed; 0: none has */
} image;

static int read_at(image *from, uint64_t offset, void *bytes, size_t count) {
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
static dlc_status check_machine(const char *path, const ElfW(Ehdr) * header) {
    ElfW(Ehdr) own;
    image program = {.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    if (program.fd < 0)
        return DLC_OK; /* the loader will report it, less clearly */
    int known = read_at(&program, 0, &own, sizeof own);
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
        whole = read_at(file, header->e_phoff + i * sizeof part, &part, sizeof part) &&
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
    if (!read_at(file, 0, &header, sizeof header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        rc = dlc_fail(DLC_ERR_PLUGIN, "%s: not a shared object", file->path);
    else if ((rc = check_machine(file->path, &header)) == DLC_OK)
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
