/* The registry of message tags: everything in the core and the tools that sends
 * messages takes its tags from this table, so that no two users of an endpoint can
 * receive each other's messages. A consistency model has a p2p channel to itself and
 * tags of its own.
 *
 * The upper 16 bits of a tag say whose it is, the lower 48 bits are up to the user. A
 * row is a user and how many values of the upper bits it has; the values follow each
 * other, so ranges cannot overlap.
 */
#ifndef DLC_COMM_TAGS_H
#define DLC_COMM_TAGS_H

#include <dlcore/consistency.h>

/* User, values, endpoint and contents, what the lower bits are. */
#define DLC_TAG_USERS(ROW) \
    ROW(STAGE_TENSOR, 32768, "the pipeline's: boundary tensors; tensor, micro-batch") \
    ROW(SHARD, 1, "the pipeline's or the reshards': checkpoint shards; 0") \
    ROW(LAYER_GROUP, 1, "the pipeline's, or its own: what layers gather; 0") \
    ROW(NORMS, 1, "the pipeline's or the reshards': squares of norms; 0") \
    ROW(RESHARD, 1, "the reshards': parts of tensors; 0") \
    ROW(CHUNK_GATHER, 1, "the batch chunks': inputs; chunk") \
    ROW(CHUNK_REDUCE, 1, "the batch chunks': gradients of inputs; chunk") \
    ROW(COLLECTIVE, 1, "each team's: collectives made of messages; which one") \
    ROW(PROBE, 1, "each team's: what is tried before training; direction") \
    ROW(MACHINE_LINKS, 1, "each team's: what is measured to find racks; 0") \
    ROW(BENCHMARK, 1, "that of `dlcore bench`; direction")

/* DLC_TAG_SHARD is a user's first value, the next row's begins after the last. */
#define DLC_TAG_RANGE(user, values, use) \
    DLC_TAG_##user, DLC_TAG_##user##_LAST = DLC_TAG_##user + (values)-1,
typedef enum dlc_tag_user {
    DLC_TAG_USERS(DLC_TAG_RANGE) DLC_TAG_USERS_END
} dlc_tag_user;
#undef DLC_TAG_RANGE

enum { DLC_TAG_NUMBER_BITS = 48 };
_Static_assert(DLC_TAG_USERS_END <= 1 << (64 - DLC_TAG_NUMBER_BITS),
               "the users of tags need more values than the upper bits have");

/* A user's tag; `number` is below 2^48 per value that the user has. */
static inline dlc_tag dlc_tag_of(dlc_tag_user user, uint64_t number) {
    return ((dlc_tag)user << DLC_TAG_NUMBER_BITS) + number;
}

#endif
