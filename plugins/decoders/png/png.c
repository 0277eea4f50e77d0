/* The decoder "png", on libpng: all colour types, depths and interlacing. Rows before a
 * region are decompressed and dropped; those behind it are not read.
 *
 * libpng reports errors by longjmp: everything that must be released is in `reader`. */
#include <dlcore/decoder.h>

#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "../shared/exif.h"
#include "example.h"

#define SIGNATURE_BYTES 8
#define HEADER_BYTES 33 /* with the signature and the check sum */
#define SIDE_MOST INT32_MAX
/* No deflate stream expands by more than this factor (RFC 1951). */
#define DEFLATE_MOST 1032

static const dlc_host *host;

/* A file that is being read. */
typedef struct reader {
    const unsigned char *bytes;
    size_t count, at;
    png_structp png;
    png_infop info;
    dlc_status status;     /* why it jumped */
    unsigned char *pixels; /* owned: a row, or all of them if the file is interlaced */
} reader;

/* ---- What libpng calls -------------------------------------------------------- */

__attribute__((noreturn)) static void fail(png_structp png, png_const_charp text) {
    reader *r = png_get_error_ptr(png);
    r->status = host->fail(DLC_ERR_DATA, "damaged PNG file: %s", text);
    png_longjmp(png, 1);
}

static void stay_silent(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void read_bytes(png_structp png, png_bytep to, size_t bytes) {
    reader *r = png_get_io_ptr(png);
    if (bytes > r->count - r->at)
        png_error(png, "it ends too early");
    memcpy(to, r->bytes + r->at, bytes);
    r->at += bytes;
}

/* ---- The header --------------------------------------------------------------- */

static int png_matches(const unsigned char *bytes, size_t count) {
    return count >= SIGNATURE_BYTES && png_sig_cmp(bytes, 0, SIGNATURE_BYTES) == 0;
}

static uint32_t number_at(const unsigned char *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
           (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Finds the orientation: EXIF is a chunk, which may be anywhere. */
static orientation find_orientation(const unsigned char *bytes, size_t count) {
    enum { AROUND = 12 }; /* length, type and check sum */
    size_t at = SIGNATURE_BYTES;
    while (at < count && count - at >= AROUND) {
        size_t length = number_at(bytes + at);
        if (length > count - at - AROUND || memcmp(bytes + at + 4, "IEND", 4) == 0)
            break;
        if (memcmp(bytes + at + 4, "eXIf", 4) == 0)
            return exif_orientation(bytes + at + 8, length);
        at += length + AROUND;
    }
    return (orientation){0};
}

static dlc_status png_inspect(const unsigned char *bytes, size_t count,
                              dlc_image_info *info) {
    static const unsigned char begin[] = {0, 0, 0, 13, 'I', 'H', 'D', 'R'};
    enum { COLOUR_TYPE = 25, COLOUR_BIT = 2 };
    if (count < HEADER_BYTES || !png_matches(bytes, count) ||
        memcmp(bytes + SIGNATURE_BYTES, begin, sizeof begin) != 0)
        return host->fail(DLC_ERR_DATA, "damaged PNG file: it has no header");
    uint32_t width = number_at(bytes + 16), height = number_at(bytes + 20);
    if (!width || !height || width > SIDE_MOST || height > SIDE_MOST)
        return host->fail(DLC_ERR_DATA,
                          "damaged PNG file: its header says %u x %u pixels", width,
                          height);
    int is_turned = find_orientation(bytes, count).transposed;
    info->width = (int32_t)(is_turned ? height : width);
    info->height = (int32_t)(is_turned ? width : height);
    info->channels = bytes[COLOUR_TYPE] & COLOUR_BIT ? 3 : 1;
    info->shrink_max = 1;
    return DLC_OK;
}

/* ---- Decoding ----------------------------------------------------------------- */

/* Has libpng make 8 bits of all depths, colours of palettes, and nothing of
 * transparency. */
static int read_header(reader *r) {
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, SIDE_MOST, SIDE_MOST);
    /* All that is not about pixels is skipped; libpng would believe its size. */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(r->png, r->info);
    png_set_expand(r->png);
    png_set_scale_16(r->png);
    png_set_strip_alpha(r->png);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    return passes;
}

static dlc_status decode_rows(reader *r, const dlc_decode_args *args,
                              unsigned char *pixels) {
    int passes = read_header(r);
    size_t row_bytes = png_get_rowbytes(r->png, r->info);
    int32_t have = png_get_channels(r->png, r->info);
    int32_t width = (int32_t)png_get_image_width(r->png, r->info);
    int32_t height = (int32_t)png_get_image_height(r->png, r->info);
    target t = target_find(find_orientation(r->bytes, r->count), width, height, args,
                           pixels);
    if (!target_is_within(&t, width, height) || (have != 1 && have != 3))
        return host->fail(DLC_ERR_INTERNAL, "a region beyond the picture");
    /* Of an interlaced file all rows are kept, each with at least a bit a pixel. */
    if (passes > 1 && (uint64_t)width * (uint64_t)height / 8 / DEFLATE_MOST > r->count)
        return host->fail(DLC_ERR_DATA,
                          "damaged PNG file: its header says %d x %d pixels, more than "
                          "its %zu bytes can hold",
                          (int)width, (int)height, r->count);
    r->pixels = host->alloc(passes > 1 ? row_bytes * (size_t)height : row_bytes);
    if (!r->pixels)
        return DLC_ERR_NOMEM;
    for (int pass = 0; pass < passes - 1; pass++)
        for (int32_t y = 0; y < height; y++)
            png_read_row(r->png, r->pixels + (size_t)y * row_bytes, NULL);
    for (int32_t y = 0; y < t.y + t.height; y++) {
        unsigned char *row = r->pixels + (passes > 1 ? (size_t)y * row_bytes : 0);
        png_read_row(r->png, row, NULL);
        if (y >= t.y)
            target_put_row(&t, y, row + (size_t)t.x * (size_t)have, have);
    }
    return DLC_OK;
}

static dlc_status decode_region(reader *r, const dlc_decode_args *args,
                                unsigned char *pixels) {
    if (setjmp(png_jmpbuf(r->png)))
        return r->status;
    return decode_rows(r, args, pixels);
}

static dlc_status png_decode(const dlc_decode_args *args, unsigned char *pixels) {
    reader r = {.bytes = args->bytes, .count = args->count, .status = DLC_ERR_NOMEM};
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, fail, stay_silent);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    dlc_status status = r.info ? decode_region(&r, args, pixels)
                               : host->fail(DLC_ERR_NOMEM,
                                            "out of memory to decode a PNG file");
    png_destroy_read_struct(&r.png, &r.info, NULL);
    host->free(r.pixels);
    return status;
}

/* ---- Writing ------------------------------------------------------------------- */

/* libpng's own calls for whole pictures, which neither jump nor keep anything. */
static dlc_status encode(const dlc_encode_args *args, unsigned char **bytes,
                         uint64_t *count) {
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)args->width,
                       .height = (png_uint_32)args->height,
                       .format = args->channels == 1 ? PNG_FORMAT_GRAY
                                                     : PNG_FORMAT_RGB};
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    unsigned char *made = host->alloc(size);
    if (!made)
        return DLC_ERR_NOMEM;
    if (!png_image_write_to_memory(&image, made, &size, 0, args->pixels, 0, NULL)) {
        host->free(made);
        return host->fail(DLC_ERR_NOMEM, "cannot write a PNG file: %s", image.message);
    }
    *bytes = made;
    *count = size;
    return DLC_OK;
}

/* ---- Descriptor --------------------------------------------------------------- */

static dlc_status png_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const char *const endings[] = {"png", NULL};

static const dlc_decoder_ops ops = {
    .size = sizeof ops,
    .endings = endings,
    .matches = png_matches,
    .inspect = png_inspect,
    .decode = png_decode,
    .example = example,
    .example_bytes = sizeof example,
    .encode = encode,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DECODER,
     .name = "png",
     .help = "PNG images of any colour type and depth",
     .caps = DLC_DECODER_LOSSLESS,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("png", DLC_VERSION, "BSD-2-Clause", features, png_load);
