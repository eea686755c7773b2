/* Attention over packed tokens, a head of a sentence at a time: scores, softmax, dropout and both
 * products stay in the first cache, and nothing is gathered into padded blocks and back.
 *
 * Tokens of a sentence follow one another; a token's row holds all its heads side by side. What is
 * kept for the way back are the softmax's weights, weights[sentence][head][query][key].
 */
#include "common.h"

#define TOGETHER 8 /* rows whose sums are taken at once, to keep the multipliers busy */

typedef struct {
    const int64_t *query_starts, *key_starts; /* of each sentence, and one past the last */
    num sentences, heads, head_width, query_room, key_room, is_causal;
    num query_step, key_step; /* floats from token to token */
    float scale;
    chance drop;
} plan;

/* One head of one sentence. */
typedef struct {
    num first_query, first_key, queries, keys, column, place;
} head;

static head head_of(const plan *p, num block) {
    num sentence = block / p->heads;
    num first_query = p->query_starts[sentence], first_key = p->key_starts[sentence];
    return (head){first_query,
                  first_key,
                  p->query_starts[sentence + 1] - first_query,
                  p->key_starts[sentence + 1] - first_key,
                  block % p->heads * p->head_width,
                  block * p->query_room * p->key_room};
}

/* out[rows][width] = scale * a[rows][depth] * b[depth][width]; width is a multiple of LANES.
 * Steps of `a` in both directions, so that it may be transposed. */
INLINE void product_of(int count, const float *a, num a_row, num a_column, const float *b,
                       num b_row, num depth, num width, float scale, float *out, num out_row) {
    for (num w = 0; w < width; w += LANES) {
        vec sums[TOGETHER];
        UNROLL for (int i = 0; i < count; i++) sums[i] = (vec){0};
        for (num d = 0; d < depth; d++) {
            vec right = *(const vec *)(b + d * b_row + w);
            UNROLL for (int i = 0; i < count; i++) sums[i] += a[i * a_row + d * a_column] * right;
        }
        UNROLL for (int i = 0; i < count; i++) *(vec *)(out + i * out_row + w) = sums[i] * scale;
    }
}

/* The last group of rows overlaps the one before it: done twice is faster than one by one. */
#define IN_GROUPS(count)                                                                           \
    for (num r = 0; r < rows; r += count) {                                                        \
        num first = smaller(r, rows - count);                                                      \
        product_of(count, a + first * a_row, a_row, a_column, b, b_row, depth, width, scale,       \
                   out + first * out_row, out_row);                                                \
    }

static void multiply(const float *a, num a_row, num a_column, const float *b, num b_row, num rows,
                     num depth, num width, float scale, float *out, num out_row) {
    if (rows >= TOGETHER)
        IN_GROUPS(TOGETHER)
    else if (rows >= TOGETHER / 2)
        IN_GROUPS(TOGETHER / 2)
    else
        IN_GROUPS(1)
}

/* out[width][room] = rows[count][width] transposed; what is beyond `count` becomes zero. */
static void transpose(const float *rows, num step, num count, num width, num room, float *out) {
    for (num d = 0; d < width; d++) {
        for (num j = 0; j < count; j++) out[d * room + j] = rows[j * step + d];
        for (num j = count; j < room; j++) out[d * room + j] = 0;
    }
}

/* In place; keys that the query must not see get the weight 0, as does the room behind them. */
static void softmax(float *scores, num keys, num room) {
    float highest = scores[0], sum = 0;
    for (num j = 1; j < keys; j++) highest = scores[j] > highest ? scores[j] : highest;
    for (num j = 0; j < keys; j++) {
        scores[j] = exponential(scores[j] - highest);
        sum += scores[j];
    }
    for (num j = 0; j < keys; j++) scores[j] /= sum;
    for (num j = keys; j < room; j++) scores[j] = 0;
}

static num visible(const plan *p, head h, num query) {
    return p->is_causal ? smaller(query + 1, h.keys) : h.keys;
}

static void drop_row(const plan *p, const float *in, num place, float *out) {
    chance c = p->drop;
    num room = p->key_room;
#pragma omp simd
    for (num j = 0; j < room; j++) out[j] = is_kept(c, place + j) ? in[j] * c.scale : 0;
}

/* Floats of scratch that one thread needs. */
num attention_work(const plan *p) {
    return p->key_room * (2 * p->head_width + 2 * p->query_room);
}

/* Padded keys count as real ones with weight 0, so a sentence without keys gives zeros. */
void attention_forward(const float *query, const float *key, const float *value, const plan *p,
                       num threads, float *work, float *weights, float *context) {
    num width = p->head_width, room = p->key_room, context_step = p->heads * width;
    num area = attention_work(p);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (num thread = 0; thread < threads; thread++) {
        float *turned = work + thread * area, *dropped = turned + 2 * room * width;
        num blocks = p->sentences * p->heads;
        for (num b = blocks * thread / threads; b < blocks * (thread + 1) / threads; b++) {
            head h = head_of(p, b);
            float *rows = weights + h.place;
            transpose(key + h.first_key * p->key_step + h.column, p->key_step, h.keys, width, room,
                      turned);
            multiply(query + h.first_query * p->query_step + h.column, p->query_step, 1, turned,
                     room, h.queries, width, room, p->scale, rows, room);
            for (num i = 0; i < h.queries; i++) {
                softmax(rows + i * room, visible(p, h, i), room);
                drop_row(p, rows + i * room, h.place + i * room, dropped + i * room);
            }
            multiply(dropped, room, 1, value + h.first_key * p->key_step + h.column, p->key_step,
                     h.queries, h.keys, width, 1, context + h.first_query * context_step + h.column,
                     context_step);
        }
    }
}

/* The gradient of scores from that of weights: w * (g - sum(w * g)). */
static void softmax_backward(const float *weights, num keys, float scale, float *g) {
    float sum = 0;
    for (num j = 0; j < keys; j++) sum += weights[j] * g[j];
    for (num j = 0; j < keys; j++) g[j] = weights[j] * (g[j] - sum) * scale;
}

void attention_backward(const float *g, const float *query, const float *key, const float *value,
                        const float *weights, const plan *p, num threads, float *work, float *gq,
                        float *gk, float *gv) {
    num width = p->head_width, room = p->key_room, g_step = p->heads * width;
    num area = attention_work(p);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (num thread = 0; thread < threads; thread++) {
        float *turned = work + thread * area, *dropped = turned + 2 * room * width;
        float *inner = dropped + p->query_room * room;
        num blocks = p->sentences * p->heads;
        for (num b = blocks * thread / threads; b < blocks * (thread + 1) / threads; b++) {
            head h = head_of(p, b);
            num queries_at = h.first_query * p->query_step + h.column;
            num keys_at = h.first_key * p->key_step + h.column;
            const float *rows = weights + h.place, *from = g + h.first_query * g_step + h.column;
            transpose(value + keys_at, p->key_step, h.keys, width, room, turned);
            multiply(from, g_step, 1, turned, room, h.queries, width, room, 1, inner, room);
            for (num i = 0; i < h.queries; i++) {
                drop_row(p, rows + i * room, h.place + i * room, dropped + i * room);
                drop_row(p, inner + i * room, h.place + i * room, inner + i * room);
                softmax_backward(rows + i * room, h.keys, p->scale, inner + i * room);
            }
            multiply(dropped, 1, room, from, g_step, h.keys, h.queries, width, 1, gv + keys_at,
                     p->key_step);
            multiply(inner, room, 1, key + keys_at, p->key_step, h.queries, h.keys, width, 1,
                     gq + queries_at, p->query_step);
            multiply(inner, 1, room, query + queries_at, p->query_step, h.keys, h.queries, width, 1,
                     gk + keys_at, p->key_step);
        }
    }
}
