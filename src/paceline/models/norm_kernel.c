/* Batch norm over channels-last pictures, then an optional addition, then ReLU: two passes over
 * memory forward and two backward, where separate operations take five and six.
 *
 * Rows are pixels, columns are channels. Few channels would make short inner loops, so several
 * rows are taken as one long row ("folded") whose columns are added up in the end. Rows are cut
 * into a fixed number of parts, and each part's sums are float inside a block and double across
 * blocks: the result does not depend on the number of threads.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#define BLOCK 32
#define PARTS 16
#define LONGEST 2048

typedef ptrdiff_t num;

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

static num smaller(num a, num b) { return a < b ? a : b; }

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

static void moments_of_part(const float *x, const float *shift, num start, num stop, num width,
                            sums *total) {
    float a[LONGEST], b[LONGEST];
    empty(total, width);
    for (num first = start; first < stop; first += BLOCK) {
        memset(a, 0, width * sizeof(float));
        memset(b, 0, width * sizeof(float));
        for (num r = first; r < smaller(first + BLOCK, stop); r++) {
            const float *restrict row = x + r * width;
            for (num j = 0; j < width; j++) {
                float d = row[j] - shift[j];
                a[j] += d;
                b[j] += d * d;
            }
        }
        absorb(total, a, b, width);
    }
}

static void apply_to_row(const float *restrict x, const float *restrict before,
                         const float *restrict a, const float *restrict b, num width,
                         float *restrict out) {
    if (before)
        for (num j = 0; j < width; j++) {
            float y = x[j] * a[j] + b[j] + before[j];
            out[j] = y > 0 ? y : 0;
        }
    else
        for (num j = 0; j < width; j++) {
            float y = x[j] * a[j] + b[j];
            out[j] = y > 0 ? y : 0;
        }
}

/* out = relu(norm(x) + before); `before` may be absent. `var` is the unbiased variance. */
void norm_relu_forward(const float *x, const float *before, const float *weight, const float *bias,
                       float eps, num rows, num channels, float *out, float *mean, float *var,
                       float *inv_std) {
    static _Thread_local sums parts[PARTS];
    sums *shared = parts;
    float a[LONGEST], b[LONGEST], shift[LONGEST];
    num fold = fold_of(rows, channels), width = channels * fold, longs = rows / fold;
    memcpy(shift, x, channels * sizeof(float));
    tile(shift, channels, width);
#pragma omp parallel for schedule(static)
    for (num p = 0; p < PARTS; p++)
        moments_of_part(x, shift, part_start(p, longs), part_start(p + 1, longs), width, shared + p);
    gather(parts, channels, width);
    for (num j = 0; j < channels; j++) {
        double d = parts[0].first[j] / rows, v = parts[0].second[j] / rows - d * d;
        v = v > 0 ? v : 0;
        mean[j] = (float)(shift[j] + d);
        var[j] = (float)(rows > 1 ? v * rows / (rows - 1) : v);
        inv_std[j] = (float)(1 / sqrt(v + eps));
        a[j] = weight[j] * inv_std[j];
        b[j] = (float)(bias[j] - (shift[j] + d) * a[j]);
    }
    tile(a, channels, width);
    tile(b, channels, width);
#pragma omp parallel for schedule(static)
    for (num r = 0; r < longs; r++)
        apply_to_row(x + r * width, before ? before + r * width : 0, a, b, width, out + r * width);
}

static void mask_row(const float *restrict g, const float *restrict out, num width,
                     float *restrict masked) {
    for (num j = 0; j < width; j++) masked[j] = out[j] > 0 ? g[j] : 0;
}

static void mask_part(const float *g, const float *x, const float *out, const float *centre,
                      num start, num stop, num width, float *g_before, sums *total) {
    float a[LONGEST], b[LONGEST];
    empty(total, width);
    for (num first = start; first < stop; first += BLOCK) {
        memset(a, 0, width * sizeof(float));
        memset(b, 0, width * sizeof(float));
        for (num r = first; r < smaller(first + BLOCK, stop); r++) {
            const float *restrict xr = x + r * width, *restrict yr = out + r * width;
            const float *restrict gr = g + r * width;
            for (num j = 0; j < width; j++) {
                float v = yr[j] > 0 ? gr[j] : 0;
                a[j] += v;
                b[j] += v * (xr[j] - centre[j]);
            }
            if (g_before) mask_row(gr, yr, width, g_before + r * width);
        }
        absorb(total, a, b, width);
    }
}

static void gradient_of_row(const float *restrict g, const float *restrict out,
                            const float *restrict x, const float *restrict slope,
                            const float *restrict offset, const float *restrict scale, num width,
                            float *restrict gx) {
    for (num j = 0; j < width; j++) {
        float masked = out[j] > 0 ? g[j] : 0;
        gx[j] = (masked - offset[j] - x[j] * slope[j]) * scale[j];
    }
}

/* `g` is the gradient of `out`. Masked by the ReLU it is the gradient of `before`, and is written
 * where there is one; otherwise masking it twice costs less than keeping it. */
void norm_relu_backward(const float *g, const float *x, const float *out, const float *weight,
                        const float *mean, const float *inv_std, num rows, num channels,
                        float *g_before, float *gx, float *gw, float *gb) {
    static _Thread_local sums parts[PARTS];
    sums *shared = parts;
    float slope[LONGEST], offset[LONGEST], centre[LONGEST], scale[LONGEST];
    num fold = fold_of(rows, channels), width = channels * fold, longs = rows / fold;
    memcpy(centre, mean, channels * sizeof(float));
    tile(centre, channels, width);
#pragma omp parallel for schedule(static)
    for (num p = 0; p < PARTS; p++)
        mask_part(g, x, out, centre, part_start(p, longs), part_start(p + 1, longs), width,
                  g_before, shared + p);
    gather(parts, channels, width);
    for (num j = 0; j < channels; j++) {
        double by_x = parts[0].second[j] / rows * inv_std[j] * inv_std[j];
        gw[j] = (float)(parts[0].second[j] * inv_std[j]);
        gb[j] = (float)parts[0].first[j];
        scale[j] = weight[j] * inv_std[j];
        slope[j] = (float)by_x;
        offset[j] = (float)(parts[0].first[j] / rows - mean[j] * by_x);
    }
    tile(scale, channels, width);
    tile(slope, channels, width);
    tile(offset, channels, width);
#pragma omp parallel for schedule(static)
    for (num r = 0; r < longs; r++)
        gradient_of_row(g + r * width, out + r * width, x + r * width, slope, offset, scale, width,
                        gx + r * width);
}
