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
    int64_t archive;        /* where that begins which has it */
    const char *substitute; /* why the contents are not there, as "a hard link" */
} member;

/* Visits the files of an archive in their order, until a visit fails, and links to
 * files. Formats: ustar, GNU, pax. An archive may follow the end mark of another, as
 * `cat` makes them. DLC_ERR_DATA with the place of the damage, and for an archive
 * without an end mark, which was cut short. */
dlc_status archive_walk(const data_file *in,
                        dlc_status (*visit)(void *context, const member *file),
                        void *context);

#endif
