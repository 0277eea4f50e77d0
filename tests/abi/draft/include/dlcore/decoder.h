/* Decoders: pictures in a file format (JPEG, PNG) become pixels, and perhaps the
 * reverse.
 *
 * A data source returns the bytes of a file as they are (DLC_FIELD_ENCODED). The core
 * finds the decoder by the first bytes, asks for the size of the picture, decides which
 * part of it is needed and how large, and has only that decoded. Which files of a
 * folder are pictures is told by their names: a decoder declares the endings of its
 * format. It needs no settings, so its feature has no options.
 *
 *     dlc_decoder_ops  needed    thread  may block
 *     matches          required  any     no
 *     inspect          required  any     no
 *     decode           required  any     no
 *     encode           optional  any     no
 *
 * Threads. Every call may be made by several threads at once, on the same bytes too. A
 * decoder has no state between calls.
 *
 * Sizes. A picture may be decoded at 1, 1/2, 1/4 ... of its size, at least by
 * averaging, if the decoder can do so faster than the whole (JPEG can). The picture
 * shrunk by n has ceil(width / n) x ceil(height / n) pixels; a region of it is given in
 * these pixels. All sizes are those of the picture as it is looked at, after the
 * orientation that the file asks for (EXIF).
 *
 * Damage. The bytes may be anything: a decoder must neither crash, nor read beyond
 * them, nor believe a size in them. inspect takes no memory that depends on them; the
 * core refuses pictures that are too large before it calls decode. */
#ifndef DLCORE_DECODER_H
#define DLCORE_DECODER_H

#include <dlcore/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Capability bits of a decoder, for dlc_feature.caps. */
enum {
    /* A file that encode has made has the same pixels. */
    DLC_DECODER_LOSSLESS = 1u << 0,
};

/* What the header of a file says. */
typedef struct dlc_image_info {
    uint32_t size;
    int32_t width, height; /* as looked at; at least 1 */
    int32_t channels;      /* of the picture: 1 (grey) or 3 (red, green, blue) */

    /* The picture can be decoded at 1 / n of its size for each power of two up to this
     * one; 1: at full size only. */
    int32_t shrink_max;
} dlc_image_info;

/* The arguments of decode. */
typedef struct dlc_decode_args {
    uint32_t size;
    int32_t channels; /* of the pixels that are wanted: 1 or 3 */
    const unsigned char *bytes;
    size_t count;   /* of bytes */
    int32_t shrink; /* a power of two, 1 .. shrink_max */

    /* The region that is wanted, inside the shrunk picture; not empty. */
    int32_t x, y, width, height;
} dlc_decode_args;

/* The arguments of encode. */
typedef struct dlc_encode_args {
    uint32_t size;
    int32_t width, height;
    int32_t channels; /* 1 or 3 */

    /* 1 .. 100, as libjpeg counts; a number beyond counts as the nearest of these. At
     * 100 no value of a smooth picture, in which neighbors differ by no more than 3, is
     * off by more than 6. Lossless formats ignore it. */
    int32_t quality;

    const unsigned char *pixels; /* as those of decode */
} dlc_encode_args;

/* Limits of the endings that a decoder declares. */
enum {
    DLC_ENDINGS_MAX = 16,       /* how many there may be */
    DLC_ENDING_LENGTH_MAX = 15, /* characters of each */
};

/* The table of calls of a decoder. */
typedef struct dlc_decoder_ops {
    uint32_t size;

    /* Required. How the names of files of this format end: what follows the last dot,
     * of a-z and 0-9; at least one, the usual one first, and NULL at the end:
     * {"tif", "tiff", NULL}. Upper and lower case do not matter in names of files. In
     * folders and archives all files with the endings of any decoder are pictures, and
     * others are passed over; `matches` then decides whose they are. */
    const char *const *endings;

    /* Required. 1 if a file with these first bytes is of this format, otherwise 0.
     * `count` is at least 16, unless the whole file is shorter. */
    int (*matches)(const unsigned char *bytes, size_t count);

    /* Required. Reads the header of the file and fills in `info`, whose size the caller
     * has set. DLC_ERR_DATA with a sentence ("the header ends at byte 12"), without the
     * name of the file, which the caller adds. */
    dlc_status (*inspect)(const unsigned char *bytes, size_t count,
                          dlc_image_info *info);

    /* Required. Decodes a region to `pixels`: height x width x channels bytes, row by
     * row, the channels of a pixel side by side, without gaps. Grey becomes colour and
     * the reverse as `channels` asks (the weights of ITU-R BT.601: 0.299, 0.587,
     * 0.114); transparency is dropped; 16 bits become 8. A region must have the pixels
     * that it has in the whole picture. A file that ends too early is an error and not
     * a half-empty picture: DLC_ERR_DATA with a sentence. DLC_ERR_NOMEM. */
    dlc_status (*decode)(const dlc_decode_args *args, unsigned char *pixels);

    /* Required. A valid file of this format, with a picture of at least 16 x 16 pixels,
     * which `dlcore plugin check` tries the calls with, whole and damaged. */
    const unsigned char *example;
    uint64_t example_bytes;

    /* Optional. Makes a file of a picture of any size and channels, in memory of
     * dlc_host.alloc that the caller frees; a failure sets neither. `matches` knows the
     * file, and it decodes to a picture of this size. The same pixels give the same
     * bytes. Its name gets the first of `endings`. DLC_ERR_NOMEM. */
    dlc_status (*encode)(const dlc_encode_args *args, unsigned char **bytes,
                         uint64_t *count);
} dlc_decoder_ops;

#ifdef __cplusplus
}
#endif
#endif
