/* Finds files in a zip archive, the format of .npz. */
#ifndef NPY_ZIP_H
#define NPY_ZIP_H

#include "../shared/file.h"
#include "../shared/growing.h"

/* The directory of an archive. Start with {0}. */
typedef struct zip {
    const data_file *in;
    growing directory;
    int64_t entries;
} zip;

/* A file in it. */
typedef struct zip_member {
    int64_t begin;  /* of its data, in the archive */
    int64_t packed; /* bytes there */
    int64_t bytes;  /* unpacked */
    uint32_t sum;   /* CRC-32 of the unpacked data */
    int is_deflated;
} zip_member;

/* Reads the directory, of zip and zip64. DLC_ERR_DATA where it is damaged. */
dlc_status zip_open(const data_file *in, zip *made);
void zip_close(zip *of);

/* Finds a file by its name. *found: 0 if there is none. */
dlc_status zip_find(const zip *in, const char *name, zip_member *made, int *found);

/* Unpacks a deflated file to a new one without a name. */
dlc_status zip_unpack(const zip *in, const char *name, const zip_member *from,
                      data_file *made);

#endif
