/* Writes JPEG files to memory. libjpeg reports errors by longjmp: everything that must
 * be released is in `writer`. */
#include "encode.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

typedef struct writer {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf jump;
    unsigned char *bytes; /* of malloc */
    unsigned long count;
} writer;

__attribute__((noreturn)) static void fail(j_common_ptr common) {
    writer *w = common->client_data;
    longjmp(w->jump, 1);
}

static void write_rows(writer *w, const dlc_encode_args *args) {
    jpeg_create_compress(&w->jpeg);
    jpeg_mem_dest(&w->jpeg, &w->bytes, &w->count);
    w->jpeg.image_width = (JDIMENSION)args->width;
    w->jpeg.image_height = (JDIMENSION)args->height;
    w->jpeg.input_components = args->channels;
    w->jpeg.in_color_space = args->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&w->jpeg);
    jpeg_set_quality(&w->jpeg, args->quality, TRUE);
    jpeg_start_compress(&w->jpeg, TRUE);
    size_t row_bytes = (size_t)args->width * (size_t)args->channels;
    for (int32_t y = 0; y < args->height; y++) {
        /* libjpeg only reads them. */
        JSAMPROW row = (JSAMPROW)(uintptr_t)(args->pixels + (size_t)y * row_bytes);
        (void)jpeg_write_scanlines(&w->jpeg, &row, 1);
    }
    jpeg_finish_compress(&w->jpeg);
}

/* Is everything written? */
static int try_rows(writer *w, const dlc_encode_args *args) {
    if (setjmp(w->jump))
        return 0;
    write_rows(w, args);
    return 1;
}

dlc_status jpeg_encode(const dlc_host *host, const dlc_encode_args *args,
                       unsigned char **bytes, uint64_t *count) {
    writer w = {.bytes = NULL};
    w.jpeg.err = jpeg_std_error(&w.errors);
    w.jpeg.client_data = &w;
    w.errors.error_exit = fail;
    int is_written = try_rows(&w, args);
    unsigned char *made = is_written ? host->alloc(w.count) : NULL;
    if (made) {
        memcpy(made, w.bytes, w.count);
        *bytes = made;
        *count = w.count;
    }
    jpeg_destroy_compress(&w.jpeg);
    free(w.bytes);
    if (is_written)
        return made ? DLC_OK : DLC_ERR_NOMEM;
    return host->fail(DLC_ERR_NOMEM, "out of memory to write a JPEG file");
}
