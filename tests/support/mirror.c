/* Wraps a device's operations so that they take host pointers: copies operands in and
 * out around each call, with guard bytes around them. */
#include "support/mirror.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plugins.h"
#include "support/test.h"

enum { GUARD = 64, ALIGN = 64, OPERANDS_MAX = 64, ROOM = 32 << 20, FILLING = 0xa5 };

/* An operand in host memory, and its copy on the device during a call. */
typedef struct operand {
    void *host;
    size_t bytes;
    size_t at; /* in the arena */
    int written;
} operand;

static struct {
    const dlc_device_ops *real;
    dlc_memory arena;
    unsigned char *staging; /* of the same size */
    size_t used;
    int operands;
    operand operand[OPERANDS_MAX];
} m;

static const char *device_name(void) {
    const char *name = getenv("DLCORE_TEST_DEVICE");
    return name ? name : "cpu";
}

int mirror_begin(int argc, char **argv) {
    (void)argc, (void)argv;
    const dlc_feature *feature;
    int found = 0;
    for (size_t i = 0; !found && (feature = plugin_at(DLC_KIND_DEVICE, i)); i++)
        found = strcmp(feature->name, device_name()) == 0;
    plugins_close();
    if (found)
        return TESTS_RUN;
    printf("skipped: no usable device %s\n", device_name());
    return TESTS_SKIPPED;
}

/* ---- One call ---------------------------------------------------------------- */

static void copy(dlc_device *device, void *dst, const void *src, size_t bytes) {
    ck_assert_int_eq(m.real->copy(device, NULL, dst, src, bytes), DLC_OK);
}

static void begin(void) {
    m.used = 0;
    m.operands = 0;
}

/* The device address of `bytes` at a host address; the same one for the same operand.
 */
static void *device_address(const void *host, size_t bytes, int written) {
    for (int i = 0; i < m.operands; i++)
        if (m.operand[i].host == host && m.operand[i].bytes == bytes) {
            m.operand[i].written |= written;
            return (char *)m.arena.base + m.operand[i].at;
        }
    size_t at = (m.used + GUARD + ALIGN - 1) / ALIGN * ALIGN + (uintptr_t)host % ALIGN;
    ck_assert(m.operands < OPERANDS_MAX && at + bytes + GUARD <= ROOM);
    memset(m.staging + m.used, FILLING, at + bytes + GUARD - m.used);
    if (bytes > 0)
        memcpy(m.staging + at, host, bytes);
    m.operand[m.operands++] = (operand){(void *)host, bytes, at, written};
    m.used = at + bytes + GUARD;
    return (char *)m.arena.base + at;
}

static void *in(const void *host, size_t bytes) {
    return device_address(host, bytes, 0);
}

static void *out(void *host, size_t bytes) {
    return device_address(host, bytes, 1);
}

static void copy_in(dlc_device *device) {
    if (m.used > 0)
        copy(device, m.arena.base, m.staging, m.used);
}

static dlc_status copy_out(dlc_device *device, dlc_status status) {
    size_t before = 0;
    if (m.used > 0)
        copy(device, m.staging, m.arena.base, m.used);
    for (int i = 0; i <= m.operands; i++) {
        const operand *p = &m.operand[i];
        size_t next = i < m.operands ? p->at : m.used;
        for (size_t k = before; k < next; k++)
            if (m.staging[k] != FILLING)
                ck_abort_msg(
                    "byte %zu of the device's memory was written, %zu after the "
                    "end of an operand",
                    k, k - before);
        if (i == m.operands)
            break;
        before = p->at + p->bytes;
        if (p->written && p->bytes > 0)
            memcpy(p->host, m.staging + p->at, p->bytes);
        else if (p->bytes > 0 && memcmp(p->host, m.staging + p->at, p->bytes) != 0)
            ck_abort_msg("a source was changed");
    }
    return status;
}

/* ---- Operations -------------------------------------------------------------- */

static dlc_status mirror_open(const dlc_device_args *args, dlc_device **device) {
    dlc_status status = m.real->open(args, device);
    if (status != DLC_OK)
        return status;
    m.arena = (dlc_memory){.size = sizeof m.arena};
    m.staging = malloc(ROOM);
    ck_assert_ptr_nonnull(m.staging);
    ck_assert_int_eq(m.real->alloc(*device, ROOM, 0, &m.arena), DLC_OK);
    return status;
}

static void mirror_close(dlc_device *device) {
    if (!device)
        return;
    m.real->free(device, &m.arena);
    free(m.staging);
    m.real->close(device);
}

static dlc_status mirror_copy(dlc_device *device, dlc_queue *queue, void *dst,
                              const void *src, size_t bytes) {
    begin();
    void *from = in(src, bytes), *to = out(dst, bytes);
    copy_in(device);
    return copy_out(device, m.real->copy(device, queue, to, from, bytes));
}

static dlc_status mirror_fill(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                              size_t bytes) {
    begin();
    void *to = out(dst, bytes);
    copy_in(device);
    return copy_out(device, m.real->fill(device, queue, to, byte, bytes));
}

static dlc_status mirror_scale(dlc_device *device, dlc_queue *queue, size_t n,
                               float alpha, float *x) {
    begin();
    float *on_device = out(x, n * sizeof *x);
    copy_in(device);
    return copy_out(device, m.real->scale(device, queue, n, alpha, on_device));
}

static dlc_status mirror_add(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *x, float *y) {
    begin();
    float *from = in(x, n * sizeof *x), *to = out(y, n * sizeof *y);
    copy_in(device);
    return copy_out(device, m.real->add(device, queue, n, from, to));
}

static dlc_status mirror_axpy(dlc_device *device, dlc_queue *queue, size_t n,
                              float alpha, const float *x, float *y) {
    begin();
    float *from = in(x, n * sizeof *x), *to = out(y, n * sizeof *y);
    copy_in(device);
    return copy_out(device, m.real->axpy(device, queue, n, alpha, from, to));
}

static dlc_status mirror_add_bf16(dlc_device *device, dlc_queue *queue, size_t n,
                                  const uint16_t *x, uint16_t *y) {
    begin();
    uint16_t *from = in(x, n * sizeof *x), *to = out(y, n * sizeof *y);
    copy_in(device);
    return copy_out(device, m.real->add_bf16(device, queue, n, from, to));
}

static dlc_status mirror_add_f16(dlc_device *device, dlc_queue *queue, size_t n,
                                 const uint16_t *x, uint16_t *y) {
    begin();
    uint16_t *from = in(x, n * sizeof *x), *to = out(y, n * sizeof *y);
    copy_in(device);
    return copy_out(device, m.real->add_f16(device, queue, n, from, to));
}

static dlc_status mirror_convert(dlc_device *device, dlc_queue *queue, size_t n,
                                 dlc_dtype from, const void *src, dlc_dtype to,
                                 void *dst) {
    begin();
    void *on_device = in(src, n * dlc_dtype_bytes(from));
    void *to_device = out(dst, n * dlc_dtype_bytes(to));
    copy_in(device);
    return copy_out(device,
                    m.real->convert(device, queue, n, from, on_device, to, to_device));
}

static dlc_status mirror_sum_to(dlc_device *device, dlc_queue *queue, size_t n,
                                const float *const *sources, int32_t count,
                                float *const *dsts, int32_t dst_count) {
    const float *from[OPERANDS_MAX];
    float *to[OPERANDS_MAX];
    if (count < 1 || dst_count < 1)
        return m.real->sum_to(device, queue, n, sources, count, dsts, dst_count);
    ck_assert(count <= OPERANDS_MAX && dst_count <= OPERANDS_MAX);
    begin();
    for (int32_t i = 0; i < count; i++)
        from[i] = in(sources[i], n * sizeof(float));
    for (int32_t i = 0; i < dst_count; i++)
        to[i] = out(dsts[i], n * sizeof(float));
    copy_in(device);
    return copy_out(device,
                    m.real->sum_to(device, queue, n, from, count, to, dst_count));
}

static dlc_status mirror_sum(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *const *sources, int32_t count, float *dst) {
    const float *from[OPERANDS_MAX];
    if (count < 1)
        return m.real->sum(device, queue, n, sources, count, dst);
    ck_assert(count <= OPERANDS_MAX);
    begin();
    for (int32_t i = 0; i < count; i++)
        from[i] = in(sources[i], n * sizeof(float));
    float *to = out(dst, n * sizeof(float));
    copy_in(device);
    return copy_out(device, m.real->sum(device, queue, n, from, count, to));
}

static dlc_status mirror_square_sums(dlc_device *device, dlc_queue *queue, size_t n,
                                     const float *x, double *sums) {
    size_t pieces = (n + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
    begin();
    float *on_device = in(x, n * sizeof *x);
    double *to = out(sums, pieces * sizeof *sums);
    copy_in(device);
    return copy_out(device, m.real->square_sums(device, queue, n, on_device, to));
}

static dlc_status mirror_total(dlc_device *device, dlc_queue *queue, size_t n,
                               const double *sums, double *total) {
    begin();
    double *from = in(sums, n * sizeof *sums), *to = out(total, sizeof *total);
    copy_in(device);
    return copy_out(device, m.real->total(device, queue, n, from, to));
}

/* An update with its pointers, and its slots, in the device's memory. */
static dlc_update update_in(const dlc_update *update, size_t n, float *const *slots,
                            float **on_device) {
    dlc_update made = *update;
    if (update->values_at)
        made.values_at = in(update->values_at, sizeof *update->values_at);
    if (update->loss_scale)
        made.loss_scale = in(update->loss_scale, sizeof *update->loss_scale);
    if (update->gradient_square)
        made.gradient_square = in(update->gradient_square, sizeof(double));
    if (update->weight_square)
        made.weight_square = in(update->weight_square, sizeof(double));
    if (update->norm_square)
        made.norm_square = in(update->norm_square, sizeof(double));
    for (int32_t k = 0; k < update->rule->slots; k++)
        on_device[k] = out(slots[k], n * sizeof(float));
    return made;
}

static dlc_status mirror_update(dlc_device *device, dlc_queue *queue, size_t n,
                                const dlc_update *update, const float *gradient,
                                float *const *slots, float *weight) {
    float *s[DLC_MAX_SLOTS];
    begin();
    dlc_update on_device = update_in(update, n, slots, s);
    float *g = in(gradient, n * sizeof *g), *w = out(weight, n * sizeof *w);
    copy_in(device);
    return copy_out(device, m.real->update(device, queue, n, &on_device, g, s, w));
}

static dlc_status mirror_update_to(dlc_device *device, dlc_queue *queue, size_t n,
                                   const dlc_update *update,
                                   const float *const *gradients, int32_t count,
                                   float *const *slots, float *const *weights,
                                   int32_t weight_count) {
    float *s[DLC_MAX_SLOTS], *to[OPERANDS_MAX];
    const float *from[OPERANDS_MAX];
    if (count < 1 || weight_count < 1)
        return m.real->update_to(device, queue, n, update, gradients, count, slots,
                                 weights, weight_count);
    ck_assert(count <= OPERANDS_MAX && weight_count <= OPERANDS_MAX);
    begin();
    dlc_update on_device = update_in(update, n, slots, s);
    for (int32_t i = 0; i < count; i++)
        from[i] = in(gradients[i], n * sizeof(float));
    for (int32_t i = 0; i < weight_count; i++)
        to[i] = out(weights[i], n * sizeof(float));
    copy_in(device);
    return copy_out(device, m.real->update_to(device, queue, n, &on_device, from, count,
                                              s, to, weight_count));
}

static dlc_status mirror_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                                  const float *x, float *y) {
    begin();
    float *from = in(x, 2 * sizeof *x), *to = out(y, sizeof *y);
    copy_in(device);
    return copy_out(device, m.real->add_mean(device, queue, alpha, from, to));
}

static dlc_status mirror_update_loss_scale(dlc_device *device, dlc_queue *queue,
                                           const double *square, int32_t patience,
                                           dlc_loss_scale *scale) {
    begin();
    double *from = in(square, sizeof *square);
    dlc_loss_scale *on_device = out(scale, sizeof *scale);
    copy_in(device);
    return copy_out(
        device, m.real->update_loss_scale(device, queue, from, patience, on_device));
}

static dlc_status mirror_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                                   size_t plane, size_t channels, const uint8_t *src,
                                   const float *mean, const float *scale, float *dst) {
    begin();
    uint8_t *from = in(src, n);
    float *means = in(mean, channels * sizeof *mean),
          *scales = in(scale, channels * sizeof *scale),
          *to = out(dst, n * sizeof *dst);
    copy_in(device);
    return copy_out(device, m.real->normalize(device, queue, n, plane, channels, from,
                                              means, scales, to));
}

static dlc_device_ops mirrored = {
    .size = sizeof mirrored,
    .open = mirror_open,
    .close = mirror_close,
    .copy = mirror_copy,
    .fill = mirror_fill,
    .scale = mirror_scale,
    .add = mirror_add,
    .axpy = mirror_axpy,
    .convert = mirror_convert,
    .sum = mirror_sum,
    .square_sums = mirror_square_sums,
    .total = mirror_total,
    .update = mirror_update,
    .add_bf16 = mirror_add_bf16,
    .sum_to = mirror_sum_to,
    .add_mean = mirror_add_mean,
    .add_f16 = mirror_add_f16,
    .update_loss_scale = mirror_update_loss_scale,
    .normalize = mirror_normalize,
};

const dlc_device_ops *mirror_ops(void) {
    const dlc_feature *feature = plugin_find(DLC_KIND_DEVICE, device_name());
    m.real = feature->ops;
    if ((feature->caps & DLC_DEVICE_HOST) && !getenv("DLCORE_TEST_MIRROR"))
        return m.real;
    mirrored.update_to = DLC_CAN(m.real, update_to) ? mirror_update_to : NULL;
    return &mirrored;
}
