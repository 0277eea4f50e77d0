/* What the plugin's files share. */
#ifndef IMAGES_H
#define IMAGES_H

#include <dlcore/data.h>

extern const dlc_host *host;

/* ---- list.c: which images there are ---------------------------------------------- */

typedef struct entry {
    char *path; /* own */
    int32_t label;
} entry;

/* By class, then by name, so that a number means the same image on every machine. */
typedef struct listing {
    entry *entries; /* own */
    int64_t count, room;
    char **class_name; /* own, each too; by label */
    int32_t classes, class_room;
} listing;

/* Who says which class has which label: the user, else the training data, else the
 * names of the folders. */
typedef struct class_source {
    const char *written;     /* "ant, bee"; "": nothing was */
    const char *const *name; /* of the training data */
    int32_t count;           /* 0: not known */
} class_source;

/* DLC_ERR_DATA for a folder that is none of the classes. */
dlc_status listing_read(const char *root, const class_source *from, listing *list);
void listing_free(listing *list);

/* ---- decode.c: JPEG and PNG ------------------------------------------------------ */

/* Grows and is used again. */
typedef struct buffer {
    unsigned char *bytes; /* own */
    size_t size, room;
} buffer;

dlc_status buffer_need(buffer *b, size_t size);
void buffer_free(buffer *b);

/* Interleaved rows of 1 (grey) or 3 (red, green, blue) bytes a pixel. */
typedef struct picture {
    int32_t width, height, channels;
    buffer pixels;
} picture;

/* Reads the file's head, and its pixels unless `head_only`. */
dlc_status picture_read(const char *path, int32_t channels, int head_only, buffer *file,
                        picture *out);

/* ---- resize.c -------------------------------------------------------------------- */

/* To `channels` planes of height x width bytes; `work` is for in between. */
dlc_status picture_resize(const picture *in, int32_t height, int32_t width,
                          buffer *work, unsigned char *out);

#endif
