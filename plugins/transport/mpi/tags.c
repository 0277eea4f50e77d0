/* Numbers for 64-bit tags, since MPI's tags are smaller: a hash table with linear
 * probing, used by messages.c. */
#include "endpoint.h"

/* MPI guarantees tags only up to 32,767; all libraries in use allow many more. */
enum { NUMBERS_MOST = 1 << 20, ROOM_LEAST = 16 };

/* The tag's slot, or the free one where it belongs. */
static tag_slot *find(const tag_table *table, dlc_tag tag) {
    size_t mask = table->room - 1;
    size_t at = (size_t)(tag * UINT64_C(0x9e3779b97f4a7c15) >> 20) & mask;
    while (table->slot[at].number && table->slot[at].tag != tag)
        at = (at + 1) & mask;
    return &table->slot[at];
}

int tags_find(const tag_table *table, dlc_tag tag) {
    return table->room ? find(table, tag)->number : 0;
}

static dlc_status grow(tag_table *table) {
    tag_table larger = {.room = table->room ? 2 * table->room : ROOM_LEAST,
                        .count = table->count};
    larger.slot = host->alloc(larger.room * sizeof *larger.slot);
    if (!larger.slot)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < table->room; i++)
        if (table->slot[i].number)
            *find(&larger, table->slot[i].tag) = table->slot[i];
    host->free(table->slot);
    *table = larger;
    return DLC_OK;
}

dlc_status tags_add(tag_table *table, dlc_tag tag, int number) {
    if (number > NUMBERS_MOST)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "this transport supports at most %d tags between two "
                          "ranks",
                          NUMBERS_MOST);
    if (2 * (table->count + 1) > table->room) {
        dlc_status status = grow(table);
        if (status != DLC_OK)
            return status;
    }
    *find(table, tag) = (tag_slot){tag, number};
    table->count++;
    return DLC_OK;
}

void tags_free(tag_table *table) {
    host->free(table->slot);
    *table = (tag_table){.slot = NULL};
}
