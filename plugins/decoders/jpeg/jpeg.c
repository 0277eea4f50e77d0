/* The decoder "jpeg", on the libjpeg API of libjpeg-turbo. It decodes at 1/2, 1/4 and
 * 1/8 of the size by smaller cosine transforms, and only the rows and blocks that a
 * region needs.
 *
 * libjpeg reports errors by longjmp: everything that must be released is in `reader`.
 */
#include <dlcore/decoder.h>

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "../shared/exif.h"
#include "encode.h"
#include "example.h"

#define SHRINK_MAX 8 /* libjpeg's blocks have 8 x 8 pixels */
#define EXIF_MARKER (JPEG_APP0 + 1)
#define ADOBE_CHANNELS 4
/* Real progressive files have about ten scans; a file with thousands takes minutes. */
#define SCANS_MOST 200
/* libjpeg-turbo writes an aligned row past the caches, but it is read at once. */
#define UNALIGNED 8

static const dlc_host *host;

/* A file that is being read. */
typedef struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    dlc_status status; /* why it jumped */
    orientation way;
    unsigned char *row; /* owned */
} reader;

/* ---- Errors ------------------------------------------------------------------ */

__attribute__((noreturn)) static void fail(j_common_ptr common) {
    reader *r = common->client_data;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    r->status = common->err->msg_code == JERR_OUT_OF_MEMORY
                    ? host->fail(DLC_ERR_NOMEM, "out of memory to decode a JPEG file")
                    : host->fail(DLC_ERR_DATA, "damaged JPEG file: %s", text);
    longjmp(r->jump, 1);
}

/* libjpeg goes on after damage and fills up with grey; a sample must not be like that.
 * Other warnings, as of bytes between the segments, are harmless. */
static void warn(j_common_ptr common, int level) {
    int code = common->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                      code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC ||
                      code == JWRN_NOT_SEQUENTIAL))
        fail(common);
}

static void stay_silent(j_common_ptr common) {
    (void)common;
}

static void limit_scans(j_common_ptr common) {
    reader *r = common->client_data;
    if (common->is_decompressor && r->jpeg.input_scan_number > SCANS_MOST) {
        r->status = host->fail(DLC_ERR_DATA,
                               "a JPEG file with more than %d scans, which would take "
                               "too long",
                               SCANS_MOST);
        longjmp(r->jump, 1);
    }
}

/* ---- Reading the header ------------------------------------------------------- */

static void find_orientation(reader *r) {
    for (jpeg_saved_marker_ptr at = r->jpeg.marker_list; at; at = at->next)
        if (at->marker == EXIF_MARKER && at->data_length > 4 &&
            memcmp(at->data, "Exif", 4) == 0) {
            r->way = exif_orientation(at->data, at->data_length);
            return;
        }
}

/* Begins to read; may jump. */
static void read_header(reader *r, const unsigned char *bytes, size_t count) {
    jpeg_create_decompress(&r->jpeg);
    r->jpeg.progress = &r->progress;
    jpeg_mem_src(&r->jpeg, bytes, (unsigned long)count);
    jpeg_save_markers(&r->jpeg, EXIF_MARKER, 0xffff);
    (void)jpeg_read_header(&r->jpeg, TRUE);
    find_orientation(r);
}

/* Prepares for errors; everything else follows a setjmp. */
static void reader_begin(reader *r) {
    memset(r, 0, sizeof *r);
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = fail;
    r->errors.emit_message = warn;
    r->errors.output_message = stay_silent;
    r->progress.progress_monitor = limit_scans;
}

static void reader_end(reader *r) {
    jpeg_destroy_decompress(&r->jpeg);
    host->free(r->row);
}

static int jpeg_matches(const unsigned char *bytes, size_t count) {
    return count >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

static dlc_status jpeg_inspect(const unsigned char *bytes, size_t count,
                               dlc_image_info *info) {
    reader r;
    reader_begin(&r);
    if (setjmp(r.jump)) {
        reader_end(&r);
        return r.status;
    }
    read_header(&r, bytes, count);
    int32_t width = (int32_t)r.jpeg.image_width, height = (int32_t)r.jpeg.image_height;
    info->width = r.way.transposed ? height : width;
    info->height = r.way.transposed ? width : height;
    info->channels = r.jpeg.num_components == 1 ? 1 : 3;
    info->shrink_max = SHRINK_MAX;
    reader_end(&r);
    return DLC_OK;
}

/* ---- Decoding ----------------------------------------------------------------- */

/* Chooses the colours that libjpeg converts to. It leaves CMYK to us. */
static void choose_colours(reader *r, int32_t channels) {
    J_COLOR_SPACE stored = r->jpeg.jpeg_color_space;
    if (stored == JCS_CMYK || stored == JCS_YCCK)
        r->jpeg.out_color_space = JCS_CMYK;
    else
        r->jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
}

/* Adobe's programs write the four inks inverted: 255 is none. */
static void convert_cmyk(const reader *r, unsigned char *row, size_t count) {
    unsigned invert = r->jpeg.saw_Adobe_marker ? 0 : 255;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *ink = row + ADOBE_CHANNELS * i;
        unsigned black = ink[3] ^ invert;
        unsigned char rgb[3];
        for (int c = 0; c < 3; c++)
            rgb[c] = (unsigned char)(((ink[c] ^ invert) * black + 127) / 255);
        memcpy(row + 3 * i, rgb, sizeof rgb);
    }
}

/* Restricts decoding to the blocks that the region needs, and one more on either side,
 * whose colours have a part in the pixels at its edges. Returns the first column. */
static int32_t crop_columns(reader *r, const target *t) {
    int32_t margin = 2 * r->jpeg.max_h_samp_factor; /* of pixels */
    int32_t all = (int32_t)r->jpeg.output_width;
    int32_t left = t->x > margin ? t->x - margin : 0;
    int32_t right = t->x + t->width < all - margin ? t->x + t->width + margin : all;
    JDIMENSION first = (JDIMENSION)left, width = (JDIMENSION)(right - left);
    if (width < r->jpeg.output_width)
        jpeg_crop_scanline(&r->jpeg, &first, &width);
    else
        first = 0;
    return (int32_t)first;
}

static dlc_status decode_rows(reader *r, const target *t) {
    int32_t first = crop_columns(r, t), have = r->jpeg.output_components;
    r->row = host->alloc((size_t)r->jpeg.output_width * (size_t)have + UNALIGNED);
    if (!r->row)
        return DLC_ERR_NOMEM;
    if (t->y > 0)
        (void)jpeg_skip_scanlines(&r->jpeg, (JDIMENSION)t->y);
    for (int32_t y = 0; y < t->height; y++) {
        JSAMPROW row = r->row + UNALIGNED;
        (void)jpeg_read_scanlines(&r->jpeg, &row, 1);
        unsigned char *from = row + (size_t)(t->x - first) * (size_t)have;
        if (r->jpeg.out_color_space == JCS_CMYK)
            convert_cmyk(r, from, (size_t)t->width);
        target_put_row(t, t->y + y, from, have == ADOBE_CHANNELS ? 3 : have);
    }
    return DLC_OK;
}

static dlc_status decode_region(reader *r, const dlc_decode_args *args,
                                unsigned char *pixels) {
    read_header(r, args->bytes, args->count);
    choose_colours(r, args->channels);
    r->jpeg.scale_num = (unsigned)(SHRINK_MAX / args->shrink);
    r->jpeg.scale_denom = SHRINK_MAX;
    (void)jpeg_start_decompress(&r->jpeg);
    int32_t width = (int32_t)r->jpeg.output_width;
    int32_t height = (int32_t)r->jpeg.output_height;
    target t = target_find(r->way, width, height, args, pixels);
    if (!target_is_within(&t, width, height))
        return host->fail(DLC_ERR_INTERNAL, "a region beyond the picture");
    return decode_rows(r, &t);
}

static dlc_status jpeg_decode(const dlc_decode_args *args, unsigned char *pixels) {
    reader r;
    reader_begin(&r);
    if (setjmp(r.jump)) {
        reader_end(&r);
        return r.status;
    }
    dlc_status status = decode_region(&r, args, pixels);
    reader_end(&r);
    return status;
}

/* ---- Descriptor --------------------------------------------------------------- */

static dlc_status jpeg_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static dlc_status encode(const dlc_encode_args *args, unsigned char **bytes,
                         uint64_t *count) {
    return jpeg_encode(host, args, bytes, count);
}

static const char *const endings[] = {"jpg", "jpeg", NULL};

static const dlc_decoder_ops ops = {
    .size = sizeof ops,
    .endings = endings,
    .matches = jpeg_matches,
    .inspect = jpeg_inspect,
    .decode = jpeg_decode,
    .example = example,
    .example_bytes = sizeof example,
    .encode = encode,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DECODER,
     .name = "jpeg",
     .help = "JPEG images, also at 1/2, 1/4 and 1/8 of their size, and parts of them",
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("jpeg", DLC_VERSION, "BSD-2-Clause", features, jpeg_load);
