/* The table of roles. What becomes of their values is in load_fields.c. */
#include "data/roles.h"

#define U8 (1u << DLC_U8)
#define F32 (1u << DLC_F32)
#define I32 (1u << DLC_I32)

static const dlc_role_kind roles[] = {
    {DLC_ROLE_IMAGE, "an image", U8 | F32, 3, 0, DLC_F32},
    {DLC_ROLE_CLASS, "a class", I32, 0, 0, DLC_I32},
    {DLC_ROLE_CLASSES, "several classes", U8, 1, 0, DLC_F32},
    {DLC_ROLE_VECTOR, "numbers", F32, 0, 0, DLC_F32},
    {DLC_ROLE_MASK, "a mask", U8, 2, 0, DLC_I32},
    {DLC_ROLE_TOKENS, "tokens", I32, 0, 0, DLC_I32},
    {DLC_ROLE_BOXES, "boxes", F32, 2, DLC_BOX_VALUES, DLC_F32},
};

const dlc_role_kind *dlc_role_find(uint32_t role) {
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i].role == role)
            return &roles[i];
    return NULL;
}
