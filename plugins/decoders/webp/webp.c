/* The decoder "webp", on libwebp: lossy and lossless pictures, not animations. */
#include <dlcore/decoder.h>

#include <string.h>

#include <webp/decode.h>

#include "../shared/exif.h"
#include "example.h"

/* Colours are stored for 2 x 2 pixels and smoothed: pixels around a region have a part
 * in those at its edges. libwebp begins regions at even numbers. */
#define MARGIN 4

static const dlc_host *host;

static int webp_matches(const unsigned char *bytes, size_t count) {
    return count >= 12 && memcmp(bytes, "RIFF", 4) == 0 &&
           memcmp(bytes + 8, "WEBP", 4) == 0;
}

static dlc_status fail(VP8StatusCode code) {
    static const char *const texts[] = {
        [VP8_STATUS_INVALID_PARAM] = "invalid parameters",
        [VP8_STATUS_BITSTREAM_ERROR] = "it has invalid bits",
        [VP8_STATUS_UNSUPPORTED_FEATURE] = "it uses a feature that libwebp lacks",
        [VP8_STATUS_SUSPENDED] = "it ends too early",
        [VP8_STATUS_USER_ABORT] = "it was interrupted",
        [VP8_STATUS_NOT_ENOUGH_DATA] = "it ends too early",
    };
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return host->fail(DLC_ERR_NOMEM, "out of memory to decode a WebP file");
    const char *text = (size_t)code < sizeof texts / sizeof *texts ? texts[code] : NULL;
    return host->fail(DLC_ERR_DATA, "damaged WebP file: %s", text ? text : "unknown");
}

static dlc_status read_header(const unsigned char *bytes, size_t count,
                              WebPBitstreamFeatures *features) {
    VP8StatusCode code = WebPGetFeatures(bytes, count, features);
    if (code != VP8_STATUS_OK)
        return fail(code);
    if (features->has_animation)
        return host->fail(DLC_ERR_DATA, "an animated WebP file, not one picture");
    if (features->width < 1 || features->height < 1)
        return host->fail(DLC_ERR_DATA, "damaged WebP file: it has no pixels");
    return DLC_OK;
}

/* Finds the orientation: EXIF is a chunk behind the picture. */
static orientation find_orientation(const unsigned char *bytes, size_t count) {
    enum { FILE_HEADER = 12, HEADER = 8 };
    size_t at = FILE_HEADER;
    while (at < count && count - at >= HEADER) {
        const unsigned char *size = bytes + at + 4;
        size_t length = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 |
                        (size_t)size[3] << 24;
        if (length > count - at - HEADER)
            break;
        if (memcmp(bytes + at, "EXIF", 4) == 0)
            return exif_orientation(bytes + at + HEADER, length);
        at += HEADER + length + length % 2;
    }
    return (orientation){0};
}

static dlc_status webp_inspect(const unsigned char *bytes, size_t count,
                               dlc_image_info *info) {
    WebPBitstreamFeatures features;
    dlc_status status = read_header(bytes, count, &features);
    if (status != DLC_OK)
        return status;
    int is_turned = find_orientation(bytes, count).transposed;
    info->width = is_turned ? features.height : features.width;
    info->height = is_turned ? features.width : features.height;
    info->channels = 3;
    info->shrink_max = 1;
    return DLC_OK;
}

/* ---- Decoding ----------------------------------------------------------------- */

/* The region that libwebp decodes: a larger one, from an even number to the end of the
 * picture at most. */
typedef struct span {
    int begin, size;
} span;

static span span_around(int32_t at, int32_t size, int32_t all) {
    int begin = at > MARGIN ? (at - MARGIN) & ~1 : 0;
    int end = at + size < all - MARGIN ? at + size + MARGIN : all;
    return (span){begin, end - begin};
}

static dlc_status decode_into(WebPDecoderConfig *config, const dlc_decode_args *args,
                              unsigned char *room, size_t row) {
    config->output.colorspace = MODE_RGB;
    config->output.is_external_memory = 1;
    config->output.u.RGBA.rgba = room;
    config->output.u.RGBA.stride = (int)row;
    config->output.u.RGBA.size = row * (size_t)config->options.crop_height;
    VP8StatusCode code = WebPDecode(args->bytes, args->count, config);
    WebPFreeDecBuffer(&config->output);
    return code == VP8_STATUS_OK ? DLC_OK : fail(code);
}

static dlc_status webp_decode(const dlc_decode_args *args, unsigned char *pixels) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return host->fail(DLC_ERR_INTERNAL, "libwebp is of another version");
    dlc_status status = read_header(args->bytes, args->count, &config.input);
    if (status != DLC_OK)
        return status;
    target t = target_find(find_orientation(args->bytes, args->count),
                           config.input.width, config.input.height, args, pixels);
    if (!target_is_within(&t, config.input.width, config.input.height))
        return host->fail(DLC_ERR_INTERNAL, "a region beyond the picture");
    span across = span_around(t.x, t.width, config.input.width);
    span down = span_around(t.y, t.height, config.input.height);
    config.options.use_cropping = 1;
    config.options.crop_left = across.begin;
    config.options.crop_top = down.begin;
    config.options.crop_width = across.size;
    config.options.crop_height = down.size;
    size_t row = (size_t)across.size * 3;
    unsigned char *room = host->alloc(row * (size_t)down.size);
    if (!room)
        return DLC_ERR_NOMEM;
    status = decode_into(&config, args, room, row);
    for (int32_t y = t.y; status == DLC_OK && y < t.y + t.height; y++)
        target_put_row(&t, y,
                       room + (size_t)(y - down.begin) * row +
                           (size_t)(t.x - across.begin) * 3,
                       3);
    host->free(room);
    return status;
}

/* ---- Descriptor --------------------------------------------------------------- */

static dlc_status webp_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const char *const endings[] = {"webp", NULL};

static const dlc_decoder_ops ops = {
    .size = sizeof ops,
    .endings = endings,
    .matches = webp_matches,
    .inspect = webp_inspect,
    .decode = webp_decode,
    .example = example,
    .example_bytes = sizeof example,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DECODER,
     .name = "webp",
     .help = "WebP images, lossy and lossless",
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("webp", DLC_VERSION, "BSD-2-Clause", features, webp_load);
