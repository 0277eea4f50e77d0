/* The decoders that are installed, and the pixels that they make of the bytes of a
 * file. The setup opens them before the ranks are started; the feed decodes with them.
 *
 * Threads: once open they do not change; any thread may decode. */
#ifndef DLC_DATA_DECODERS_H
#define DLC_DATA_DECODERS_H

#include <dlcore/decoder.h>

#include "base/status.h"
#include "plugin/registry.h"

typedef struct dlc_decoders dlc_decoders;

/* Loads all decoders that are usable. DLC_ERR_PLUGIN if there are none. */
dlc_status dlc_decoders_open(const dlc_registry *registry, dlc_decoders **decoders);
void dlc_decoders_close(dlc_decoders *decoders); /* NULL allowed */

/* How the names of image files of the usual formats end. Files that no installed
 * decoder reads are not passed over in silence then: their samples fail. */
#define DLC_USUAL_ENDINGS "jpg,jpeg,png,webp"

/* The usual endings, and what each installed decoder declares, even if it cannot be
 * used on this machine; each once, joined by commas. The caller frees the text with
 * dlc_free. */
dlc_status dlc_decoders_endings(const dlc_registry *registry, char **endings);

/* Is what follows the last dot of a name, in upper or lower case, one of these
 * endings? */
int dlc_ends_as(const char *name, const char *endings);

/* A file in memory, and what its header says. */
typedef struct dlc_encoded {
    const unsigned char *bytes;
    size_t count;
    const dlc_decoder_ops *ops; /* of the decoder for it */
    dlc_image_info info;
} dlc_encoded;

/* Finds the decoder for a file and reads its header. DLC_ERR_DATA if no decoder knows
 * it, if it is damaged, or if it has more than `max_pixels` pixels. */
dlc_status dlc_decoders_inspect(const dlc_decoders *decoders, const void *bytes,
                                size_t count, int64_t max_pixels, dlc_encoded *encoded);

/* The size of a picture shrunk by n, a power of two: ceil(size / n). */
int32_t dlc_shrunk(int32_t size, int32_t shrink);

/* Decodes a region of a file that was inspected: x, y, width and height of the picture
 * shrunk by `shrink`, into `pixels`, rows of interleaved bytes without gaps. */
dlc_status dlc_decoders_decode(const dlc_encoded *encoded, int32_t channels,
                               int32_t shrink, const int32_t region[4],
                               unsigned char *pixels);

/* Makes a file of pixels, by the first decoder that can, lossless or not. The caller
 * frees *bytes with dlc_free; *ending is how the name of such a file ends.
 * DLC_ERR_PLUGIN: none can. */
dlc_status dlc_decoders_encode(const dlc_decoders *decoders, int lossless,
                               const dlc_encode_args *args, unsigned char **bytes,
                               uint64_t *count, const char **ending);

#endif
