#include "shadow.h"

#include <string.h>

#include "base/memory.h"

enum { GUARD = 64, FILLING = 0xa5 };

struct shadow {
    shadow *next;
    char *host;
    size_t bytes;
    char *at;          /* on the device */
    dlc_memory memory; /* own; none where it is attached, or a piece of that */
    int attached;      /* the host memory is ours */
    dlc_request *request;
    int into;
};

static void copy(const group *g, void *dst, const void *src, size_t bytes) {
    RANK_OK(g->rank, g->device_ops->copy(g->device, NULL, dst, src, bytes));
}

static shadow *add(group *g, void *host, size_t bytes) {
    shadow *s = dlc_alloc(1, sizeof *s);
    RANK_CHECK(g->rank, s);
    *s = (shadow){.next = g->shadows, .host = host, .bytes = bytes};
    s->memory.size = sizeof s->memory;
    g->shadows = s;
    return s;
}

static void drop(group *g, shadow *s) {
    shadow **place = &g->shadows;
    while (*place != s)
        place = &(*place)->next;
    *place = s->next;
    if (s->attached)
        dlc_free(s->host);
    else if (s->memory.base)
        g->device_ops->free(g->device, &s->memory);
    dlc_free(s);
}

void *shadow_attached(group *g, const dlc_memory *memory) {
    char *host = dlc_alloc(memory->bytes, 1);
    RANK_CHECK(g->rank, host);
    shadow *s = add(g, host, memory->bytes);
    s->at = memory->base;
    s->attached = 1;
    return host;
}

/* ---- Pieces ------------------------------------------------------------------ */

/* One more element before and behind goes with it, where there is one. */
static void widen(const shadow *s, char **host, size_t *bytes) {
    size_t before = *host - s->host >= 4 ? 4 : 0;
    size_t left = (size_t)(s->host + s->bytes - *host) - *bytes;
    *host -= before;
    *bytes += before + (left >= 4 ? 4 : 0);
}

/* The attached one that has these bytes. */
static shadow *find(const group *g, const char *host, size_t bytes) {
    for (shadow *s = g->shadows; s; s = s->next)
        if (s->attached && host >= s->host && host + bytes <= s->host + s->bytes)
            return s;
    return NULL;
}

static shadow *make(group *g, char *host, size_t bytes) {
    size_t offset = GUARD + (uintptr_t)host % GUARD, room = bytes + (size_t)3 * GUARD;
    shadow *s = add(g, host, bytes);

    RANK_OK(g->rank, g->device_ops->alloc(g->device, room, 0, &s->memory));
    RANK_OK(g->rank,
            g->device_ops->fill(g->device, NULL, s->memory.base, FILLING, room));
    s->at = (char *)s->memory.base + offset;
    copy(g, s->at, host, bytes);
    return s;
}

static void check_guards(const group *g, const shadow *s) {
    unsigned char around[2 * GUARD];
    copy(g, around, s->at - GUARD, GUARD);
    copy(g, around + GUARD, s->at + s->bytes, GUARD);
    for (int i = 0; i < 2 * GUARD; i++)
        RANK_CHECK(g->rank, around[i] == FILLING);
}

shadow *shadow_begin(group *g, void *host, size_t bytes, void **at) {
    char *begin = host;
    shadow *s = find(g, begin, bytes);

    if (s) {
        *at = s->at + (begin - s->host);
        widen(s, &begin, &bytes);
        copy(g, s->at + (begin - s->host), begin, bytes);
        shadow *piece = add(g, begin, bytes);
        piece->at = s->at + (begin - s->host);
        return piece;
    }
    s = make(g, begin, bytes);
    *at = s->at;
    return s;
}

void shadow_end(group *g, shadow *s, int copy_back) {
    if (copy_back)
        copy(g, s->host, s->at, s->bytes);
    if (s->memory.base)
        check_guards(g, s);
    drop(g, s);
}

void shadow_keep(shadow *s, dlc_request *request, int into) {
    s->request = request;
    s->into = into;
}

void shadow_done(group *g, const dlc_request *request, dlc_status status) {
    for (shadow *s = g->shadows; s; s = s->next)
        if (s->request == request) {
            shadow_end(g, s, s->into && status == DLC_OK);
            return;
        }
}

void shadows_free(group *g) {
    while (g->shadows)
        drop(g, g->shadows);
}
