/* Decodes an image with libjpeg-turbo or libpng, depending on the first bytes of the
 * file and not on its name. */
#include <errno.h>
#include <png.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <turbojpeg.h>

#include "images.h"

enum { SIDE_MOST = 32768 };   /* pixels */
enum { FILE_MOST = 1 << 30 }; /* bytes */

/* ---- Memory ----------------------------------------------------------------- */

dlc_status buffer_need(buffer *b, size_t size) {
    if (size > b->capacity) {
        unsigned char *bytes = host->alloc(size);
        if (!bytes)
            return DLC_ERR_NOMEM;
        host->free(b->bytes);
        b->bytes = bytes;
        b->capacity = size;
    }
    b->size = size;
    return DLC_OK;
}

void buffer_free(buffer *b) {
    host->free(b->bytes);
    *b = (buffer){0};
}

/* ---- Files ------------------------------------------------------------------ */

static dlc_status fail_read(const char *path) {
    return host->fail(DLC_ERR_DATA, "%s: cannot be read: %s", path, strerror(errno));
}

static dlc_status read_file(const char *path, buffer *out) {
    struct stat info;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return fail_read(path);
    dlc_status rc = DLC_OK;
    if (fstat(fileno(file), &info) != 0)
        rc = fail_read(path);
    else if (!S_ISREG(info.st_mode) || info.st_size < 8 || info.st_size > FILE_MOST)
        rc = host->fail(DLC_ERR_DATA, "%s: not a regular file of 8 bytes to 1 GiB",
                        path);
    else
        rc = buffer_need(out, (size_t)info.st_size);
    if (rc == DLC_OK && fread(out->bytes, 1, out->size, file) != out->size)
        rc = host->fail(DLC_ERR_DATA, "%s: cannot be read whole", path);
    (void)fclose(file);
    return rc;
}

static dlc_status take_size(const char *path, int64_t width, int64_t height,
                            int head_only, picture *out) {
    if (width < 1 || height < 1 || width > SIDE_MOST || height > SIDE_MOST)
        return host->fail(
            DLC_ERR_DATA,
            "%s: has %lld x %lld pixels; width and height must be 1 to %d", path,
            (long long)width, (long long)height, SIDE_MOST);
    out->width = (int32_t)width;
    out->height = (int32_t)height;
    return head_only ? DLC_OK
                     : buffer_need(&out->pixels, (size_t)width * (size_t)height *
                                                     (size_t)out->channels);
}

/* ---- The two formats -------------------------------------------------------- */

static dlc_status fail_jpeg(const char *path, tjhandle reader) {
    return host->fail(DLC_ERR_DATA, "%s: damaged JPEG: %s", path,
                      tjGetErrorStr2(reader));
}

/* TJFLAG_STOPONWARNING makes tjDecompress2 fail for a truncated file, instead of
 * filling the rest with grey. */
static dlc_status read_jpeg(const char *path, const buffer *file, int head_only,
                            picture *out) {
    int width = 0, height = 0, sampling = 0, colours = 0;
    tjhandle reader = tjInitDecompress();
    dlc_status rc = DLC_ERR_NOMEM;
    if (!reader)
        return rc;
    if (tjDecompressHeader3(reader, file->bytes, file->size, &width, &height, &sampling,
                            &colours) != 0)
        rc = fail_jpeg(path, reader);
    else
        rc = take_size(path, width, height, head_only, out);
    if (rc == DLC_OK && !head_only &&
        tjDecompress2(reader, file->bytes, file->size, out->pixels.bytes, width, 0,
                      height, out->channels == 1 ? TJPF_GRAY : TJPF_RGB,
                      TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING) != 0)
        rc = fail_jpeg(path, reader);
    (void)tjDestroy(reader);
    return rc;
}

/* Transparent pixels become black. */
static dlc_status read_png(const char *path, const buffer *file, int head_only,
                           picture *out) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    const png_color black = {0, 0, 0};
    dlc_status rc = DLC_OK;
    if (png_image_begin_read_from_memory(&image, file->bytes, file->size))
        rc = take_size(path, image.width, image.height, head_only, out);
    image.format = out->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    if (rc == DLC_OK && !head_only && !PNG_IMAGE_FAILED(image))
        (void)png_image_finish_read(&image, &black, out->pixels.bytes, 0, NULL);
    if (rc == DLC_OK && PNG_IMAGE_FAILED(image))
        rc = host->fail(DLC_ERR_DATA, "%s: damaged PNG: %s", path, image.message);
    png_image_free(&image);
    return rc;
}

dlc_status picture_read(const char *path, int32_t channels, int head_only, buffer *file,
                        picture *out) {
    static const unsigned char png[] = {0x89, 'P', 'N', 'G'}, jpeg[] = {0xff, 0xd8};
    dlc_status rc = read_file(path, file);
    if (rc != DLC_OK)
        return rc;
    out->channels = channels;
    if (memcmp(file->bytes, jpeg, sizeof jpeg) == 0)
        return read_jpeg(path, file, head_only, out);
    if (memcmp(file->bytes, png, sizeof png) == 0)
        return read_png(path, file, head_only, out);
    return host->fail(DLC_ERR_DATA, "%s: neither JPEG nor PNG", path);
}
