/* Shuffles with random numbers of each epoch, and of each window, of its own. Memory is
 * that of a window; more samples than the largest window has, all shuffled at once, are
 * permuted without any. */
#include "data/order.h"

#include "base/memory.h"
#include "base/random.h"

/* ---- A permutation without memory -------------------------------------------------
 */

/* By a Feistel network: two halves of a number are mixed in turn by
 * random words, which can always be undone, so no two numbers become one. The network
 * permutes the numbers up to a power of four; a number that leaves the range goes
 * through it again until it is back (Black and Rogaway, "Ciphers with arbitrary finite
 * domains", CT-RSA 2002). */

enum { ROUNDS = 8 };

static uint64_t run_network(uint64_t seed, uint64_t stream, int half, uint64_t number) {
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = number >> half, right = number & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t words[4];
        dlc_random_block(seed, stream, round << 32 | right, words);
        uint64_t mixed = left ^ (words[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t dlc_permutation_at(uint64_t seed, uint64_t stream, int64_t count, int64_t i) {
    int half = 1;
    while (UINT64_C(1) << 2 * half < (uint64_t)count)
        half++;
    uint64_t number = (uint64_t)i;
    do
        number = run_network(seed, stream, half, number);
    while (number >= (uint64_t)count);
    return (int64_t)number;
}

/* ---- Orders -----------------------------------------------------------------------
 */

/* The random streams that epochs, their blocks and windows are shuffled from ("shuf",
 * "blck" and "wndw"); the number of the epoch is added, or that of the window in all
 * epochs. */
#define STREAM_SHUFFLE UINT64_C(0x7368756600000000)
#define STREAM_BLOCKS UINT64_C(0x626c636b00000000)
#define STREAM_WINDOW UINT64_C(0x776e647700000000)

/* The numbers that are shuffled in memory; 0: none are. */
static int64_t map_size(int64_t samples, int shuffle, int64_t window) {
    int64_t size = window && window < samples ? window : samples;
    return shuffle && size <= DLC_ORDER_WINDOW_MAX ? size : 0;
}

uint64_t dlc_order_bytes(int64_t samples, int shuffle, int64_t window) {
    return (uint64_t)map_size(samples, shuffle, window) * sizeof(uint32_t);
}

dlc_status dlc_order_open(int64_t samples, uint64_t seed, int shuffle, int64_t window,
                          dlc_order *order) {
    int64_t size = map_size(samples, shuffle, window);
    dlc_order made = {.samples = samples,
                      .seed = seed,
                      .shuffle = shuffle,
                      .window = window < samples ? window : 0,
                      .drawn = UINT64_MAX};
    made.block = (made.window + DLC_ORDER_BLOCKS - 1) / DLC_ORDER_BLOCKS;
    if (size) {
        made.map = dlc_alloc((size_t)size, sizeof *made.map);
        if (!made.map)
            return DLC_ERR_NOMEM;
    }
    *order = made;
    return DLC_OK;
}

void dlc_order_close(dlc_order *order) {
    dlc_free(order->map);
    *order = (dlc_order){0};
}

/* Fisher-Yates (Knuth, TAOCP 2, algorithm 3.4.2 P), from the identity, so that an order
 * doesn't depend on those before it. */
static void shuffle_map(dlc_order *order, uint64_t stream, uint64_t number,
                        int64_t count) {
    dlc_random random = dlc_random_make(order->seed, stream + number);
    uint32_t *map = order->map;
    if (order->drawn == number)
        return;
    for (int64_t i = 0; i < count; i++)
        map[i] = (uint32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)dlc_random_below(&random, (uint64_t)i + 1);
        uint32_t other = map[j];
        map[j] = map[i];
        map[i] = other;
    }
    order->drawn = number;
}

/* Shuffles all samples of the epoch. */
static int64_t at_whole(dlc_order *order, int64_t epoch, int64_t i) {
    if (!order->map)
        return dlc_permutation_at(order->seed, STREAM_SHUFFLE + (uint64_t)epoch,
                                  order->samples, i);
    shuffle_map(order, STREAM_SHUFFLE, (uint64_t)epoch, order->samples);
    return order->map[i];
}

/* Shuffles the window, and the whole blocks of the epoch, which begin elsewhere in each
 * epoch; those samples that are no whole block come last. */
static int64_t at_window(dlc_order *order, int64_t epoch, int64_t i) {
    int64_t samples = order->samples, window = order->window, block = order->block;
    int64_t windows = (samples + window - 1) / window, blocks = samples / block;
    int64_t number = i / window, begin = number * window;
    int64_t count = samples - begin < window ? samples - begin : window;
    uint64_t stream = STREAM_BLOCKS + (uint64_t)epoch;
    dlc_random random = dlc_random_make(order->seed, ~stream);
    int64_t shift = (int64_t)dlc_random_below(&random, (uint64_t)samples);
    shuffle_map(order, STREAM_WINDOW,
                (uint64_t)epoch * (uint64_t)windows + (uint64_t)number, count);
    int64_t at = begin + order->map[i - begin];
    if (at < blocks * block)
        at = dlc_permutation_at(order->seed, stream, blocks, at / block) * block +
             at % block;
    return (at + shift) % samples;
}

static int64_t sample_at(dlc_order *order, int64_t epoch, int64_t i) {
    if (!order->shuffle)
        return i;
    return order->window ? at_window(order, epoch, i) : at_whole(order, epoch, i);
}

void dlc_order_take(dlc_order *order, int64_t position, int64_t count, int64_t *index) {
    int64_t epoch = position / order->samples, i = position % order->samples;
    for (int64_t k = 0; k < count; k++) {
        index[k] = sample_at(order, epoch, i);
        if (++i == order->samples) {
            i = 0;
            epoch++;
        }
    }
}
