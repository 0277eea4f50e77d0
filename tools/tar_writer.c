/* Writes headers of 512 bytes before contents that are padded to whole blocks. */
#include "tar_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/process.h"
#include "base/sync.h"

enum { BLOCK = 512 };

/* The header of a file (POSIX.1-2017, pax, "ustar Interchange Format"). */
typedef struct header {
    char name[100], mode[8], owner[8], group[8], size[12], time[12], sum[8], type;
    char link[100], magic[6], version[2], owner_name[32], group_name[32];
    char major[8], minor[8], prefix[155], rest[12];
} header;
_Static_assert(sizeof(header) == BLOCK, "a header is one block");

static dlc_status cannot_write(const char *path) {
    return dlc_fail(DLC_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

dlc_status dlc_tar_writer_open(dlc_tar_writer *writer, const char *part) {
    dlc_tar_writer made = {.part = dlc_strdup(part)};
    if (!made.part)
        return DLC_ERR_NOMEM;
    dlc_process_return();
    made.file = fopen(part, "we");
    if (!made.file) {
        dlc_free(made.part);
        return cannot_write(part);
    }
    *writer = made;
    return DLC_OK;
}

static dlc_status put(dlc_tar_writer *writer, const void *bytes, uint64_t count) {
    if (fwrite(bytes, 1, count, writer->file) != count)
        return cannot_write(writer->part);
    writer->bytes += count;
    return DLC_OK;
}

static dlc_status pad(dlc_tar_writer *writer) {
    static const char zeros[BLOCK];
    uint64_t beyond = writer->bytes % BLOCK;
    return beyond ? put(writer, zeros, BLOCK - beyond) : DLC_OK;
}

/* Numbers are octal; the sum is that of all bytes, with spaces in its own place. */
static void make_header(const char *name, uint64_t count, header *made) {
    unsigned sum = 0;
    memset(made, 0, sizeof *made);
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    (void)snprintf(made->mode, sizeof made->mode, "%07o", 0644U);
    (void)snprintf(made->owner, sizeof made->owner, "%07o", 0U);
    (void)snprintf(made->group, sizeof made->group, "%07o", 0U);
    (void)snprintf(made->size, sizeof made->size, "%011" PRIo64, count);
    (void)snprintf(made->time, sizeof made->time, "%011o", 0U);
    made->type = '0';
    memcpy(made->magic, "ustar", sizeof made->magic);
    memset(made->version, '0', sizeof made->version);
    memset(made->sum, ' ', sizeof made->sum);
    for (size_t i = 0; i < sizeof *made; i++)
        sum += ((const unsigned char *)made)[i];
    (void)snprintf(made->sum, sizeof made->sum, "%06o", sum);
}

dlc_status dlc_tar_writer_add(dlc_tar_writer *writer, const char *name,
                              const void *bytes, uint64_t count) {
    enum { SIZE_BITS = 33 };
    header made;
    if (strlen(name) >= sizeof made.name || count >> SIZE_BITS)
        return dlc_fail(DLC_ERR_INTERNAL, "%s does not fit into a tar archive", name);
    make_header(name, count, &made);
    DLC_TRY(put(writer, &made, sizeof made));
    DLC_TRY(put(writer, bytes, count));
    return pad(writer);
}

dlc_status dlc_tar_writer_finish(dlc_tar_writer *writer, const char *path) {
    static const char end[2 * BLOCK];
    DLC_TRY(put(writer, end, sizeof end));
    if (fflush(writer->file))
        return cannot_write(writer->part);
    errno = dlc_sync(fileno(writer->file), writer->part);
    if (errno)
        return cannot_write(writer->part);
    FILE *file = writer->file;
    writer->file = NULL;
    dlc_process_return();
    if (fclose(file) || rename(writer->part, path)) {
        dlc_status status = cannot_write(path);
        (void)unlink(writer->part);
        return status;
    }
    dlc_tar_writer_close(writer);
    return DLC_OK;
}

void dlc_tar_writer_close(dlc_tar_writer *writer) {
    if (writer->file) {
        (void)fclose(writer->file);
        (void)unlink(writer->part);
    }
    dlc_free(writer->part);
    *writer = (dlc_tar_writer){0};
}
