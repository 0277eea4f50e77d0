/* Kernels of pool.h, compiled once for each instruction set (vectors.h).
 *
 * The maximum of bfloat16 compares 16-bit integers, twice as many at a time as floats:
 * key_of() maps numbers to integers of the same order, with NaN above all of them.
 */
#include "per_isa.h"
#include "pool.h"
#include "vectors.h"

enum { TWICE = 2 * LANES, PAIR = 2, WIDE = 4, LINE = 64 };

/* As many 16-bit integers as fit a vector, and vectors of places in memory. */
typedef int16_t shorts __attribute__((vector_size(2 * TWICE)));
typedef uint16_t words __attribute__((vector_size(2 * TWICE)));
typedef words words_there __attribute__((aligned(2), may_alias));
typedef uint8_t places __attribute__((vector_size(LANES)));
typedef places places_there __attribute__((aligned(1), may_alias));
typedef uint8_t more_places __attribute__((vector_size(TWICE)));
typedef more_places more_places_there __attribute__((aligned(1), may_alias));

/* ---- Maximum: what is compared -------------------------------------------------- */

/* Minus infinity is the smallest, both zeros are equal, NaN of either sign is the
 * largest. */
ALWAYS bits key_of(words h) {
#ifdef __AVX512BW__
    __m512i value = (__m512i)h, key = _mm512_sub_epi16(value, _mm512_set1_epi16(0x80));
    return (bits)_mm512_mask_sub_epi16(key, _mm512_movepi16_mask(value),
                                       _mm512_set1_epi16(0x7f80), value);
#else
    words minus = (words)((shorts)h < 0);
    return (bits)(((h - 0x80) & ~minus) | ((0x7f80 - h) & minus));
#endif
}

ALWAYS words key_back(bits key) {
    words h = (words)key + 0x80, minus = (words)((shorts)h < 0);
    return (h & ~minus) | ((0x8000 - h) & minus);
}

/* Half of a vector of bfloat16: a block of channels. It is faster without a mask. */
ALWAYS int is_half(access v) {
    return v.partial && v.bf16 && v.lanes == LANES;
}

/* A vector of a tensor, as floats or as the keys of twice as many bfloat16. */
ALWAYS bits load_keys(access v, const void *from) {
    if (!v.bf16)
        return (bits)load(v, from);
    if (!v.partial)
        return key_of((words) * (const words_there *)from);
    words h = {0};
#ifdef __AVX512BW__
    if (is_half(v))
        h = (words)_mm512_zextsi256_si512(_mm256_loadu_si256(from));
    else
        h = (words)_mm512_maskz_loadu_epi16((1u << v.lanes) - 1, from);
#else
    memcpy(&h, from, v.lanes * sizeof(uint16_t));
#endif
    return key_of(h);
}

ALWAYS void store_keys(access v, int stream, void *to, bits keys) {
    if (!v.bf16) {
        put(v, stream, to, (vec)keys);
        return;
    }
    words h = key_back(keys);
#ifdef __AVX512BW__
    if (is_half(v)) {
        _mm256_storeu_si256(to, _mm512_castsi512_si256((__m512i)h));
        return;
    }
#endif
    if (v.partial)
        memcpy(to, &h, v.lanes * sizeof(uint16_t));
#if defined(__AVX512F__)
    else if (stream)
        _mm512_stream_si512(to, (__m512i)h);
#elif defined(__AVX2__)
    else if (stream)
        _mm256_stream_si256(to, (__m256i)h);
#endif
    else
        *(words_there *)to = (words_there)h;
}

ALWAYS bits place_of(int bf16, size_t tap) {
    return bf16 ? (bits)((words){0} + (uint16_t)tap) : (bits){0} + (uint32_t)tap;
}

/* The largest so far, and where it was. */
typedef struct largest {
    bits keys, place;
} largest;

/* The first of equal numbers stays. */
ALWAYS void take_larger(int bf16, int keeps, bits keys, bits place, largest *of) {
#ifdef __AVX512BW__
    if (bf16) {
        __m512i k = (__m512i)keys, best = (__m512i)of->keys;
        __mmask32 more = _mm512_cmpgt_epi16_mask(k, best);
        of->keys = (bits)_mm512_max_epi16(k, best);
        if (keeps)
            of->place = (bits)_mm512_mask_mov_epi16((__m512i)of->place, more,
                                                    (__m512i)place);
        return;
    }
    __m512 k = (__m512)keys;
    __mmask16 more = _mm512_cmp_ps_mask(k, (__m512)of->keys, _CMP_GT_OQ) |
                     _mm512_cmp_ps_mask(k, k, _CMP_UNORD_Q);
    of->keys = (bits)_mm512_mask_mov_epi32((__m512i)of->keys, more, (__m512i)keys);
    if (keeps)
        of->place = (bits)_mm512_mask_mov_epi32((__m512i)of->place, more,
                                                (__m512i)place);
#else
    vec v = (vec)keys;
    bits more = bf16 ? (bits)((shorts)keys > (shorts)of->keys)
                     : (bits)(v > (vec)of->keys) |
                           (bits)(v != v); // NOLINT(misc-redundant-expression): NaN
    of->keys = (keys & more) | (of->keys & ~more);
    if (keeps)
        of->place = (place & more) | (of->place & ~more);
#endif
}

ALWAYS void store_places(access v, uint8_t *to, bits place) {
#ifdef __AVX512BW__
    __m256i twice = _mm512_cvtepi16_epi8((__m512i)place);
    __m128i once = _mm512_cvtepi32_epi8((__m512i)place);
    if (is_half(v))
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(twice));
    else if (v.partial && v.bf16)
        _mm256_mask_storeu_epi8(to, (1u << v.lanes) - 1, twice);
    else if (v.partial)
        _mm_mask_storeu_epi8(to, first_lanes(v.lanes), once);
    else if (v.bf16)
        _mm256_storeu_si256((__m256i *)(void *)to, twice);
    else
        _mm_storeu_si128((__m128i *)(void *)to, once);
#else
    more_places twice = __builtin_convertvector((words)place, more_places);
    places once = __builtin_convertvector(place, places);
    if (v.partial)
        memcpy(to, v.bf16 ? (const void *)&twice : &once, v.lanes);
    else if (v.bf16)
        *(more_places_there *)(void *)to = (more_places_there)twice;
    else
        *(places_there *)(void *)to = (places_there)once;
#endif
}

/* ---- Forward -------------------------------------------------------------------- */

/* The part of a window inside the image. from, to, place: the first element of its
 * first pixel, and of the output. */
typedef struct window {
    const void *from;
    void *to;
    uint8_t *place;
    size_t rows, columns, tap;
    float share; /* of a pixel in the average */
    int stream;
} window;

/* Runs `call` with `c`, an element of the pixel, `v`, how to access vectors there, and
 * `n`, how many: as many as `wide_` (2 or 4), two, one, or part of one. */
#define FOR_PIXEL(bf16_, vector_, wide_, lanes_, call) \
    do { \
        size_t c = 0; \
        for (; c + (wide_) * (vector_) <= (lanes_); c += (wide_) * (vector_)) { \
            const access v = {bf16_, 0, vector_}; \
            const size_t n = wide_; \
            call; \
        } \
        if ((wide_) > PAIR && c + PAIR * (vector_) <= (lanes_)) { \
            const access v = {bf16_, 0, vector_}; \
            const size_t n = PAIR; \
            call; \
            c += PAIR * (vector_); \
        } \
        if (c + (vector_) <= (lanes_)) { \
            const access v = {bf16_, 0, vector_}; \
            const size_t n = 1; \
            call; \
            c += (vector_); \
        } \
        if (c < (lanes_)) { \
            const access v = {bf16_, 1, (lanes_)-c}; \
            const size_t n = 1; \
            call; \
        } \
    } while (0)

/* The taps of a window that are compared: as constants, if they are common. */
typedef struct taps {
    size_t rows, columns, first, step; /* step: to the row below */
} taps;

/* The largest of row `i` of the window, of `n` vectors. */
ALWAYS void max_of_row(const pool_plan *p, const window *w, access v, int keeps,
                       size_t n, size_t c, const taps *all, size_t i, largest *of) {
    const size_t vector = v.bf16 ? TWICE : LANES, tap = all->first + i * all->step;
    const char *row = element(v, w->from, i * p->in[1] * p->lanes + c);
    EACH(u, n)
    of[u] = (largest){load_keys(v, element(v, row, u * vector)), place_of(v.bf16, tap)};
    EACH(j, all->columns)
    EACH(u, n)
    if (j) {
        bits keys = load_keys(v, element(v, row, j * p->lanes + u * vector));
        take_larger(v.bf16, keeps, keys, place_of(v.bf16, tap + j), &of[u]);
    }
}

/* Row by row, so that no comparison waits for those of another row. */
ALWAYS void max_at(const pool_plan *p, const window *w, access v, size_t n, size_t c,
                   taps all) {
    const size_t vector = v.bf16 ? TWICE : LANES;
    const int keeps = w->place != NULL;
    largest most[PAIR], more[PAIR];
    max_of_row(p, w, v, keeps, n, c, &all, 0, most);
    EACH(i, all.rows)
    if (i) {
        max_of_row(p, w, v, keeps, n, c, &all, i, more);
        EACH(u, n)
        take_larger(v.bf16, keeps, more[u].keys, more[u].place, &most[u]);
    }
    EACH(u, n) {
        store_keys(v, w->stream, element_to(v, w->to, c + u * vector), most[u].keys);
        if (keeps)
            store_places(v, w->place + c + u * vector, most[u].place);
    }
}

ALWAYS void average_at(const pool_plan *p, const window *w, access v, size_t n,
                       size_t c) {
    vec sum[WIDE] = {{0}};
    for (size_t i = 0; i < w->rows; i++)
        for (size_t j = 0; j < w->columns; j++) {
            size_t at = (i * p->in[1] + j) * p->lanes + c;
            EACH(u, n) sum[u] += load(v, element(v, w->from, at + u * LANES));
        }
    EACH(u, n) store(v, element_to(v, w->to, c + u * LANES), sum[u] * w->share);
}

/* Is it a whole window of this size? */
ALWAYS int is_whole(const pool_plan *p, const window *w, size_t size) {
    return w->rows == size && w->columns == size && p->kernel[0] == size &&
           p->kernel[1] == size;
}

ALWAYS void window_forward(const pool_plan *p, int bf16, const window *w) {
    const size_t vector = bf16 ? TWICE : LANES, one = LANES, pair = PAIR, wide = WIDE;
#define MAX(...) \
    FOR_PIXEL(bf16, vector, pair, p->lanes, max_at(p, w, v, n, c, (taps){__VA_ARGS__}))
    if (p->average)
        FOR_PIXEL(bf16, one, wide, p->lanes, average_at(p, w, v, n, c));
    else if (is_whole(p, w, 2))
        MAX(2, 2, 0, 2);
    else if (is_whole(p, w, 3))
        MAX(3, 3, 0, 3);
    else
        MAX(w->rows, w->columns, w->tap, p->kernel[1]);
#undef MAX
}

/* Copies of the arguments, which no store can change, stay in registers. lanes:
 * plan->lanes, as a constant if it is a common one. */
ALWAYS void row_forward(const pool_plan *plan, int bf16, size_t lanes,
                        const pool_tensors *tensors, size_t row) {
    pool_plan copy = *plan;
    copy.lanes = lanes;
    const pool_plan *p = &copy;
    const pool_tensors there = *tensors, *t = &there;
    const access any = {bf16, 0, 0};
    const pool_span y = p->window[0][row % p->out[0]];
    size_t first = (row / p->out[0] * p->in[0] + y.begin) * p->in[1];
    for (size_t column = 0; column < p->out[1]; column++) {
        const pool_span x = p->window[1][column];
        size_t to = (row * p->out[1] + column) * p->lanes;
        const window w = {
            .from = element(any, t->from, (first + x.begin) * p->lanes),
            .to = element_to(any, t->to, to),
            .place = t->place ? t->place + to : NULL,
            .rows = y.count,
            .columns = x.count,
            .tap = y.tap * p->kernel[1] + x.tap,
            .share = y.share * x.share,
            .stream = t->stream,
        };
        window_forward(p, bf16, &w);
    }
}

static void forward(const pool_plan *p, const pool_tensors *t, size_t row) {
    int is_block = p->lanes == LANES;
    if (p->bf16 && is_block)
        row_forward(p, 1, LANES, t, row);
    else if (p->bf16)
        row_forward(p, 1, p->lanes, t, row);
    else if (is_block)
        row_forward(p, 0, LANES, t, row);
    else
        row_forward(p, 0, p->lanes, t, row);
    if (t->stream)
        stream_end();
}

/* ---- Backward ------------------------------------------------------------------- */

/* Lanes of a vector whose maximum is this tap: of floats, and of twice as many
 * bfloat16. */
#ifdef __AVX512BW__
typedef __mmask32 lanes_mask;
#else
typedef bits lanes_mask;
#endif

ALWAYS lanes_mask places_equal(access v, int twice, const uint8_t *at, unsigned tap) {
#ifdef __AVX512BW__
    const lanes_mask all = v.partial ? (1u << v.lanes) - 1 : ~0u;
    const __m256i wanted = _mm256_set1_epi8((char)tap);
    if (twice && is_half(v))
        return _mm_cmpeq_epi8_mask(_mm_loadu_si128((const void *)at),
                                   _mm256_castsi256_si128(wanted));
    if (twice)
        return _mm256_mask_cmpeq_epi8_mask(all, _mm256_maskz_loadu_epi8(all, at),
                                           wanted);
    return _mm_mask_cmpeq_epi8_mask((__mmask16)all,
                                    _mm_maskz_loadu_epi8((__mmask16)all, at),
                                    _mm256_castsi256_si128(wanted));
#else
    more_places there = {0};
    if (v.partial)
        memcpy(&there, at, v.lanes);
    else
        memcpy(&there, at, twice ? sizeof there : sizeof(places));
    if (twice)
        return (bits)(__builtin_convertvector(there, words) == (uint16_t)tap);
    places half;
    memcpy(&half, &there, sizeof half);
    return (bits)(__builtin_convertvector(half, bits) == tap);
#endif
}

ALWAYS vec add_chosen(lanes_mask where, vec diff, vec sum) {
#ifdef __AVX512BW__
    return (vec)_mm512_mask_add_ps((__m512)sum, (__mmask16)where, (__m512)sum,
                                   (__m512)diff);
#else
    return sum + (vec)((bits)diff & where);
#endif
}

/* A pixel of the input, and the windows that hold it. */
typedef struct pixel {
    pool_span y, x;
    size_t first; /* pixel of the output */
    void *to;
} pixel;

/* rows, columns: how many windows hold it, as constants if they are common. */
ALWAYS void gather_at(const pool_plan *p, int average, const pool_tensors *t,
                      const pixel *at, access v, size_t n, size_t c, size_t rows,
                      size_t columns) {
    vec sum[WIDE] = {{0}};
    EACH(i, rows)
    EACH(j, columns) {
        size_t from = (at->first + i * p->out[1] + j) * p->lanes + c;
        size_t tap = (at->y.tap - i * p->stride[0]) * p->kernel[1] + at->x.tap -
                     j * p->stride[1];
        float share = average ? p->window[0][at->y.begin + i].share *
                                    p->window[1][at->x.begin + j].share
                              : 1;
        EACH(u, n) {
            vec diff = load(v, element(v, t->from, from + u * LANES));
            if (average)
                sum[u] += diff * share;
            else
                sum[u] = add_chosen(
                    places_equal(v, 0, t->place + from + u * LANES, (unsigned)tap),
                    diff, sum[u]);
        }
    }
    EACH(u, n) {
        put(v, t->stream, element_to(v, at->to, c + u * LANES), sum[u]);
    }
}

ALWAYS bits load_bits(access v, const void *from) {
    bits b = {0};
    if (!v.partial)
        memcpy(&b, from, sizeof b);
    else
        memcpy(&b, from, v.lanes * (v.bf16 ? sizeof(uint16_t) : sizeof(float)));
    return b;
}

ALWAYS void store_bits(access v, int stream, void *to, bits b) {
    if (v.partial)
        memcpy(to, &b, v.lanes * (v.bf16 ? sizeof(uint16_t) : sizeof(float)));
    else if (stream)
        store_stream((access){0, 0, LANES}, to, (vec)b);
    else
        memcpy(to, &b, sizeof b);
}

/* A single window: its gradient or zero, which needs no arithmetic. */
ALWAYS void copy_at(const pool_plan *p, const pool_tensors *t, const pixel *at,
                    access v, size_t n, size_t c) {
    const size_t vector = v.bf16 ? TWICE : LANES;
    size_t from = at->first * p->lanes + c;
    size_t tap = at->y.tap * p->kernel[1] + at->x.tap;
    EACH(u, n) {
        bits diff = load_bits(v, element(v, t->from, from + u * vector));
        lanes_mask where = places_equal(v, v.bf16, t->place + from + u * vector,
                                        (unsigned)tap);
#ifdef __AVX512BW__
        diff = v.bf16 ? (bits)_mm512_maskz_mov_epi16(where, (__m512i)diff)
                      : (bits)_mm512_maskz_mov_epi32((__mmask16)where, (__m512i)diff);
#else
        diff &= where;
#endif
        store_bits(v, t->stream, element_to(v, at->to, c + u * vector), diff);
    }
}

ALWAYS void pixel_backward(const pool_plan *p, int bf16, int average,
                           const pool_tensors *t, const pixel *at) {
    const size_t vector = bf16 ? TWICE : LANES, one = LANES, pair = PAIR, wide = WIDE;
    size_t rows = at->y.count, columns = at->x.count;
#define GATHER(rows, columns) \
    FOR_PIXEL(bf16, one, wide, p->lanes, \
              gather_at(p, average, t, at, v, n, c, rows, columns))
    if (!average && rows == 1 && columns == 1)
        FOR_PIXEL(bf16, vector, pair, p->lanes, copy_at(p, t, at, v, n, c));
    else if (!average && rows == 1 && columns == 2)
        GATHER(1, 2);
    else if (!average && rows == 2 && columns == 1)
        GATHER(2, 1);
    else if (!average && rows == 2 && columns == 2)
        GATHER(2, 2);
    else if (!average && rows == 3 && columns == 3)
        GATHER(3, 3);
    else
        GATHER(rows, columns);
#undef GATHER
}

/* The row of windows below those that hold the pixel is needed soon. */
ALWAYS void prefetch_next(const pool_plan *p, int bf16, const pool_tensors *t,
                          const pixel *at) {
    const access any = {bf16, 0, 0};
    size_t from = (at->first + at->y.count * p->out[1]) * p->lanes;
    const char *diff = element(any, t->from, from);
    size_t bytes = p->lanes * (bf16 ? sizeof(uint16_t) : sizeof(float));
    for (size_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch(diff + i);
    for (size_t i = 0; t->place && i < p->lanes; i += LINE)
        __builtin_prefetch(t->place + from + i);
}

ALWAYS void row_backward(const pool_plan *plan, int bf16, int average, size_t lanes,
                         const pool_tensors *tensors, size_t row) {
    const access any = {bf16, 0, 0};
    pool_plan copy = *plan;
    copy.lanes = lanes;
    const pool_plan *p = &copy;
    const pool_tensors there = *tensors, *t = &there;
    const pool_span y = p->cover[0][row % p->in[0]];
    size_t first = (row / p->in[0] * p->out[0] + y.begin) * p->out[1];
    int last = row + p->stride[0] >= p->images * p->in[0];
    for (size_t column = 0; column < p->in[1]; column++) {
        const pool_span x = p->cover[1][column];
        const pixel at = {
            .y = y,
            .x = x,
            .first = first + x.begin,
            .to = element_to(any, t->to, (row * p->in[1] + column) * p->lanes),
        };
        if (!last)
            prefetch_next(p, bf16, t, &at);
        pixel_backward(p, bf16, average, t, &at);
    }
}

static void backward(const pool_plan *p, const pool_tensors *t, size_t row) {
    int is_block = p->lanes == LANES;
    if (p->bf16 && p->average)
        row_backward(p, 1, 1, p->lanes, t, row);
    else if (p->bf16 && is_block)
        row_backward(p, 1, 0, LANES, t, row);
    else if (p->bf16)
        row_backward(p, 1, 0, p->lanes, t, row);
    else if (p->average)
        row_backward(p, 0, 1, p->lanes, t, row);
    else if (is_block)
        row_backward(p, 0, 0, LANES, t, row);
    else
        row_backward(p, 0, 0, p->lanes, t, row);
    if (t->stream)
        stream_end();
}

const pool_kernels PER_ISA(pool_) = {
    .name = ISA_NAME,
    .lanes = LANES,
    .forward = forward,
    .backward = backward,
};
