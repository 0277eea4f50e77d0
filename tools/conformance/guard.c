/* Keeps a list of guarded memory. */
#include "guard.h"

#include "base/memory.h"

typedef struct guarded {
    const void *owner;
    unsigned char *begin;
    size_t bytes, id;
    const char *what;
} guarded;

static guarded *all;
static size_t count, ids;

/* Two bytes each: NaN as bfloat16, as half precision, and two of them as float32. */
static unsigned char guard_byte(size_t id, size_t i) {
    enum { PAYLOADS = 0x3e, LEAST = 0xc1, TOP = 0xff };
    return (unsigned char)(i % 2 ? TOP : LEAST + id % PAYLOADS);
}

void guard_fill(unsigned char *guard, size_t id) {
    for (size_t i = 0; i < GUARD_BYTES; i++)
        guard[i] = guard_byte(id, i);
}

int guard_is_whole(const unsigned char *guard, size_t id) {
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != guard_byte(id, i))
            return 0;
    return 1;
}

void *guard_place(suite_run *run, const void *owner, void *base, size_t bytes,
                  const char *what) {
    guarded *grown = dlc_grow_by_one(all, count, sizeof *grown);
    if (!grown)
        suite_skip(run, "out of memory");
    all = grown;
    guarded *made = &all[count++];
    *made = (guarded){owner, (unsigned char *)base + GUARD_BYTES, bytes, ids++, what};
    guard_fill(base, made->id);
    guard_fill(made->begin + bytes, made->id);
    return made->begin;
}

void guard_drop(const void *owner) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (all[i].owner != owner)
            all[kept++] = all[i];
    count = kept;
}

void guard_check(suite_run *run, const char *call) {
    for (size_t i = 0; i < count; i++) {
        const guarded *one = &all[i];
        if (!guard_is_whole(one->begin - GUARD_BYTES, one->id))
            suite_fail(run, "%s writes before the begin of its %s", call, one->what);
        if (!guard_is_whole(one->begin + one->bytes, one->id))
            suite_fail(run, "%s writes beyond the end of its %s", call, one->what);
    }
}
