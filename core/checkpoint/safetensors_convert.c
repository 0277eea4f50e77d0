/* Reads tensors of other floating-point types as float32, which every one of them but
 * float64 fits into exactly. Values are little endian, like this machine's. */
#include <string.h>

#include "base/memory.h"
#include "checkpoint/safetensors_file.h"

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_bf16(uint16_t bits) {
    return from_bits((uint32_t)bits << 16);
}

/* Normal numbers differ in the exponent's bias, subnormal ones are multiples of 2^-24.
 */
static float from_f16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float value = (float)fraction * 0x1p-24f;
    return sign ? -value : value;
}

static void convert(dlc_dtype dtype, const void *from, size_t count, float *to) {
    for (size_t i = 0; i < count; i++) {
        if (dtype == DLC_BF16)
            to[i] = from_bf16(((const uint16_t *)from)[i]);
        else if (dtype == DLC_F16)
            to[i] = from_f16(((const uint16_t *)from)[i]);
        else
            to[i] = (float)((const double *)from)[i];
    }
}

int dlc_safetensor_is_real(const dlc_safetensor *tensor) {
    return tensor->dtype == DLC_F32 || tensor->dtype == DLC_F16 ||
           tensor->dtype == DLC_BF16 || tensor->dtype == DLC_F64;
}

dlc_status dlc_safetensors_read_f32(const dlc_safetensors *file,
                                    const dlc_safetensor *tensor, float **values) {
    size_t count = (size_t)dlc_shape_count(&tensor->shape);
    void *raw = NULL;
    DLC_TRY(
        dlc_safetensors_read(file, tensor->name, tensor->dtype, &tensor->shape, &raw));
    if (tensor->dtype == DLC_F32) {
        *values = raw;
        return DLC_OK;
    }
    float *made = dlc_alloc(count, sizeof *made);
    if (made)
        convert(tensor->dtype, raw, count, made);
    dlc_free(raw);
    if (!made)
        return DLC_ERR_NOMEM;
    *values = made;
    return DLC_OK;
}
