/* Decodes files with the decoders of this build. Used by the tests of each format. */
#ifndef TEST_DECODING_H
#define TEST_DECODING_H

#include <dlcore/decoder.h>

/* A file in memory; owned. */
typedef struct file {
    unsigned char *bytes;
    size_t count;
} file;

/* A picture: height x width x channels bytes; owned. */
typedef struct picture {
    int32_t width, height, channels;
    unsigned char *pixels;
} picture;

/* Colours that change smoothly, so that lossy formats keep them, with a diagonal that
 * tells the directions apart. */
picture picture_make(int32_t width, int32_t height, int32_t channels);
void picture_free(picture *of);

const dlc_decoder_ops *decoder_open(const char *name);

/* The header of a file that is valid. */
dlc_image_info decoder_inspect(const dlc_decoder_ops *ops, const file *from);
/* The whole picture at a fraction of its size; fails the test if it cannot be decoded.
 */
picture decoder_decode(const dlc_decoder_ops *ops, const file *from, int32_t channels,
                       int32_t shrink);
/* Decodes to nowhere: the status. */
dlc_status decoder_try(const dlc_decoder_ops *ops, const unsigned char *bytes,
                       size_t count);

/* Checks that no byte of two pictures differs by more than this. */
void pictures_near(const picture *a, const picture *b, int most);
/* Checks that random regions have the pixels of the whole picture, at all sizes. */
void decoder_regions(const dlc_decoder_ops *ops, const file *from);
/* Writes EXIF data with one entry, the orientation, in either order of bytes. */
enum { EXIF_BYTES = 26 };
void exif_make(int orientation, int big, unsigned char exif[EXIF_BYTES]);
/* Checks that a file is seen turned as its orientation says; `plain` is the same
 * without. */
void decoder_turns(const dlc_decoder_ops *ops, const file *plain, const file *turned,
                   int orientation);
/* Writes pictures of 1 and 3 channels and reads them: no byte may differ by more than
 * `most`. */
void decoder_encodes(const dlc_decoder_ops *ops, int32_t quality, int most);
/* Changes a file in a thousand ways: nothing may crash, and every refusal has a
 * sentence. */
void decoder_mutations(const dlc_decoder_ops *ops, const file *from);
/* Cuts a file short in many places: decoding it whole is refused. */
void decoder_cuts(const dlc_decoder_ops *ops, const file *from);

#endif
