/* Packs and unpacks graphs. Numbers are varints: seven bits per byte, lowest first;
 * numbers that may be -1 are stored plus one. */
#include "topology/graph.h"

#include <string.h>

#include <dlcore/device.h>

#include "base/text.h"

static const unsigned char magic[4] = {'D', 'L', 'T', '1'};

/* ---- Packing ----------------------------------------------------------------- */

static void pack_bytes(dlc_text *w, const void *from, size_t count) {
    dlc_text_append(w, from, count);
}

static void put_number(dlc_text *w, uint64_t value) {
    do {
        unsigned char low = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        pack_bytes(w, &low, 1);
        value >>= 7;
    } while (value);
}

static void put_index(dlc_text *w, int32_t value) {
    put_number(w, (uint64_t)((int64_t)value + 1));
}

static void put_text(dlc_text *w, const char *text) {
    size_t length = strlen(text);
    put_number(w, length);
    pack_bytes(w, text, length);
}

/* Bandwidths are stored in MB/s, which is precise enough for display. */
static void put_speed(dlc_text *w, float gbs) {
    put_number(w, gbs > 0 && gbs < 1e9f ? (uint64_t)((double)gbs * 1000 + 0.5) : 0);
}

static void put_node(dlc_text *w, const dlc_topo_node *node) {
    put_number(w, node->kind);
    put_index(w, node->parent);
    put_index(w, node->numa);
    put_index(w, node->package);
    put_index(w, node->index);
    put_number(w, node->flags);
    put_speed(w, node->gbs);
    put_speed(w, node->speed);
    put_text(w, node->name);
    put_text(w, node->address);
    put_text(w, node->device);
    put_index(w, node->device_index);
}

dlc_status dlc_topo_pack(const dlc_topo *topo, unsigned char **bytes, size_t *size) {
    dlc_text w = {0};
    pack_bytes(&w, magic, sizeof magic);
    put_number(&w, topo->nodes);
    put_number(&w, topo->links);
    for (size_t i = 0; i < topo->nodes; i++)
        put_node(&w, &topo->node[i]);
    for (size_t i = 0; i < topo->links; i++) {
        const dlc_topo_link *link = &topo->link[i];
        put_index(&w, link->from);
        put_index(&w, link->to);
        put_number(&w, link->kind);
        put_number(&w, (uint64_t)link->count);
        put_speed(&w, link->gbs);
    }
    dlc_status status = dlc_text_status(&w);
    if (status != DLC_OK) {
        dlc_text_free(&w);
        return status;
    }
    *bytes = (unsigned char *)w.bytes;
    *size = w.length;
    return DLC_OK;
}

enum { MAX_LINKS = 1 << 14 }; /* bounds the time of the linear searches */

/* ---- Unpacking ----------------------------------------------------------------- */

typedef struct reader {
    const unsigned char *at, *end;
    int32_t first; /* the number of its first node in the graph */
    int bad;       /* the input is invalid */
} reader;

static uint64_t get_number(reader *r, uint64_t most) {
    uint64_t value = 0;
    for (int shift = 0; shift < 63; shift += 7) {
        if (r->at == r->end)
            break;
        unsigned char byte = *r->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80)
            continue;
        if (value > most)
            break;
        return value;
    }
    r->bad = 1;
    return 0;
}

static int32_t get_index(reader *r, int64_t below) {
    return (int32_t)((int64_t)get_number(r, (uint64_t)below) - 1);
}

static void get_text(reader *r, char *text, size_t room) {
    char raw[128] = "";
    size_t length = (size_t)get_number(r, room - 1);
    if (r->bad || length > (size_t)(r->end - r->at) || length >= sizeof raw) {
        r->bad = 1;
        return;
    }
    memcpy(raw, r->at, length);
    r->at += length;
    dlc_topo_text(text, room, raw);
}

static float get_speed(reader *r) {
    return (float)((double)get_number(r, 1000000000000) / 1000);
}

/* Whether a node of this kind may have this parent. */
static int is_valid_parent(const dlc_topo *topo, dlc_topo_kind kind, int32_t parent) {
    if ((kind == DLC_TOPO_MACHINE) != (parent < 0))
        return 0;
    return parent < 0 || (topo->node[parent].kind != DLC_TOPO_RANK &&
                          topo->node[parent].kind != DLC_TOPO_FABRIC);
}

static dlc_status get_node(reader *r, dlc_topo *topo) {
    int64_t before = (int64_t)topo->nodes - r->first;
    dlc_topo_kind kind = (dlc_topo_kind)get_number(r, DLC_TOPO_KINDS - 1);
    int32_t parent = get_index(r, before); /* an earlier node */
    if (parent >= 0)
        parent += r->first;
    if (r->bad || kind < DLC_TOPO_MACHINE || !is_valid_parent(topo, kind, parent)) {
        r->bad = 1;
        return DLC_OK;
    }
    dlc_topo_node *node = dlc_topo_add(topo, kind, parent);
    if (!node)
        return DLC_ERR_NOMEM;
    node->numa = get_index(r, INT32_MAX);
    node->package = get_index(r, INT32_MAX);
    node->index = get_index(r, INT32_MAX);
    node->flags = (uint32_t)get_number(r, UINT32_MAX);
    node->gbs = get_speed(r);
    node->speed = get_speed(r);
    get_text(r, node->name, sizeof node->name);
    get_text(r, node->address, sizeof node->address);
    get_text(r, node->device, sizeof node->device);
    node->device_index = get_index(r, INT32_MAX);
    return DLC_OK;
}

static dlc_status get_link(reader *r, dlc_topo *topo) {
    int64_t mine = (int64_t)topo->nodes - r->first;
    int32_t from = get_index(r, mine), to = get_index(r, mine);
    uint32_t kind = (uint32_t)get_number(r, DLC_LINK_OTHER);
    int32_t count = (int32_t)get_number(r, DLC_TOPO_LINK_COUNT_MAX);
    float gbs = get_speed(r);
    if (r->bad || from < 0 || to < 0 || from == to || kind < 1 || count < 1) {
        r->bad = 1;
        return DLC_OK;
    }
    from += r->first;
    to += r->first;
    if (topo->node[from].machine != topo->node[to].machine) {
        r->bad = 1;
        return DLC_OK;
    }
    return dlc_topo_add_link(topo, from, to, kind, count, gbs);
}

static dlc_status get_all(reader *r, dlc_topo *topo) {
    /* A node takes at least 12 bytes, a link 5; that bounds their numbers. */
    uint64_t room = (uint64_t)(r->end - r->at);
    uint64_t nodes = get_number(r, room / 12);
    uint64_t links = get_number(r, room / 5 < MAX_LINKS ? room / 5 : MAX_LINKS);
    r->bad |= nodes == 0;
    for (uint64_t i = 0; i < nodes && !r->bad; i++)
        DLC_TRY(get_node(r, topo));
    for (uint64_t i = 0; i < links && !r->bad; i++)
        DLC_TRY(get_link(r, topo));
    while (r->at < r->end && *r->at == 0)
        r->at++;
    if (r->bad || r->at != r->end)
        return dlc_fail(DLC_ERR_DATA, "these bytes are not a packed topology");
    return DLC_OK;
}

dlc_status dlc_topo_unpack(const void *bytes, size_t size, dlc_topo *topo) {
    size_t nodes = topo->nodes, links = topo->links;
    reader r = {.at = bytes,
                .end = (const unsigned char *)bytes + size,
                .first = (int32_t)nodes};
    if (size < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0)
        return dlc_fail(DLC_ERR_DATA, "these bytes are not a packed topology");
    r.at += sizeof magic;
    dlc_status status = get_all(&r, topo);
    if (status != DLC_OK) {
        topo->nodes = nodes;
        topo->links = links;
    }
    return status;
}
