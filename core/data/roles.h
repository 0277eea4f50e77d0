/* The roles of fields: what a source may give as one, and the type that a net reads. */
#ifndef DLC_DATA_ROLES_H
#define DLC_DATA_ROLES_H

#include <dlcore/data.h>

typedef struct dlc_role_kind {
    dlc_role role;
    const char *name;
    uint32_t dtypes; /* of a source's values: bit d: dlc_dtype d is allowed */
    int32_t rank;    /* of their shape; 0: any */
    int64_t columns; /* its last dimension; 0: any */
    dlc_dtype dtype; /* in a batch */
} dlc_role_kind;

/* NULL: there is no such role. */
const dlc_role_kind *dlc_role_find(uint32_t role);

#endif
