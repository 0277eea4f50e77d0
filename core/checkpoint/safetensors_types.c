/* The element types of the safetensors format. */
#include <string.h>

#include "checkpoint/safetensors_format.h"

static const dlc_format_type types[] = {
    {"F32", 4, DLC_F32},
    {"BF16", 2, DLC_BF16},
    {"F16", 2, DLC_F16},
    {"F64", 8, DLC_F64},
    {"I32", 4, DLC_I32},
    {"I64", 8, DLC_I64},
    {"U8", 1, DLC_U8},
    {"BOOL", 1, (dlc_dtype)0},
    {"I8", 1, (dlc_dtype)0},
    {"I16", 2, (dlc_dtype)0},
    {"U16", 2, (dlc_dtype)0},
    {"U32", 4, (dlc_dtype)0},
    {"U64", 8, (dlc_dtype)0},
    {"F8_E5M2", 1, (dlc_dtype)0},
    {"F8_E4M3", 1, (dlc_dtype)0},
};

#define TYPES (sizeof types / sizeof *types)

const dlc_format_type *dlc_format_type_find(const char *text) {
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(text, types[i].text) == 0)
            return &types[i];
    return NULL;
}

const dlc_format_type *dlc_format_type_of(dlc_dtype dtype) {
    for (size_t i = 0; dtype && i < TYPES; i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return NULL;
}
