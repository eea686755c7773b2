/* Batch norm over channels-last pictures, then an optional addition, then ReLU or SiLU: two passes
 * over memory forward and two backward, where separate operations take five and six.
 *
 * Rows are pixels, columns are channels. Few channels would make short inner loops, so several
 * rows are taken as one long row ("folded") whose columns are added up in the end. Rows are cut
 * into a fixed number of parts, and each part's sums are float inside a block and double across
 * blocks: the result does not depend on the number of threads.
 */
#include "common.h"

#define BLOCK 32
#define PARTS 16

typedef struct {
    double first[LONGEST], second[LONGEST];
} sums;

static num fold_of(num rows, num channels) {
    num fold = 1;
    while (channels * fold * 2 <= 256 && rows % (fold * 2) == 0) fold *= 2;
    return fold;
}

static void tile(float *values, num channels, num width) {
    for (num j = channels; j < width; j++) values[j] = values[j - channels];
}

static num part_start(num part, num longs) { return longs * part / PARTS; }

static void empty(sums *total, num width) {
    memset(total->first, 0, width * sizeof(double));
    memset(total->second, 0, width * sizeof(double));
}

static void absorb(sums *total, const float *a, const float *b, num width) {
    for (num j = 0; j < width; j++) {
        total->first[j] += a[j];
        total->second[j] += b[j];
    }
}

/* All parts into the first, then the folded columns into the channels, always in this order. */
static void gather(sums *parts, num channels, num width) {
    for (num p = 1; p < PARTS; p++)
        for (num j = 0; j < width; j++) {
            parts[0].first[j] += parts[p].first[j];
            parts[0].second[j] += parts[p].second[j];
        }
    for (num j = channels; j < width; j++) {
        parts[0].first[j % channels] += parts[0].first[j];
        parts[0].second[j % channels] += parts[0].second[j];
    }
}

static void moments_of_part(const float *x, const float *centre, num start, num stop, num width,
                            sums *total) {
    float a[LONGEST], b[LONGEST];
    empty(total, width);
    for (num first = start; first < stop; first += BLOCK) {
        memset(a, 0, width * sizeof(float));
        memset(b, 0, width * sizeof(float));
        for (num r = first; r < smaller(first + BLOCK, stop); r++) {
            const float *restrict row = x + r * width;
            for (num j = 0; j < width; j++) {
                float d = row[j] - centre[j];
                a[j] += d;
                b[j] += d * d;
            }
        }
        absorb(total, a, b, width);
    }
}

INLINE float sigmoid(float z) { return 1 / (1 + exponential(-z)); }

INLINE float activate(int is_smooth, float z) {
    if (is_smooth) return z * sigmoid(z);
    return z < 0 ? 0 : z; /* so that NaN goes through */
}

INLINE float slope_of(int is_smooth, float z) {
    if (!is_smooth) return z > 0 ? 1 : 0;
    float s = sigmoid(z);
    return s * (1 + z * (1 - s));
}

INLINE void activate_row(int is_smooth, const float *restrict x, const float *restrict before,
                         const float *restrict scale, const float *restrict shift, num width,
                         float *restrict out) {
    if (before)
        for (num j = 0; j < width; j++)
            out[j] = activate(is_smooth, x[j] * scale[j] + shift[j] + before[j]);
    else
        for (num j = 0; j < width; j++)
            out[j] = activate(is_smooth, x[j] * scale[j] + shift[j]);
}

/* out = activation(norm(x) + before); `before` may be absent. `var` is the unbiased variance, and
 * norm(x) = x * scale + shift, which backward wants to see again. */
void norm_forward(const float *x, const float *before, const float *weight, const float *bias,
                  float eps, num is_smooth, num rows, num channels, float *out, float *mean,
                  float *var, float *inv_std, float *scale, float *shift) {
    static _Thread_local sums parts[PARTS];
    sums *shared = parts;
    float a[LONGEST], b[LONGEST], centre[LONGEST];
    num fold = fold_of(rows, channels), width = channels * fold, longs = rows / fold;
    memcpy(centre, x, channels * sizeof(float));
    tile(centre, channels, width);
#pragma omp parallel for schedule(static)
    for (num p = 0; p < PARTS; p++)
        moments_of_part(x, centre, part_start(p, longs), part_start(p + 1, longs), width, shared + p);
    gather(parts, channels, width);
    for (num j = 0; j < channels; j++) {
        double d = parts[0].first[j] / rows, v = parts[0].second[j] / rows - d * d;
        v = v > 0 ? v : 0;
        mean[j] = (float)(centre[j] + d);
        var[j] = (float)(rows > 1 ? v * rows / (rows - 1) : v);
        inv_std[j] = (float)(1 / sqrt(v + eps));
        a[j] = scale[j] = weight[j] * inv_std[j];
        b[j] = shift[j] = (float)(bias[j] - (centre[j] + d) * a[j]);
    }
    tile(a, channels, width);
    tile(b, channels, width);
#pragma omp parallel for schedule(static)
    for (num r = 0; r < longs; r++) {
        const float *added = before ? before + r * width : 0;
        if (is_smooth)
            activate_row(1, x + r * width, added, a, b, width, out + r * width);
        else
            activate_row(0, x + r * width, added, a, b, width, out + r * width);
    }
}

/* What comes through the activation: g times its slope at norm(x) + before. */
INLINE void pass_row(int is_smooth, const float *restrict g, const float *restrict x,
                     const float *restrict before, const float *restrict scale,
                     const float *restrict shift, num width, float *restrict passed) {
    if (before)
        for (num j = 0; j < width; j++)
            passed[j] = g[j] * slope_of(is_smooth, x[j] * scale[j] + shift[j] + before[j]);
    else
        for (num j = 0; j < width; j++)
            passed[j] = g[j] * slope_of(is_smooth, x[j] * scale[j] + shift[j]);
}

INLINE void pass_part(int is_smooth, const float *g, const float *x, const float *before,
                      const float *scale, const float *shift, const float *centre, num start,
                      num stop, num width, float *g_before, sums *total) {
    float a[LONGEST], b[LONGEST], kept[LONGEST];
    empty(total, width);
    for (num first = start; first < stop; first += BLOCK) {
        memset(a, 0, width * sizeof(float));
        memset(b, 0, width * sizeof(float));
        for (num r = first; r < smaller(first + BLOCK, stop); r++) {
            const float *restrict row = x + r * width;
            float *restrict passed = g_before ? g_before + r * width : kept;
            pass_row(is_smooth, g + r * width, row, before ? before + r * width : 0, scale, shift,
                     width, passed);
            for (num j = 0; j < width; j++) {
                a[j] += passed[j];
                b[j] += passed[j] * (row[j] - centre[j]);
            }
        }
        absorb(total, a, b, width);
    }
}

/* gx = (passed - offset - x * slope) * scale */
static void gradient_of_row(const float *restrict passed, const float *restrict x,
                            const float *restrict slope, const float *restrict offset,
                            const float *restrict scale, num width, float *restrict gx) {
    for (num j = 0; j < width; j++) gx[j] = (passed[j] - offset[j] - x[j] * slope[j]) * scale[j];
}

/* `g` is the gradient of `out`. What passes the activation is the gradient of `before`, and is
 * written where there is one; otherwise computing it twice costs less than keeping it. */
void norm_backward(const float *g, const float *x, const float *before, const float *scale,
                   const float *shift, const float *mean, const float *inv_std, num is_smooth,
                   num rows, num channels, float *g_before, float *gx, float *gw, float *gb) {
    static _Thread_local sums parts[PARTS];
    sums *shared = parts;
    float slope[LONGEST], offset[LONGEST], centre[LONGEST], a[LONGEST], b[LONGEST];
    num fold = fold_of(rows, channels), width = channels * fold, longs = rows / fold;
    memcpy(centre, mean, channels * sizeof(float));
    memcpy(a, scale, channels * sizeof(float));
    memcpy(b, shift, channels * sizeof(float));
    tile(centre, channels, width);
    tile(a, channels, width);
    tile(b, channels, width);
#pragma omp parallel for schedule(static)
    for (num p = 0; p < PARTS; p++) {
        num start = part_start(p, longs), stop = part_start(p + 1, longs);
        if (is_smooth)
            pass_part(1, g, x, before, a, b, centre, start, stop, width, g_before, shared + p);
        else
            pass_part(0, g, x, before, a, b, centre, start, stop, width, g_before, shared + p);
    }
    gather(parts, channels, width);
    for (num j = 0; j < channels; j++) {
        double by_x = parts[0].second[j] / rows * inv_std[j] * inv_std[j];
        gw[j] = (float)(parts[0].second[j] * inv_std[j]);
        gb[j] = (float)parts[0].first[j];
        slope[j] = (float)by_x;
        offset[j] = (float)(parts[0].first[j] / rows - mean[j] * by_x);
    }
    tile(slope, channels, width);
    tile(offset, channels, width);
#pragma omp parallel for schedule(static)
    for (num r = 0; r < longs; r++) {
        float kept[LONGEST];
        const float *passed = g_before ? g_before + r * width : kept, *row = x + r * width;
        if (!g_before && is_smooth) pass_row(1, g + r * width, row, 0, a, b, width, kept);
        if (!g_before && !is_smooth) pass_row(0, g + r * width, row, 0, a, b, width, kept);
        gradient_of_row(passed, row, slope, offset, a, width, gx + r * width);
    }
}
