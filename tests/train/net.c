/* Writes the net, and compares checkpoints and files. */
#include "net.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/scratch.h"

static const char *const sections =
    "[net]\nname = small\n"
    "[data]\nsource = synthetic\nshape = 1,12,12\nclasses = 4\nsamples = 600\n"
    "batch = 24\ntransforms = normalize(scale=0.00390625)\n"
    "[data.test]\nsource = synthetic\nshape = 1,12,12\nclasses = 4\nsamples = 130\n"
    "first = 1000\nbatch = 32\ntransforms = normalize(scale=0.00390625)\n"
    "[solver]\ntype = sgd\nlearning_rate = 0.02\nmomentum = 0.9\nweight_decay = 0.0005\n"
    "policy = inv\ngamma = 0.001\npower = 0.75\n"
    "[conv1]\ntype = convolution\nnum_output = 6\nkernel_size = 3\n"
    "[pool1]\ntype = pooling\nkernel_size = 2\nstride = 2\n"
    "[norm1]\ntype = batch_norm\n"
    "[relu1]\ntype = relu\n"
    "[ip1]\ntype = inner_product\nnum_output = 16\n"
    "[drop1]\ntype = dropout\nratio = 0.25\n"
    "[ip2]\ntype = inner_product\nnum_output = 4\n"
    "[accuracy]\ntype = accuracy\n"
    "[loss]\ntype = softmax_loss\n";

const char *net_write(const char *more) {
    static char text[4096];
    const char *device = getenv("NET_DEVICE");
    snprintf(text, sizeof text, "%s[train]\n%s%s\n%s", sections,
             device ? "device = " : "", device ? device : "", more);
    static char path[4096];
    snprintf(path, sizeof path, "%s", scratch_write("net.ini", text, strlen(text)));
    return path;
}

const char *net_folder(void) {
    static char folder[4096];
    snprintf(folder, sizeof folder, "%s", scratch_path("x"));
    *strrchr(folder, '/') = '\0';
    return folder;
}

typedef struct whole_file {
    unsigned char *bytes;
    size_t size;
} whole_file;

static whole_file read_file(const char *path) {
    whole_file whole = {NULL, 0};
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is not there", path);
    fseek(file, 0, SEEK_END);
    whole.size = (size_t)ftell(file);
    rewind(file);
    whole.bytes = malloc(whole.size + 1);
    ck_assert_ptr_nonnull(whole.bytes);
    ck_assert_uint_eq(fread(whole.bytes, 1, whole.size, file), whole.size);
    fclose(file);
    return whole;
}

static size_t data_begin(const whole_file *whole) {
    uint64_t header;
    ck_assert_uint_gt(whole->size, sizeof header);
    memcpy(&header, whole->bytes, sizeof header);
    return sizeof header + (size_t)header;
}

int net_same_tensors(const char *one, const char *other) {
    whole_file a = read_file(one), b = read_file(other);
    size_t begin_a = data_begin(&a), begin_b = data_begin(&b);
    size_t size = a.size - begin_a;
    ck_assert_uint_gt(size, 0);
    int same = size == b.size - begin_b &&
               memcmp(a.bytes + begin_a, b.bytes + begin_b, size) == 0;
    free(a.bytes);
    free(b.bytes);
    return same;
}

double net_number(const char *json, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *found = strstr(json, quoted);
    ck_assert_msg(found != NULL, "no \"%s\" in %s", key, json);
    return strtod(found + strlen(quoted), NULL);
}
