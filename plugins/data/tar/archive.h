/* Goes through the files of a tar archive without unpacking it. */
#ifndef TAR_ARCHIVE_H
#define TAR_ARCHIVE_H

#include "../shared/file.h"
#include "../shared/growing.h"

/* A file in an archive. */
typedef struct member {
    const char *name; /* valid during the visit; ends with a zero byte */
    int64_t begin;    /* of its contents, in the archive */
    int64_t bytes;
} member;

/* Visits the files of an archive in their order, until a visit fails. Formats: ustar,
 * GNU, pax. DLC_ERR_DATA with the place of the damage. */
dlc_status archive_walk(const data_file *in,
                        dlc_status (*visit)(void *context, const member *file),
                        void *context);

#endif
