/* Fuzzes the readers: recorded machines and packed graphs with changed bytes are either
 * read or refused with a message, and a graph that was read can be used. The changes
 * depend on a seed, so that failures can be reproduced. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "support/test.h"
#include "topology/graph.h"
#include "topology/read.h"
#include "topology/route.h"

enum { ROUNDS = 60, FILES_MOST = 64 };

static char *files[FILES_MOST];
static int file_count;

static uint64_t state;

static uint64_t next(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static void find_files(void) {
    DIR *folder = opendir(MACHINES);
    for (struct dirent *entry;
         folder && (entry = readdir(folder)) && file_count < FILES_MOST;)
        if (strstr(entry->d_name, ".xml"))
            files[file_count++] = strdup(entry->d_name);
    if (folder)
        closedir(folder);
}

static char *load(const char *name, size_t *size) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", MACHINES, name);
    FILE *file = fopen(path, "rbe");
    ck_assert_ptr_nonnull(file);
    char *bytes = malloc(1 << 16);
    ck_assert_ptr_nonnull(bytes);
    *size = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    ck_assert_uint_lt(*size, 1 << 16);
    return bytes;
}

/* Makes a few changes: flips, swaps, cuts, repetitions. */
static size_t mutate(char *bytes, size_t size, size_t room) {
    static const char *const words[] = {
        "\"",           "<",    "/>",     "-1",     "4294967296", "0x", "&",
        "ffff:ff:1f.7", "\xff", "PCIDev", "Machine"};
    for (uint64_t n = 1 + next(4); n > 0 && size > 4; n--) {
        size_t at = (size_t)next(size), length = 1 + (size_t)next(64);
        const char *word = words[next(sizeof words / sizeof *words)];
        switch (next(6)) {
        case 0:
            bytes[at] = (char)(bytes[at] ^ 1 << next(8));
            break;
        case 1:
            bytes[at] = (char)next(256);
            break;
        case 2: /* truncate */
            size = at + 1;
            break;
        case 3: /* remove a part */
            length = at + length > size ? size - at : length;
            memmove(bytes + at, bytes + at + length, size - at - length);
            size -= length;
            break;
        case 4: /* repeat a part */
            length = at + length > size ? size - at : length;
            if (size + length > room)
                break;
            memmove(bytes + at + length, bytes + at, size - at);
            size += length;
            break;
        default:
            length = strlen(word);
            if (at + length <= size)
                memcpy(bytes + at, word, length);
        }
    }
    return size;
}

/* Calls everything that uses a graph. */
static void walk(const dlc_topo *topo) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    dlc_topo again = {0};
    char label[64];
    int32_t most = (int32_t)topo->nodes < 40 ? (int32_t)topo->nodes : 40;
    for (int32_t a = 0; a < most; a++) {
        dlc_topo_label(topo, a, label, sizeof label);
        for (int32_t b = 0; b < most; b++) {
            dlc_topo_route route;
            dlc_topo_route_between(topo, a, b, &route);
            ck_assert_int_le(route.chosen, DLC_ROUTES);
            ck_assert_int_lt(route.path.class, DLC_TOPO_CLASSES);
        }
    }
    ck_assert_int_eq(dlc_topo_pack(topo, &bytes, &size), DLC_OK);
    ck_assert_msg(dlc_topo_unpack(bytes, size, &again) == DLC_OK, "%s", dlc_detail());
    ck_assert_uint_eq(again.nodes, topo->nodes);
    dlc_topo_free(&again);
    dlc_free(bytes);
}

static int begin(int argc, char **argv) {
    (void)argc, (void)argv;
    find_files();
    if (file_count >= 10)
        return TESTS_RUN;
    (void)fprintf(stderr, "%d files only\n", file_count);
    return EXIT_FAILURE;
}

static void free_files(void) {
    for (int i = 0; i < file_count; i++)
        free(files[i]);
}

TEST_SETTINGS(.timeout = 30, .teardown_once = free_files, .begin = begin);

TEST_EACH(mutated_files, file_count) {
    size_t size, read = 0;
    char *whole = load(files[_i], &size), *bytes = malloc(1 << 17);
    ck_assert_ptr_nonnull(bytes);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        dlc_topo topo = {0};
        dlc_xml *xml = NULL;
        state = 0x9e3779b97f4a7c15u * (round * FILES_MOST + (uint64_t)_i + 1);
        memcpy(bytes, whole, size);
        size_t now = round ? mutate(bytes, size, 1 << 17) : size;
        dlc_status status = dlc_xml_parse(bytes, now, "file", &xml);
        if (status == DLC_OK)
            status = dlc_topo_read_xml(xml, &topo);
        dlc_xml_free(xml);
        if (status == DLC_OK) {
            walk(&topo);
            read++;
        } else {
            ck_assert_int_eq(status, DLC_ERR_DATA);
            ck_assert_ptr_nonnull(strstr(dlc_detail(), "file:"));
            ck_assert_uint_eq(topo.nodes, 0);
        }
        dlc_topo_free(&topo);
    }
    ck_assert_uint_ge(read, 1); /* at least the unchanged file */
    free(bytes);
    free(whole);
}

TEST_EACH(mutated_packed_graphs, file_count) {
    size_t size, read = 0, refused = 0;
    char *text = load(files[_i], &size);
    dlc_topo topo = {0};
    dlc_xml *xml = NULL;
    unsigned char *whole = NULL;
    ck_assert_int_eq(dlc_xml_parse(text, size, "file", &xml), DLC_OK);
    ck_assert_int_eq(dlc_topo_read_xml(xml, &topo), DLC_OK);
    dlc_xml_free(xml);
    ck_assert_int_eq(dlc_topo_pack(&topo, &whole, &size), DLC_OK);
    size_t nodes = topo.nodes, links = topo.links;
    char *bytes = malloc(2 * size + 64);
    ck_assert_ptr_nonnull(bytes);
    for (uint64_t round = 1; round <= 4 * (uint64_t)ROUNDS; round++) {
        state = 0xbf58476d1ce4e5b9u * (round * FILES_MOST + (uint64_t)_i + 1);
        memcpy(bytes, whole, size);
        size_t now = mutate(bytes, size, 2 * size + 64);
        if (dlc_topo_unpack(bytes, now, &topo) == DLC_OK) {
            ck_assert_uint_gt(topo.nodes, nodes);
            if (read++ < 5)
                walk(&topo);
        } else {
            refused++;
            ck_assert_uint_eq(topo.nodes, nodes); /* unchanged */
            ck_assert_uint_eq(topo.links, links);
        }
        topo.nodes = nodes;
        topo.links = links;
    }
    ck_assert_uint_gt(refused, 0);
    free(bytes);
    free(text);
    dlc_free(whole);
    dlc_topo_free(&topo);
}

/* No prefix of a packed graph is a packed graph. */
TEST(truncated_packed_graphs) {
    dlc_topo topo = {0}, cut = {0};
    unsigned char *bytes = NULL;
    size_t size = 0;
    char path[512];
    snprintf(path, sizeof path, "%s%s", MACHINES, "hgx-h100.xml");
    ck_assert_int_eq(dlc_topo_read(path, &topo), DLC_OK);
    ck_assert_int_eq(dlc_topo_pack(&topo, &bytes, &size), DLC_OK);
    for (size_t n = 0; n < size; n++) {
        unsigned char *exact = malloc(n + 1); /* so that sanitizers notice an overrun */
        ck_assert_ptr_nonnull(exact);
        memcpy(exact, bytes, n);
        ck_assert_int_eq(dlc_topo_unpack(exact, n, &cut), DLC_ERR_DATA);
        ck_assert_uint_eq(cut.nodes, 0);
        free(exact);
    }
    dlc_topo_free(&cut);
    dlc_free(bytes);
    dlc_topo_free(&topo);
}
