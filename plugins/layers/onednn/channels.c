/* Passes over channels: cuts a tensor into groups and chunks, and distributes these
 * over the threads. */
#include "channels.h"
#include "sizes.h"

#include <omp.h>
#include <string.h>

enum {
    /* Elements of a chunk: few enough that their float32 sums, of at most some thousand
     * numbers per SIMD lane, are accurate. */
    CHUNK = 32 << 10,
    WORTH_THREADS = CHUNK,
    /* If a group holds all the channels of a point, and these are not few: points of a
     * chunk at most, and at least, and number of chunks at most otherwise. The sums of
     * all chunks are kept, which takes the longer the more channels there are. */
    FEW = 64,
    MOST_POINTS = 1024,
    LEAST_POINTS = 128,
    MOST_CHUNKS = 96,
    /* Channels of a group of several blocks, at most. */
    SMALL_BLOCKS = 256,
    /* Elements of a group up to which one core's own cache holds it. */
    NEAR = 128 << 10,
};

/* Combines small blocks of channels to a group: longer stretches of memory are read
 * faster. */
static size_t group_of(const channel_view *view) {
    if (view->along || view->side > CHANNEL_GROUP)
        return view->along ? 1 : CHANNEL_GROUP;
    size_t blocks = NEAR / (view->images * view->points * view->side);
    blocks = least(least(blocks, SMALL_BLOCKS / view->side), view->blocks);
    return (blocks ? blocks : 1) * view->side;
}

static size_t points_of_chunk(const channel_view *view) {
    size_t points = CHUNK / view->group, more = ceiling(view->points, MOST_CHUNKS);
    if (view->along || view->blocks > 1 || view->group <= FEW)
        return points;
    more = more < LEAST_POINTS ? LEAST_POINTS : least(more, MOST_POINTS);
    return points > more ? points : more;
}

void channel_view_cut(channel_view *view) {
    view->blocks = ceiling(view->channels, view->side);
    view->group = group_of(view);
    view->groups = ceiling(view->channels, view->group);
    size_t points = points_of_chunk(view);
    view->together = points / view->points;
    if (view->together > 1) {
        view->pieces = 1;
        view->piece = view->points;
        view->chunks = ceiling(view->images, view->together);
        return;
    }
    view->together = 1;
    view->pieces = ceiling(view->points, points);
    view->piece = ceiling(view->points, view->pieces);
    view->pieces = ceiling(view->points, view->piece);
    view->chunks = view->images * view->pieces;
}

/* Room for the sums of two groups: one is read while the next is written. */
size_t channels_space(const channel_view *view) {
    return 2 * view->chunks * 2 * view->group * sizeof(double);
}

static void add_sums(const channel_view *view, double *total, const double *more) {
    for (size_t i = 0; i < 2 * view->group; i++)
        total[i] += more[i];
}

static void start(const channel_passes *passes, size_t group, channel_values *values) {
    memset(values, 0, sizeof *values);
    if (passes->before)
        passes->before(passes->user, group, values);
}

static void chunk_set(channel_chunk *at, size_t chunk, size_t next) {
    at->chunk = chunk;
    at->next = next;
}

/* Processes a group on one thread. */
static void run_alone(const channel_passes *passes, size_t group) {
    const channel_view *view = passes->task->view;
    channel_values values;
    double sums[2 * CHANNEL_GROUP], total[2 * CHANNEL_GROUP] = {0};
    channel_chunk at = {.task = passes->task, .group = group};
    start(passes, group, &values);
    for (size_t i = 0; passes->first && i < view->chunks; i++) {
        chunk_set(&at, i, i + 1 < view->chunks ? i + 1 : i);
        passes->first(&at, &values, sums);
        add_sums(view, total, sums);
    }
    passes->between(passes->user, group, 1, total, &values);
    for (size_t i = view->chunks; passes->second && i-- > 0;) {
        chunk_set(&at, i, i > 0 ? i - 1 : i);
        passes->second(&at, &values);
    }
}

/* Processes a group on all threads, each with some of the chunks. */
static void run_shared(const channel_passes *passes, size_t group, double *sums) {
    const channel_view *view = passes->task->view;
    size_t threads = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();
    size_t from = view->chunks * me / threads, to = view->chunks * (me + 1) / threads;
    channel_values values;
    double total[2 * CHANNEL_GROUP] = {0};
    channel_chunk at = {.task = passes->task, .group = group};
    start(passes, group, &values);
    if (passes->first) {
        for (size_t i = from; i < to; i++) {
            chunk_set(&at, i, i + 1 < to ? i + 1 : i);
            passes->first(&at, &values, sums + 2 * view->group * i);
        }
#pragma omp barrier
        for (size_t i = 0; i < view->chunks; i++)
            add_sums(view, total, sums + 2 * view->group * i);
    }
    passes->between(passes->user, group, me == 0, total, &values);
    for (size_t i = to; passes->second && i-- > from;) {
        chunk_set(&at, i, i > from ? i - 1 : i);
        passes->second(&at, &values);
    }
}

void channels_run(const channel_passes *passes, void *space) {
    const channel_view *view = passes->task->view;
    size_t elements = view->images * view->points * view->group;
    size_t threads = (size_t)omp_get_max_threads();
    double *sums = space;
    int alone = elements <= NEAR && view->groups >= 4 * threads;
#pragma omp parallel if (elements * view->groups > WORTH_THREADS)
    {
        if (alone) {
#pragma omp for schedule(static)
            for (size_t g = 0; g < view->groups; g++)
                run_alone(passes, g);
        } else {
            for (size_t g = 0; g < view->groups; g++)
                run_shared(passes, g, sums + g % 2 * view->chunks * 2 * view->group);
        }
    }
}
