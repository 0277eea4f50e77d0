/* Declarations shared by the files of the plugin. */
#ifndef IMAGES_H
#define IMAGES_H

#include <dlcore/data.h>

extern const dlc_host *host; /* set by load */

/* ---- list.c: the list of images --------------------------------------------- */

/* One image. */
typedef struct entry {
    char *path; /* owned */
    int32_t label;
} entry;

/* The images, sorted by class and name, so that a number stands for the same image on
 * every machine. */
typedef struct listing {
    entry *entries; /* owned */
    int64_t count, capacity;
    char **class_name; /* in the order of labels; array and names are owned */
    int32_t classes, class_capacity;
} listing;

/* Where the labels of classes come from: the setting `classes`, otherwise the training
 * data, otherwise the sorted names of the folders. */
typedef struct class_source {
    const char *written;     /* the setting, "ant, bee"; "": not given */
    const char *const *name; /* of the training data */
    int32_t count;           /* 0: not known */
} class_source;

/* Lists the images under `root`. DLC_ERR_DATA if a folder is none of the classes.
 * Release the list with listing_free. */
dlc_status listing_read(const char *root, const class_source *from, listing *list);
void listing_free(listing *list);

/* ---- decode.c: JPEG and PNG ------------------------------------------------- */

/* Memory that is reused, and replaced if it is too small. */
typedef struct buffer {
    unsigned char *bytes; /* owned */
    size_t size, capacity;
} buffer;

/* Sets the size; the contents are undefined afterwards. */
dlc_status buffer_need(buffer *b, size_t size);
void buffer_free(buffer *b);

/* Rows of pixels with 1 (grey) or 3 (red, green, blue) bytes each. */
typedef struct picture {
    int32_t width, height, channels;
    buffer pixels;
} picture;

/* Reads the header of a file, and its pixels unless `head_only`. `file` is working
 * memory. */
dlc_status picture_read(const char *path, int32_t channels, int head_only, buffer *file,
                        picture *out);

/* ---- resize.c --------------------------------------------------------------- */

/* Resizes to in->channels planes of height x width bytes. `work` is working memory. */
dlc_status picture_resize(const picture *in, int32_t height, int32_t width,
                          buffer *work, unsigned char *out);

#endif
