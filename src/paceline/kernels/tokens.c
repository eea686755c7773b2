/* What a Transformer does to single values between its matrix products: dropout with what comes
 * before and after it, and the loss of a row of logits. Each is one pass over memory, and no mask
 * is ever stored: whether a value is dropped follows from a seed and its place, so the backward
 * pass asks again. Nothing depends on the number of threads.
 */
#include "common.h"

#define PARTS 16 /* sums over rows are taken in so many parts, whatever the number of threads */

/* out = dropout(in) */
void drop(const float *in, num count, chance c, float *out) {
#pragma omp parallel for simd schedule(static)
    for (num i = 0; i < count; i++) out[i] = is_kept(c, i) ? in[i] * c.scale : 0;
}

/* out = values + dropout(update) */
void add_drop(const float *values, const float *update, num count, chance c, float *out) {
#pragma omp parallel for simd schedule(static)
    for (num i = 0; i < count; i++) out[i] = values[i] + (is_kept(c, i) ? update[i] * c.scale : 0);
}

/* out = dropout(relu(values + bias)) */
void relu_drop(const float *values, const float *bias, num rows, num width, chance c, float *out) {
#pragma omp parallel for schedule(static)
    for (num r = 0; r < rows; r++) {
        const float *restrict row = values + r * width;
        float *restrict to = out + r * width;
#pragma omp simd
        for (num j = 0; j < width; j++) {
            float z = row[j] + bias[j];
            /* `|`, because a second branch would keep the loop from becoming vectors */
            to[j] = (z < 0) | !is_kept(c, r * width + j) ? 0 : z * c.scale;
        }
    }
}

/* The result is positive exactly where the gradient passes. `parts` is room for PARTS rows. */
void relu_drop_backward(const float *g, const float *result, num rows, num width, float scale,
                        float *gx, float *parts, float *g_bias) {
#pragma omp parallel for schedule(static)
    for (num p = 0; p < PARTS; p++) {
        float *restrict sums = parts + p * width;
        memset(sums, 0, width * sizeof(float));
        for (num r = rows * p / PARTS; r < rows * (p + 1) / PARTS; r++) {
            const float *restrict from = g + r * width, *restrict y = result + r * width;
            float *restrict to = gx + r * width;
            for (num j = 0; j < width; j++) {
                to[j] = y[j] > 0 ? from[j] * scale : 0;
                sums[j] += to[j];
            }
        }
    }
    for (num j = 0; j < width; j++) {
        double sum = 0;
        for (num p = 0; p < PARTS; p++) sum += parts[p * width + j];
        g_bias[j] = (float)sum;
    }
}

/* Row by row: what -log of the right class costs (`nll`), the same summed over all classes
 * (`all`), and, where wanted, the logits replaced by the gradient of
 * (1 - smoothing) * nll + smoothing / width * all. */
void smoothed_rows(float *logits, const int64_t *targets, num rows, num width, float smoothing,
                   num wants_gradient, float *nll, float *all) {
#pragma omp parallel for schedule(static)
    for (num r = 0; r < rows; r++) {
        float *restrict row = logits + r * width;
        float highest = row[0], sum = 0, total = 0, right = row[targets[r]];
#pragma omp simd reduction(max : highest) reduction(+ : total)
        for (num j = 0; j < width; j++) {
            highest = row[j] > highest ? row[j] : highest;
            total += row[j];
        }
#pragma omp simd reduction(+ : sum)
        for (num j = 0; j < width; j++) {
            float e = exponential(row[j] - highest);
            row[j] = e;
            sum += e;
        }
        float log_sum = highest + logf(sum), part = 1 / sum, base = smoothing / (float)width;
        nll[r] = log_sum - right;
        all[r] = (float)((double)width * log_sum - total);
        if (!wants_gradient) continue;
        for (num j = 0; j < width; j++) row[j] = row[j] * part - base;
        row[targets[r]] -= 1 - smoothing;
    }
}
