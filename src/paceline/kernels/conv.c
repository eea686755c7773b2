/* 3x3 convolutions of stride 1 over channels-last pictures, after Winograd: a picture is cut into
 * tiles of m x m results (m = 2, 3 or 4), each tile with its border is turned into (m+2) x (m+2)
 * "points", and at every point the convolution is a plain matrix multiplication. For m = 4 that is a
 * quarter of the multiplications (Lavin and Gray 2015 give the mathematics and the matrices).
 *
 * With U = G w G', V = B' x B, M = sum over channels of U V:  y = A' M A. The way back is the same
 * chain transposed: dM = A dy A', dV = dM U, dx = B dV B', dU = V' dM, dw = G' dU G.
 *
 * "planes" hold one point each: plane[tile][channel]. "panels" hold filters so that the inner
 * loop reads them in one go: panels[point][out / PANEL][in][PANEL]. Each sum over tiles is taken in
 * the order of the tiles, so neither the number of threads nor the size of a block changes a bit.
 *
 * A following max-pooling of 2x2 can be done on the way out: the full result, four times as large,
 * then never sees memory, and neither does its gradient, three quarters of which are zero.
 */
#include "common.h"
#include <omp.h>

#if LANES == 16
#define ROWS 12 /* 12 x 2 sums fill 24 of 32 registers */
#elif LANES == 8
#define ROWS 6
#else
#define ROWS 8
#endif
#define PANEL (2 * LANES)
#define SHORT 8
#define MOST_POINTS 36
#define TILES_AT_ONCE 128 /* with more, the planes of a block leave the caches */

typedef int whole_vec __attribute__((vector_size(LANES * 4)));
typedef unsigned char byte_vec __attribute__((vector_size(LANES), aligned(1), may_alias));

typedef struct {
    num pictures, height, width, in, out, m, is_halved;
} shape;

/* Rows of six, one matrix for each m; m = 2, 3, 4 use the points 0, 1, -1, (2, (-2,)) infinity. */
static const float B_T[3][36] = {
    {1, 0, -1, 0, 0, 0, /**/ 0, 1, 1, 0, 0, 0, /**/ 0, -1, 1, 0, 0, 0, /**/ 0, -1, 0, 1},
    {2, -1, -2, 1, 0, 0, /**/ 0, -2, -1, 1, 0, 0, /**/ 0, 2, -3, 1, 0, 0, /**/
     0, -1, 0, 1, 0, 0, /**/ 0, 2, -1, -2, 1},
    {4, 0, -5, 0, 1, 0, /**/ 0, -4, -4, 1, 1, 0, /**/ 0, 4, -4, -1, 1, 0, /**/
     0, -2, -1, 2, 1, 0, /**/ 0, 2, -1, -2, 1, 0, /**/ 0, 4, 0, -5, 0, 1}};
static const float G[3][36] = {
    {1, 0, 0, 0, 0, 0, /**/ .5f, .5f, .5f, 0, 0, 0, /**/ .5f, -.5f, .5f, 0, 0, 0, /**/ 0, 0, 1},
    {.5f, 0, 0, 0, 0, 0, /**/ -.5f, -.5f, -.5f, 0, 0, 0, /**/
     -1 / 6.f, 1 / 6.f, -1 / 6.f, 0, 0, 0, /**/ 1 / 6.f, 1 / 3.f, 2 / 3.f, 0, 0, 0, /**/ 0, 0, 1},
    {.25f, 0, 0, 0, 0, 0, /**/ -1 / 6.f, -1 / 6.f, -1 / 6.f, 0, 0, 0, /**/
     -1 / 6.f, 1 / 6.f, -1 / 6.f, 0, 0, 0, /**/ 1 / 24.f, 1 / 12.f, 1 / 6.f, 0, 0, 0, /**/
     1 / 24.f, -1 / 12.f, 1 / 6.f, 0, 0, 0, /**/ 0, 0, 1}};
static const float A_T[3][36] = {
    {1, 1, 1, 0, 0, 0, /**/ 0, 1, -1, 1},
    {1, 1, 1, 1, 0, 0, /**/ 0, 1, -1, 2, 0, 0, /**/ 0, 1, 1, 4, 1},
    {1, 1, 1, 1, 1, 0, /**/ 0, 1, -1, 2, -2, 0, /**/ 0, 1, 1, 4, 4, 0, /**/ 0, 1, -1, 8, -8, 1}};

static num round_up(num value, num step) { return (value + step - 1) / step * step; }

static num tiles_along(num length, num m) { return (length + m - 1) / m; }

/* Halving leaves out the last row of an odd number, so nobody needs to compute it. */
static num needed_of(shape s, num length) { return s.is_halved ? length / 2 * 2 : length; }

static num tiles_of(shape s) {
    return tiles_along(needed_of(s, s.height), s.m) * tiles_along(needed_of(s, s.width), s.m);
}

static num results_of(shape s) {
    return s.is_halved ? (s.height / 2) * (s.width / 2) : s.height * s.width;
}

static num points_of(num m) { return (m + 2) * (m + 2); }

/* Floats from plane to plane. The odd line keeps the points of a tile out of one cache set. */
static num plane_size(num tiles, num channels) { return round_up(tiles, ROWS) * channels + LANES; }

INLINE vec load(const float *from, num lanes) {
    if (lanes >= LANES) return *(const vec *)from;
    vec value = {0};
    memcpy(&value, from, lanes * sizeof(float));
    return value;
}

INLINE void store(float *to, vec value, num lanes) {
    if (lanes >= LANES)
        *(vec *)to = value;
    else
        memcpy(to, &value, lanes * sizeof(float));
}

/* One column: out = matrix * in. All sizes are constants, so zeros and ones cost nothing. */
INLINE void times(const float *matrix, int is_transposed, int rows, int cols, const vec *in,
                  int in_step, vec *out, int out_step) {
    UNROLL for (int i = 0; i < rows; i++) {
        vec sum = {0};
        UNROLL for (int j = 0; j < cols; j++) {
            float factor = is_transposed ? matrix[j * 6 + i] : matrix[i * 6 + j];
            if (factor != 0) sum += factor * in[j * in_step];
        }
        out[i * out_step] = sum;
    }
}

/* out (rows x rows) = matrix * in (cols x cols) * matrix', or with the matrix transposed */
INLINE void sandwich(const float *matrix, int is_transposed, int rows, int cols, const vec *in,
                     vec *out) {
    vec half[MOST_POINTS];
    UNROLL for (int j = 0; j < cols; j++)
        times(matrix, is_transposed, rows, cols, in + j, cols, half + j, cols);
    UNROLL for (int i = 0; i < rows; i++)
        times(matrix, is_transposed, rows, cols, half + i * cols, 1, out + i * rows, 1);
}

/* Where in the picture the pixels of a tile are; `outside` for those beyond its edge. */
INLINE void locate(float *picture, float *outside, shape s, num channels, num top, num left,
                   int size, float **pixels) {
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            num h = top + i, w = left + j;
            int is_inside = h >= 0 && h < s.height && w >= 0 && w < s.width;
            pixels[i * size + j] = is_inside ? picture + (h * s.width + w) * channels : outside;
        }
}

/* Tiles with their border into points (V), or tiles of the result's gradient (dM). */
INLINE void picture_to_planes(int m, const float *picture, shape s, num channels, int has_border,
                              num plane, float *planes) {
    static float zeros[LONGEST];
    const int n = m + 2, size = has_border ? n : m;
    for (num top = 0; top < needed_of(s, s.height); top += m)
        for (num left = 0; left < needed_of(s, s.width); left += m, planes += channels) {
            float *pixels[MOST_POINTS];
            locate((float *)picture, zeros, s, channels, top - has_border, left - has_border, size,
                   pixels);
            for (num c = 0; c < channels; c += LANES) {
                vec in[MOST_POINTS], out[MOST_POINTS];
                UNROLL for (int i = 0; i < size * size; i++)
                    in[i] = load(pixels[i] + c, channels - c);
                if (has_border)
                    sandwich(B_T[m - 2], 0, n, n, in, out);
                else
                    sandwich(A_T[m - 2], 1, n, m, in, out);
                float *to = planes + c;
                UNROLL for (int i = 0; i < n * n; i++, to += plane)
                    store(to, out[i], channels - c);
            }
        }
}

/* Points into results (y), or into the gradient of tiles with border (dx), which overlap. */
INLINE void planes_to_picture(int m, const float *planes, num plane, shape s, num channels,
                              int has_border, float *picture) {
    float outside[LONGEST];
    const int n = m + 2, size = has_border ? n : m;
    if (has_border) memset(picture, 0, s.height * s.width * channels * sizeof(float));
    for (num top = 0; top < needed_of(s, s.height); top += m)
        for (num left = 0; left < needed_of(s, s.width); left += m, planes += channels) {
            float *pixels[MOST_POINTS];
            locate(picture, outside, s, channels, top - has_border, left - has_border, size, pixels);
            for (num c = 0; c < channels; c += LANES) {
                vec in[MOST_POINTS], out[MOST_POINTS];
                const float *from = planes + c;
                UNROLL for (int i = 0; i < n * n; i++, from += plane)
                    in[i] = load(from, channels - c);
                if (has_border)
                    sandwich(B_T[m - 2], 1, n, n, in, out);
                else
                    sandwich(A_T[m - 2], 0, m, n, in, out);
                UNROLL for (int i = 0; i < size * size; i++) {
                    vec before = has_border ? load(pixels[i] + c, channels - c) : (vec){0};
                    store(pixels[i] + c, before + out[i], channels - c);
                }
            }
        }
}

/* The largest of four neighbours and its number, 0 to 3 by rows; of equals the first, and NaN
 * before any number. */
INLINE void largest(const vec *results, int row, vec *best, whole_vec *choice) {
    *best = results[0];
    *choice = (whole_vec){0};
    UNROLL for (int k = 1; k < 4; k++) {
        vec other = results[k / 2 * row + k % 2];
        whole_vec is_larger = (other > *best) | (other != other);
        *best = (vec)(((whole_vec)other & is_larger) | ((whole_vec)*best & ~is_larger));
        *choice = (k & is_larger) | (*choice & ~is_larger);
    }
}

/* Points into halved results, and into which of four each of them was. */
INLINE void planes_to_halved(int m, const float *planes, num plane, shape s, float *halved,
                             unsigned char *choices) {
    const int n = m + 2, half = m / 2;
    num height = s.height / 2, width = s.width / 2;
    for (num top = 0; top < height; top += half)
        for (num left = 0; left < width; left += half, planes += s.out)
            for (num c = 0; c < s.out; c += LANES) {
                vec in[MOST_POINTS], out[MOST_POINTS];
                const float *from = planes + c;
                UNROLL for (int i = 0; i < n * n; i++, from += plane) in[i] = *(const vec *)from;
                sandwich(A_T[m - 2], 0, m, n, in, out);
                UNROLL for (int k = 0; k < half * half; k++) {
                    num h = top + k / half, w = left + k % half, at = (h * width + w) * s.out + c;
                    vec best;
                    whole_vec choice;
                    if (h >= height || w >= width) continue;
                    largest(out + k / half * 2 * m + k % half * 2, m, &best, &choice);
                    *(vec *)(halved + at) = best;
                    *(byte_vec *)(choices + at) = __builtin_convertvector(choice, byte_vec);
                }
            }
}

/* The gradient of halved results into points (dM): all of it goes where the largest was. */
INLINE void halved_to_planes(int m, const float *g, const unsigned char *choices, shape s, num plane,
                             float *planes) {
    const int n = m + 2, half = m / 2;
    num height = s.height / 2, width = s.width / 2;
    for (num top = 0; top < height; top += half)
        for (num left = 0; left < width; left += half, planes += s.out)
            for (num c = 0; c < s.out; c += LANES) {
                vec in[MOST_POINTS], out[MOST_POINTS];
                UNROLL for (int k = 0; k < half * half; k++) {
                    num h = top + k / half, w = left + k % half, at = (h * width + w) * s.out + c;
                    int is_inside = h < height && w < width;
                    vec value = is_inside ? *(const vec *)(g + at) : (vec){0};
                    byte_vec bytes = is_inside ? *(const byte_vec *)(choices + at) : (byte_vec){0};
                    whole_vec choice = __builtin_convertvector(bytes, whole_vec);
                    vec *corner = in + k / half * 2 * m + k % half * 2;
                    UNROLL for (int i = 0; i < 4; i++)
                        corner[i / 2 * m + i % 2] = (vec)((whole_vec)value & (choice == i));
                }
                sandwich(A_T[m - 2], 1, n, m, in, out);
                float *to = planes + c;
                UNROLL for (int i = 0; i < n * n; i++, to += plane) *(vec *)to = out[i];
            }
}

/* out[tile][width] = in[tile][depth] * panels, for one point; whole groups of ROWS tiles. */
static void multiply(const float *restrict in, const float *restrict panels, num tiles, num depth,
                     num width, float *restrict out) {
    for (num w = 0; w < width; w += PANEL)
        for (num t = 0; t < tiles; t += ROWS) {
            const float *restrict panel = panels + w * depth, *restrict rows = in + t * depth;
            vec left[ROWS], right[ROWS];
            UNROLL for (int i = 0; i < ROWS; i++) left[i] = right[i] = (vec){0};
            for (num d = 0; d < depth; d++) {
                vec a = *(const vec *)(panel + d * PANEL);
                vec b = *(const vec *)(panel + d * PANEL + LANES);
                UNROLL for (int i = 0; i < ROWS; i++) {
                    left[i] += rows[i * depth + d] * a;
                    right[i] += rows[i * depth + d] * b;
                }
            }
            UNROLL for (int i = 0; i < ROWS; i++) {
                float *to = out + (t + i) * width + w;
                *(vec *)to = left[i];
                if (width - w > LANES) *(vec *)(to + LANES) = right[i];
            }
        }
}

/* total[depth][width] += in[tile][depth]' * g[tile][width], for one point. */
static void multiply_transposed(const float *restrict in, const float *restrict g, num tiles,
                                num depth, num width, float *restrict total) {
    for (num d = 0; d < depth; d += SHORT)
        for (num w = 0; w < width; w += PANEL) {
            float *to = total + d * width + w;
            int is_double = width - w > LANES;
            vec left[SHORT], right[SHORT];
            UNROLL for (int i = 0; i < SHORT; i++) {
                left[i] = *(vec *)(to + i * width);
                right[i] = is_double ? *(vec *)(to + i * width + LANES) : (vec){0};
            }
            /* Without a second half the first is taken twice: one loop, and never out of bounds. */
            num second = is_double ? LANES : 0;
            for (num t = 0; t < tiles; t++) {
                const float *row = in + t * depth + d, *column = g + t * width + w;
                vec a = *(const vec *)column, b = *(const vec *)(column + second);
                UNROLL for (int i = 0; i < SHORT; i++) {
                    left[i] += row[i] * a;
                    right[i] += row[i] * b;
                }
            }
            UNROLL for (int i = 0; i < SHORT; i++) {
                *(vec *)(to + i * width) = left[i];
                if (is_double) *(vec *)(to + i * width + LANES) = right[i];
            }
        }
}

/* One lane for each of several filters: they are `step` floats apart. */
INLINE vec load_strided(const float *from, num step) {
    vec value;
    UNROLL for (int i = 0; i < LANES; i++) value[i] = from[i * step];
    return value;
}

/* Filters of one group of lanes into panels over `out` (for y), or transposed, over `in` (for dx).
 * filters[out][3][3][in] */
INLINE void filters_to_panels(int m, const float *filters, shape s, int is_transposed, num w,
                              float *panels) {
    num depth = is_transposed ? s.out : s.in, width = is_transposed ? s.in : s.out;
    num point = round_up(width, PANEL) * depth;
    for (num d = 0; d < depth; d++) {
        const float *first = filters + (is_transposed ? d * 9 * s.in + w : w * 9 * s.in + d);
        float *to = panels + (w / PANEL * depth + d) * PANEL + w % PANEL;
        vec taps[9], result[MOST_POINTS];
        UNROLL for (int i = 0; i < 9; i++)
            taps[i] = is_transposed ? *(const vec *)(first + i * s.in)
                                    : load_strided(first + i * s.in, 9 * s.in);
        sandwich(G[m - 2], 0, m + 2, 3, taps, result);
        UNROLL for (int i = 0; i < (m + 2) * (m + 2); i++) *(vec *)(to + i * point) = result[i];
    }
}

/* total[point][in][out] into one group of lanes of filters[out][3][3][in] */
INLINE void total_to_filters(int m, const float *total, shape s, num k, float *filters) {
    for (num c = 0; c < s.in; c++) {
        vec all[MOST_POINTS], taps[9];
        UNROLL for (int i = 0; i < (m + 2) * (m + 2); i++)
            all[i] = *(const vec *)(total + (i * s.in + c) * s.out + k);
        sandwich(G[m - 2], 1, 3, m + 2, all, taps);
        UNROLL for (int i = 0; i < 9; i++)
            for (int lane = 0; lane < LANES; lane++)
                filters[((k + lane) * 9 + i) * s.in + c] = taps[i][lane];
    }
}

/* So many pictures at once that the last group of ROWS tiles is nearly full. */
static num fullest_block(num tiles) {
    num best = 1;
    for (num block = 2; block * tiles <= TILES_AT_ONCE; block++)
        if (block * round_up(best * tiles, ROWS) >= best * round_up(block * tiles, ROWS)) best = block;
    return best;
}

/* Blocks are worked on one by one: in the forward direction by a thread each, backward by all
 * threads together. So forward there should be a block for everyone, backward a picture. */
static num block_of(shape s, int is_backward) {
    num threads = omp_get_max_threads(), block = fullest_block(tiles_of(s));
    num share = (s.pictures + threads - 1) / threads;
    if (is_backward && block < threads) block = threads;
    if (!is_backward && block > share) block = share;
    return smaller(block, s.pictures);
}

static num work_of_block(shape s, num block) {
    num tiles = block * tiles_of(s);
    return points_of(s.m) * (plane_size(tiles, s.in) + plane_size(tiles, s.out));
}

/* Floats that conv_forward or conv_backward wants to work in. */
num conv_work(shape s, num is_backward) {
    num areas = is_backward ? 1 : omp_get_max_threads();
    return areas * work_of_block(s, block_of(s, (int)is_backward));
}

INLINE void forward_block(int m, const float *x, const float *panels, num count, shape s,
                          float *work, float *y, unsigned char *choices) {
    num tiles = tiles_of(s), pixels = s.height * s.width, wide = round_up(s.out, PANEL);
    num in_plane = plane_size(count * tiles, s.in), out_plane = plane_size(count * tiles, s.out);
    num results = results_of(s) * s.out;
    float *found = work + points_of(m) * in_plane;
    for (num i = 0; i < count; i++)
        picture_to_planes(m, x + i * pixels * s.in, s, s.in, 1, in_plane, work + i * tiles * s.in);
    for (num p = 0; p < points_of(m); p++)
        multiply(work + p * in_plane, panels + p * wide * s.in, count * tiles, s.in, s.out,
                 found + p * out_plane);
    for (num i = 0; i < count; i++, found += tiles * s.out)
        if (s.is_halved)
            planes_to_halved(m, found, out_plane, s, y + i * results, choices + i * results);
        else
            planes_to_picture(m, found, out_plane, s, s.out, 0, y + i * results);
}

/* Called by all threads together; each loop ends with all of them waiting for one another. */
INLINE void backward_block(int m, const float *x, const float *g, const unsigned char *choices,
                           const float *panels, num count, shape s, float *work, float *gx,
                           float *total) {
    num tiles = tiles_of(s), pixels = s.height * s.width, wide = round_up(s.in, PANEL);
    num in_plane = plane_size(count * tiles, s.in), out_plane = plane_size(count * tiles, s.out);
    num results = results_of(s) * s.out;
    float *spread = work + points_of(m) * in_plane;
#pragma omp for schedule(static)
    for (num i = 0; i < count; i++) {
        float *to = spread + i * tiles * s.out;
        picture_to_planes(m, x + i * pixels * s.in, s, s.in, 1, in_plane, work + i * tiles * s.in);
        if (s.is_halved)
            halved_to_planes(m, g + i * results, choices + i * results, s, out_plane, to);
        else
            picture_to_planes(m, g + i * results, s, s.out, 0, out_plane, to);
    }
#pragma omp for schedule(static)
    for (num p = 0; p < points_of(m); p++) {
        float *in = work + p * in_plane, *out = spread + p * out_plane;
        multiply_transposed(in, out, count * tiles, s.in, s.out, total + p * s.in * s.out);
        if (gx) multiply(out, panels + p * wide * s.out, count * tiles, s.out, s.in, in);
    }
    if (!gx) return;
#pragma omp for schedule(static)
    for (num i = 0; i < count; i++)
        planes_to_picture(m, work + i * tiles * s.in, in_plane, s, s.in, 1, gx + i * pixels * s.in);
}

/* A copy of the function for each size of tile: its loops must have constant bounds. */
#define WITH_CONSTANT(m, function, ...)                                                            \
    do {                                                                                           \
        if (m == 4)                                                                                \
            function(4, __VA_ARGS__);                                                              \
        else if (m == 3)                                                                           \
            function(3, __VA_ARGS__);                                                              \
        else                                                                                       \
            function(2, __VA_ARGS__);                                                              \
    } while (0)

/* `choices` is written if the results are halved, and read again by conv_backward. */
void conv_forward(const float *x, const float *filters, shape s, float *panels, float *work,
                  float *y, unsigned char *choices) {
    num block = block_of(s, 0), area = work_of_block(s, block);
    num pixels = s.height * s.width * s.in, results = results_of(s) * s.out;
#pragma omp parallel for schedule(static)
    for (num k = 0; k < s.out; k += LANES)
        WITH_CONSTANT(s.m, filters_to_panels, filters, s, 0, k, panels);
#pragma omp parallel for schedule(static)
    for (num first = 0; first < s.pictures; first += block)
        WITH_CONSTANT(s.m, forward_block, x + first * pixels, panels,
                      smaller(block, s.pictures - first), s, work + omp_get_thread_num() * area,
                      y + first * results, choices + first * results);
}

/* `gx` may be absent, where nobody asks for it. */
void conv_backward(const float *x, const float *g, const unsigned char *choices,
                   const float *filters, shape s, float *panels, float *work, float *gx,
                   float *total, float *gw) {
    num block = block_of(s, 1);
    num pixels = s.height * s.width * s.in, results = results_of(s) * s.out;
    memset(total, 0, points_of(s.m) * s.in * s.out * sizeof(float));
#pragma omp parallel for schedule(static) if (gx)
    for (num c = 0; c < (gx ? s.in : 0); c += LANES)
        WITH_CONSTANT(s.m, filters_to_panels, filters, s, 1, c, panels);
#pragma omp parallel
    for (num first = 0; first < s.pictures; first += block)
        WITH_CONSTANT(s.m, backward_block, x + first * pixels, g + first * results,
                      choices + first * results, panels, smaller(block, s.pictures - first), s,
                      work, gx ? gx + first * pixels : 0, total);
#pragma omp parallel for schedule(static)
    for (num k = 0; k < s.out; k += LANES) WITH_CONSTANT(s.m, total_to_filters, total, s, k, gw);
}
