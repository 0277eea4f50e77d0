/* Recognizes PyTorch's, ONNX's, Caffe's, HDF5's and NumPy's files by their first bytes.
 */
#include "known_files.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/read.h"

typedef enum kind {
    UNKNOWN,
    SAFETENSORS,
    TORCH,
    NUMPY,
    ONNX,
    CAFFE_WEIGHTS,
    CAFFE_NET,
    HDF5,
    NET_INI,
} kind;

/* What a file is, and how its weights become a safetensors file. */
static const struct {
    const char *what, *how;
} kinds[] = {
    [SAFETENSORS] = {"a safetensors file", NULL},
    [TORCH] = {"a PyTorch file", "safetensors.torch.save_file(torch.load(...), ...)"},
    [NUMPY] = {"a NumPy archive",
               "safetensors.numpy.save_file(dict(numpy.load(...)), ...)"},
    [ONNX] = {"an ONNX model", "the script in docs/weights.md"},
    [CAFFE_WEIGHTS] = {"a caffemodel", "the script in docs/weights.md"},
    [CAFFE_NET] = {"a Caffe prototxt", NULL},
    [HDF5] = {"an HDF5 file, as Keras writes it", "the script in docs/weights.md"},
    [NET_INI] = {"a net.ini", NULL},
};

/* The beginning of a file; the byte behind it is 0. */
typedef struct head {
    unsigned char bytes[4096 + 1];
    size_t count;
} head;

static int begins(const head *h, size_t at, const char *bytes, size_t count) {
    return h->count >= at + count && memcmp(h->bytes + at, bytes, count) == 0;
}

static int contains(const head *h, const char *text) {
    return memmem(h->bytes, h->count, text, strlen(text)) != NULL;
}

/* The members of an archive say who wrote it; the first ones are near its beginning. */
static kind zip_kind(const head *h) {
    if (contains(h, ".npy"))
        return NUMPY;
    return contains(h, ".pkl") || contains(h, "/version") || contains(h, "/byteorder")
               ? TORCH
               : UNKNOWN;
}

/* Protocol buffers have no mark. A ModelProto of ONNX begins with its version, a small
 * number, a NetParameter of Caffe with a name or with its layers (field 100). */
static kind protobuf_kind(const head *h) {
    enum { VERSIONS = 32, LAYER_0 = 0xa2, LAYER_1 = 0x06 };
    const unsigned char *b = h->bytes;
    if (b[0] == 0x08 && b[1] > 0 && b[1] < VERSIONS &&
        (b[2] == 0x12 || b[2] == 0x1a || b[2] == 0x3a || b[2] == 0x42))
        return ONNX;
    if (b[0] == LAYER_0 && b[1] == LAYER_1)
        return CAFFE_WEIGHTS;
    if (b[0] != 0x0a || b[1] >= 0x80 || b[1] + 4u > h->count)
        return UNKNOWN;
    for (size_t i = 2; i < b[1] + 2u; i++)
        if (!isprint(b[i]))
            return UNKNOWN;
    const unsigned char *next = b + 2 + b[1];
    return (next[0] == LAYER_0 && next[1] == LAYER_1) || next[0] == 0x12 ||
                   next[0] == 0x1a
               ? CAFFE_WEIGHTS
               : UNKNOWN;
}

/* The first thing in a text that is no comment. */
static kind text_kind(const head *h) {
    const char *at = (const char *)h->bytes;
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (*at != '#' && *at != ';')
            break;
        at += strcspn(at, "\n");
    }
    if (*at == '[')
        return NET_INI;
    static const char *const words[] = {
        "name",  "layer",     "layers", "input",     "input_dim",     "input_shape",
        "state", "train_net", "net",    "test_iter", "force_backward"};
    size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
    const char *after = at + length + strspn(at + length, " \t");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && strncmp(at, words[i], length) == 0 &&
            (*after == ':' || *after == '{'))
            return CAFFE_NET;
    return UNKNOWN;
}

static int is_text(const head *h) {
    static const unsigned char blanks[] = {'\t', '\r', '\n', '\f'};
    for (size_t i = 0; i < h->count; i++)
        if (h->bytes[i] < ' ' && !memchr(blanks, h->bytes[i], sizeof blanks))
            return 0;
    return h->count > 0;
}

static kind recognize(const char *path) {
    head h = {.count = 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return UNKNOWN;
    h.count = dlc_read_at(fd, h.bytes, sizeof h.bytes - 1, 0);
    close(fd);
    if (begins(&h, 8, "{", 1) && !is_text(&h))
        return SAFETENSORS;
    if (begins(&h, 0, "PK\3\4", 4))
        return zip_kind(&h);
    if (begins(&h, 0, "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19", 14) ||
        (begins(&h, 0, "\x80", 1) && h.bytes[1] >= 2 && h.bytes[1] <= 5 &&
         contains(&h, "torch")))
        return TORCH; /* before PyTorch 1.6 */
    if (begins(&h, 0, "\x89HDF\r\n\x1a\n", 8))
        return HDF5;
    return is_text(&h) ? text_kind(&h) : protobuf_kind(&h);
}

dlc_status dlc_known_file_check_weights(const char *path) {
    kind is = recognize(path);
    if (is == CAFFE_NET || is == NET_INI)
        return dlc_fail(DLC_ERR_DATA,
                        "%s is %s, a net without weights; --weights takes safetensors "
                        "files",
                        path, kinds[is].what);
    if (is == UNKNOWN || is == SAFETENSORS)
        return DLC_OK;
    return dlc_fail(
        DLC_ERR_DATA,
        "%s is %s, which dlcore does not read: write its tensors to a "
        "safetensors file in Python, by %s, and give that one (docs/weights.md)",
        path, kinds[is].what, kinds[is].how);
}

dlc_status dlc_known_file_check_net(const char *path) {
    kind is = recognize(path);
    if (is == UNKNOWN || is == NET_INI)
        return DLC_OK;
    if (is == CAFFE_NET)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s is a Caffe prototxt, which dlcore does not read: describe the "
            "net in a net.ini with the same layer types (docs/coming-from.md), "
            "or start from one in models/",
            path);
    return dlc_fail(
        DLC_ERR_CONFIG,
        "%s is %s, not a net: give a net.ini first, and weights by --weights", path,
        kinds[is].what);
}
