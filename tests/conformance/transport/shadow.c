/* Copies host memory to guarded device memory before a call, and back after it. */
#include "shadow.h"

#include <string.h>

#include "base/memory.h"

enum { GUARD = 64, FILLING = 0xa5 };

struct shadow {
    shadow *next;
    char *host;
    size_t bytes;
    char *at;          /* on the device */
    dlc_memory memory; /* owned; empty for registered memory and parts of it */
    int registered;    /* the host memory is owned */
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

static void shadow_free(group *g, shadow *s) {
    shadow **place = &g->shadows;
    while (*place != s)
        place = &(*place)->next;
    *place = s->next;
    if (s->registered)
        dlc_free(s->host);
    else if (s->memory.base)
        g->device_ops->free(g->device, &s->memory);
    dlc_free(s);
}

void *shadow_registered(group *g, const dlc_memory *memory) {
    char *host = dlc_alloc(memory->bytes, 1);
    RANK_CHECK(g->rank, host);
    shadow *s = add(g, host, memory->bytes);
    s->at = memory->base;
    s->registered = 1;
    return host;
}

/* ---- Pieces ------------------------------------------------------------------ */

/* Extends a piece by one element before and after it, where there is one. */
static void widen(const shadow *s, char **host, size_t *bytes) {
    size_t before = *host - s->host >= 4 ? 4 : 0;
    size_t left = (size_t)(s->host + s->bytes - *host) - *bytes;
    *host -= before;
    *bytes += before + (left >= 4 ? 4 : 0);
}

/* The registered shadow that contains these bytes. */
static shadow *find(const group *g, const char *host, size_t bytes) {
    for (shadow *s = g->shadows; s; s = s->next)
        if (s->registered && host >= s->host && host + bytes <= s->host + s->bytes)
            return s;
    return NULL;
}

static shadow *shadow_new(group *g, char *host, size_t bytes) {
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
    s = shadow_new(g, begin, bytes);
    *at = s->at;
    return s;
}

void shadow_end(group *g, shadow *s, int copy_back) {
    if (copy_back)
        copy(g, s->host, s->at, s->bytes);
    if (s->memory.base)
        check_guards(g, s);
    shadow_free(g, s);
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
        shadow_free(g, g->shadows);
}
