/* Goes through the files of a tar archive without unpacking it. */
#ifndef TAR_ARCHIVE_H
#define TAR_ARCHIVE_H

#include "../shared/growing.h"

/* A file in an archive. */
typedef struct member {
    const char *name; /* valid during the visit; ends with a zero byte */
    int64_t begin;    /* of its contents, in the archive */
    int64_t bytes;
} member;

/* An archive that is open; `path` is for messages. */
typedef struct archive {
    const char *path;
    int fd;
    int64_t bytes;
} archive;

/* Opens a file and checks that it is one. */
dlc_status archive_open(const char *path, archive *made);

/* Visits the files of an archive in their order, until a visit fails. Formats: ustar,
 * GNU, pax. DLC_ERR_DATA with the place of the damage. */
dlc_status archive_walk(const archive *in,
                        dlc_status (*visit)(void *context, const member *file),
                        void *context);

/* Reads bytes of an archive that are known to be in it. */
dlc_status archive_read(const archive *in, int64_t begin, void *to, size_t bytes);

#endif
