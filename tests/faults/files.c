/* Writes IDX and CIFAR files, checkpoints, and damaged variants of them. */
#include "files.h"

#include <check.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include "support/scratch.h"

enum { COUNT = 40, SIDE = 8, PIXELS = SIDE * SIDE, CIFAR_RECORD = 1 + 3072 };

static void put_u32(unsigned char *at, uint32_t value) {
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static size_t make_images(unsigned char *bytes, uint32_t count) {
    put_u32(bytes, 0x00000803);
    put_u32(bytes + 4, count);
    put_u32(bytes + 8, SIDE);
    put_u32(bytes + 12, SIDE);
    for (size_t i = 0; i < COUNT * PIXELS; i++)
        bytes[16 + i] = (unsigned char)(i * 37);
    return 16 + COUNT * PIXELS;
}

static size_t make_labels(unsigned char *bytes) {
    put_u32(bytes, 0x00000801);
    put_u32(bytes + 4, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        bytes[8 + i] = (unsigned char)(i % 4);
    return 8 + COUNT;
}

static void write_packed(const char *name, const unsigned char *bytes, size_t size,
                         size_t damage_at) {
    static unsigned char packed[1 << 16];
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)bytes,
                       .avail_in = (unsigned)size,
                       .next_out = packed,
                       .avail_out = sizeof packed};
    ck_assert_int_eq(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, 0), Z_OK);
    ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t length = stream.total_out;
    deflateEnd(&stream);
    if (damage_at)
        packed[length - damage_at] ^= 0x20;
    scratch_write(name, packed, length);
    scratch_write("short.gz", packed, length / 2);
}

static void write_idx(void) {
    static unsigned char images[16 + COUNT * PIXELS + 1], labels[8 + COUNT];
    size_t size = make_images(images, COUNT), labelled = make_labels(labels);
    scratch_write("images", images, size);
    scratch_write("labels", labels, labelled);
    scratch_write("images-short", images, size - 1);
    scratch_write("images-long", images, size + 1);
    scratch_write("images-header", images, 9);
    scratch_write("empty", images, 0);
    make_images(images, COUNT - 1);
    scratch_write("images-one-less", images, size - PIXELS);
    make_images(images, 0xfffffff0);
    scratch_write("images-huge", images, size);
    make_images(images, 0);
    scratch_write("images-none", images, 16);
    make_images(images, COUNT);
    images[2] = 0x0b; /* 16-bit integers */
    scratch_write("images-type", images, size);
    images[0] = 1;
    scratch_write("images-magic", images, size);
    make_images(images, COUNT);
    write_packed("images.gz", images, size, 0);
    write_packed("images-crc.gz", images, size, 6);
    labels[8 + 7] = 200;
    scratch_write("labels-wild", labels, labelled);
}

static void write_cifar(void) {
    static unsigned char batch[4 * CIFAR_RECORD];
    for (size_t i = 0; i < sizeof batch; i++)
        batch[i] = (unsigned char)(i * 11);
    for (size_t i = 0; i < 4; i++)
        batch[i * CIFAR_RECORD] = (unsigned char)i;
    scratch_write("batch.bin", batch, sizeof batch);
    scratch_write("batch-short.bin", batch, sizeof batch - 1);
    batch[2 * CIFAR_RECORD] = 10;
    scratch_write("batch-label.bin", batch, sizeof batch);
}

/* Writes a file with this safetensors header and so many bytes of data. */
static void write_checkpoint(const char *name, const char *header, size_t data) {
    unsigned char bytes[1024] = {0};
    size_t length = strlen(header);
    ck_assert_uint_lt(8 + length + data, sizeof bytes);
    bytes[0] = (unsigned char)(length & 255);
    bytes[1] = (unsigned char)(length >> 8);
    memcpy(bytes + 8, header, length);
    scratch_write(name, bytes, 8 + length + data);
}

static void write_checkpoints(void) {
    const unsigned char long_header[8] = {255, 255, 255, 255, 255, 255, 255, 127};
    scratch_write("long.safetensors", long_header, sizeof long_header);
    write_checkpoint("json.safetensors", "{\"a\":", 0);
    write_checkpoint("other.safetensors",
                     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                     8);
    write_checkpoint("shape.safetensors",
                     "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}",
                     8);
    write_checkpoint("twice.safetensors",
                     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                     "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                     8);
    write_checkpoint("cut.safetensors",
                     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                     7);
    write_checkpoint(
        "ip.safetensors",
        "{\"ip.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
}

void files_write(void) {
    write_idx();
    write_cifar();
    write_checkpoints();
    scratch_write("net.bin", "\0\1\2", 3);
}
