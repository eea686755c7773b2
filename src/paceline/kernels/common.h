/* What all kernels share. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LONGEST 2048 /* of a row of channels */

#define UNROLL _Pragma("GCC unroll 36")

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef ptrdiff_t num;
typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE num smaller(num a, num b) { return a < b ? a : b; }

/* exp(x) to about 2e-7, in operations that every compiler turns into vectors. */
INLINE float exponential(float x) {
    float power = x * 1.44269504f;
    power = power < -126 ? -126 : power > 126 ? 126 : power;
    float whole = rintf(power), rest = (power - whole) * 0.693147181f;
    float series = 1 + rest * (1 + rest * (0.5f + rest * (0.166666667f + rest * (0.0416666667f +
                   rest * (0.00833333333f + rest * 0.00138888889f)))));
    int bits = ((int)whole + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return series * scale;
}

/* Where dropout drops: a function of two seeds and of the place, so that no mask is ever kept. */
typedef struct {
    uint32_t seed, other_seed, limit;
    float scale;
} chance;

/* A hash of the place (Wellons' "lowbias32" between two seeds): uniform over 32 bits. */
INLINE int is_kept(chance c, num place) {
    uint32_t h = (uint32_t)place * 0x9e3779b1u + c.seed;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = ((h ^ h >> 15) + c.other_seed) * 0x846ca68bu;
    return (h ^ h >> 16) >= c.limit;
}
