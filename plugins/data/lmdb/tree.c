/* Reads the format of LMDB 0.9: pages of one size; the first two say where the root of
 * the newest tree is; branch pages have keys and the numbers of pages below, leaf pages
 * keys and values, and large values are in pages of their own. Numbers are of the
 * computer that wrote the file, as pointers and all.
 *
 * This does not use liblmdb, which maps the file and follows its numbers: a damaged or
 * shortened file would crash the job. Here each number is compared with the size of its
 * page, or of the file, and no lock is needed, since nothing is written. */
#include "tree.h"

#include <stddef.h>
#include <string.h>

enum {
    DEPTH_MOST = 32,
    PAGE_LEAST = 512,
    PAGE_MOST = 65536,
    NODE_BYTES = 8,
    BRANCH = 0x01, /* flags of pages */
    LEAF = 0x02,
    LARGE = 0x04,
    META = 0x08,
    KINDS = 0x2f,      /* all that say what a page is */
    NODE_LARGE = 0x01, /* flags of values */
    MAGIC_VERSION = 1,
    DUPLICATES = 0x04, /* flag of a database */
};
#define MAGIC 0xbeefc0deu
#define NO_PAGE UINT64_MAX

/* The beginning of each page. */
typedef struct page_header {
    uint64_t number;
    uint16_t pad, flags;
    uint16_t lower, upper; /* of the gap between offsets and nodes */
} page_header;
_Static_assert(sizeof(page_header) == TREE_HEADER, "as LMDB has it");

/* A database. */
typedef struct database {
    uint32_t pad; /* of the first: the size of pages */
    uint16_t flags, depth;
    uint64_t branches, leaves, large, entries, root;
} database;

/* The first two pages have this behind their headers. */
typedef struct meta {
    uint32_t magic, version;
    uint64_t address, map_size;
    database free, main;
    uint64_t last_page, transaction;
} meta;
_Static_assert(sizeof(meta) == 136, "as LMDB has it");

/* A node of a page: its key follows. */
typedef struct node {
    uint16_t low, high, flags, key_bytes;
} node;
_Static_assert(sizeof(node) == NODE_BYTES, "as LMDB has it");

static dlc_status damaged(const data_file *in, uint64_t page, const char *what) {
    return host->fail(DLC_ERR_DATA, "%s: page %llu: %s", in->path,
                      (unsigned long long)page, what);
}

/* ---- The root ---------------------------------------------------------------- */

static dlc_status read_meta(const data_file *in, int64_t at, meta *made) {
    unsigned char bytes[TREE_HEADER + sizeof *made];
    page_header header;
    if (in->bytes - at < (int64_t)sizeof bytes)
        return host->fail(DLC_ERR_DATA, "%s: it is too short for an LMDB file",
                          in->path);
    dlc_status status = file_read(in, at, bytes, sizeof bytes);
    if (status != DLC_OK)
        return status;
    memcpy(&header, bytes, sizeof header);
    memcpy(made, bytes + TREE_HEADER, sizeof *made);
    if (made->magic == __builtin_bswap32(MAGIC))
        return host->fail(DLC_ERR_DATA,
                          "%s: it was written by a computer with another order of "
                          "bytes; mdb_dump and mdb_load convert it",
                          in->path);
    if (made->magic != MAGIC || (header.flags & KINDS) != META)
        return host->fail(DLC_ERR_DATA,
                          "%s: not an LMDB file, or one of a 32-bit computer",
                          in->path);
    if (made->version != MAGIC_VERSION)
        return host->fail(DLC_ERR_DATA,
                          "%s: its format has version %u, but only that of LMDB 0.9, "
                          "%d, can be read",
                          in->path, made->version, MAGIC_VERSION);
    return DLC_OK;
}

/* Finds the tree of the last transaction, and the size of pages. */
static dlc_status find_root(const data_file *in, database *main, uint32_t *page) {
    meta first = {0}, second = {0};
    dlc_status status = read_meta(in, 0, &first);
    uint32_t size = status == DLC_OK ? first.free.pad : 0;
    if (status != DLC_OK)
        return status;
    if (size < PAGE_LEAST || size > PAGE_MOST || (size & (size - 1)))
        return damaged(in, 0, "it says that pages have an impossible size");
    status = read_meta(in, size, &second);
    if (status != DLC_OK)
        return status;
    *main = first.transaction > second.transaction ? first.main : second.main;
    *page = size;
    if (main->flags & DUPLICATES)
        return host->fail(DLC_ERR_DATA, "%s: it has several values for a key",
                          in->path);
    if (main->root != NO_PAGE && (main->depth < 1 || main->depth > DEPTH_MOST))
        return damaged(in, 0, "it says that the tree has an impossible depth");
    return DLC_OK;
}

/* ---- Pages ------------------------------------------------------------------- */

/* A walk through a tree. */
typedef struct walk {
    const data_file *in;
    uint32_t page;    /* bytes of one */
    uint64_t pages;   /* that the file has */
    uint64_t seen;    /* pages that were read */
    uint64_t entries; /* that were visited */
    tree_visit visit;
    void *context;
} walk;

/* Reads a page of the tree and checks its header. *nodes: their number. */
static dlc_status read_page(walk *w, uint64_t number, int flag, unsigned char *page,
                            uint32_t *nodes) {
    page_header header;
    if (number >= w->pages)
        return damaged(w->in, number, "it is beyond the end of the file");
    if (w->seen++ == w->pages)
        return damaged(w->in, number, "the tree has a circle in it");
    dlc_status status = file_read(w->in, (int64_t)(number * w->page), page, w->page);
    if (status != DLC_OK)
        return status;
    memcpy(&header, page, sizeof header);
    if (header.number != number || (header.flags & KINDS) != flag)
        return damaged(w->in, number, "it is not the page that the tree expects there");
    if (header.lower < TREE_HEADER || header.lower % 2 || header.upper < header.lower ||
        header.upper > w->page)
        return damaged(w->in, number, "its header is damaged");
    *nodes = (header.lower - (uint32_t)TREE_HEADER) / 2;
    return DLC_OK;
}

/* Finds node i of a page, with its key. *at: where it begins, in the page. */
static dlc_status find_node(const walk *w, uint64_t number, const unsigned char *page,
                            uint32_t i, node *made, uint32_t *at) {
    page_header header;
    uint16_t offset;
    memcpy(&header, page, sizeof header);
    memcpy(&offset, page + TREE_HEADER + 2 * (size_t)i, sizeof offset);
    if (offset < header.upper || offset > w->page - NODE_BYTES)
        return damaged(w->in, number, "one of its nodes is beyond it");
    memcpy(made, page + offset, sizeof *made);
    if (made->key_bytes > w->page - NODE_BYTES - offset)
        return damaged(w->in, number, "one of its keys is beyond it");
    *at = offset;
    return DLC_OK;
}

/* ---- The walk ---------------------------------------------------------------- */

static dlc_status visit_value(walk *w, uint64_t number, const unsigned char *page,
                              uint32_t i) {
    node one = {0};
    uint32_t at = 0;
    dlc_status status = find_node(w, number, page, i, &one, &at);
    if (status != DLC_OK)
        return status;
    uint32_t begin = at + NODE_BYTES + one.key_bytes;
    int64_t page_at = (int64_t)(number * w->page);
    tree_value value = {.key = page_at + at + NODE_BYTES,
                        .begin = page_at + begin,
                        .bytes = one.low | (uint32_t)one.high << 16,
                        .key_bytes = one.key_bytes,
                        .is_large = one.flags == NODE_LARGE};
    if (one.flags & ~NODE_LARGE)
        return damaged(w->in, number,
                       "it has a database in it, or several values for a key, which "
                       "Caffe's data have not");
    if (value.is_large) {
        uint64_t large;
        if (w->page - begin < sizeof large)
            return damaged(w->in, number, "one of its values is beyond it");
        memcpy(&large, page + begin, sizeof large);
        if (large >= w->pages ||
            value.bytes > (w->pages - large) * w->page - TREE_HEADER)
            return damaged(w->in, number,
                           "one of its values is beyond the end of the file, which was "
                           "cut short or is damaged");
        value.begin = (int64_t)(large * w->page);
    } else if (value.bytes > w->page - begin) {
        return damaged(w->in, number, "one of its values is beyond it");
    }
    w->entries++;
    return w->visit(w->context, &value);
}

static dlc_status walk_leaf(walk *w, uint64_t number, unsigned char *page) {
    uint32_t nodes = 0;
    dlc_status status = read_page(w, number, LEAF, page, &nodes);
    for (uint32_t i = 0; status == DLC_OK && i < nodes; i++)
        status = visit_value(w, number, page, i);
    return status;
}

/* Walks through the tree below a page, with `depth` levels; `room` has a page for each.
 */
static dlc_status walk_page(walk *w, uint64_t number, int depth, unsigned char *room) {
    uint32_t nodes = 0;
    if (depth == 1)
        return walk_leaf(w, number, room);
    dlc_status status = read_page(w, number, BRANCH, room, &nodes);
    for (uint32_t i = 0; status == DLC_OK && i < nodes; i++) {
        node one = {0};
        uint32_t at;
        status = find_node(w, number, room, i, &one, &at);
        uint64_t below = one.low | (uint64_t)one.high << 16 | (uint64_t)one.flags << 32;
        if (status == DLC_OK)
            status = walk_page(w, below, depth - 1, room + w->page);
    }
    return status;
}

dlc_status tree_walk(const data_file *in, tree_visit visit, void *context) {
    database main = {0};
    walk w = {.in = in, .visit = visit, .context = context};
    dlc_status status = find_root(in, &main, &w.page);
    if (status != DLC_OK || !w.page || main.root == NO_PAGE)
        return status;
    w.pages = (uint64_t)in->bytes / w.page;
    unsigned char *room = host->alloc((size_t)main.depth * w.page);
    if (!room)
        return DLC_ERR_NOMEM;
    status = walk_page(&w, main.root, main.depth, room);
    host->free(room);
    if (status == DLC_OK && w.entries != main.entries)
        return host->fail(
            DLC_ERR_DATA, "%s: it has %llu values, and not %llu as it says", in->path,
            (unsigned long long)w.entries, (unsigned long long)main.entries);
    return status;
}

dlc_status tree_read(const data_file *in, const tree_value *at, unsigned char *room,
                     const unsigned char **value) {
    size_t before = at->is_large ? TREE_HEADER : 0;
    page_header header;
    dlc_status status = file_read(in, at->begin, room, before + at->bytes);
    if (status != DLC_OK)
        return status;
    memcpy(&header, room, before ? sizeof header : 0);
    if (before && (header.flags & KINDS) != LARGE)
        return host->fail(DLC_ERR_DATA, "%s: byte %lld: no value begins there",
                          in->path, (long long)at->begin);
    *value = room + before;
    return DLC_OK;
}
