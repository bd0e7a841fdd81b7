/* The prelude of generated sources: vector types and helpers, in plain C with GNU vectors, without headers and
 * intrinsics.
 *
 * gcc and clang turn selects by masks into blends, and loops over lanes into single instructions (with -O3
 * -fno-math-errno -fno-trapping-math). Sections are templates: $L lanes, $V vector, $I its mask type, $S scalar. The
 * polynomials are our own minimax fits (Lawson's iteration). The maximum error in ulp, for normal results, is given at
 * each function. */
#include <string.h>

#include "print/print.h"

static const char scalar_helpers[] =
    "static inline float sol_max_f32(float a, float b) { return a > b || a != a ? a : b; }\n"
    "static inline float sol_min_f32(float a, float b) { return a < b || a != a ? a : b; }\n"
    "static inline double sol_max_f64(double a, double b) { return a > b || a != a ? a : b; }\n"
    "static inline double sol_min_f64(double a, double b) { return a < b || a != a ? a : b; }\n"
    "static inline int64_t sol_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }\n"
    "static inline int64_t sol_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }\n"
    "static inline int64_t sol_add_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }\n"
    "static inline int64_t sol_sub_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }\n"
    "static inline int64_t sol_mul_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }\n"
    "static inline int64_t sol_neg_i64(int64_t a) { return (int64_t)(0 - (uint64_t)a); }\n"
    "static inline int64_t sol_abs_i64(int64_t a) { return a < 0 ? sol_neg_i64(a) : a; }\n"
    "static inline void sol_error(const struct sol_frame *f, int32_t what)\n"
    "{\n"
    "    if (*f->error) return;\n"
    "    *f->error_step = f->step;\n"
    "    *f->error = what;\n"
    "}\n"
    "static inline int64_t sol_truncdiv_i64(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? sol_neg_i64(a) : a / "
    "b; }\n"
    "static inline int64_t sol_fmod_i64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }\n"
    "static inline int64_t sol_floordiv_i64(int64_t a, int64_t b)\n"
    "{\n"
    "    const int64_t r = sol_fmod_i64(a, b);\n"
    "    return sol_truncdiv_i64(a, b) - (r != 0 && (r < 0) != (b < 0));\n"
    "}\n"
    "static inline int64_t sol_remainder_i64(int64_t a, int64_t b)\n"
    "{\n"
    "    const int64_t r = sol_fmod_i64(a, b);\n"
    "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"
    "/* Checks an index from data. Out of range it reports an error and returns 0. */\n"
    "static inline int64_t sol_index(int64_t i, int64_t n, const struct sol_frame *f)\n"
    "{\n"
    "    if ((uint64_t)i < (uint64_t)n) return i;\n"
    "    return sol_error(f, SOL_KERNEL_INDEX), 0;\n"
    "}\n"
    "static inline int64_t sol_to_i64_f64(double x)\n"
    "{\n"
    "    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;\n"
    "}\n"
    "static inline int64_t sol_to_i64_f32(float x)\n"
    "{\n"
    "    return x >= -0x1p63f && x < 0x1p63f ? (int64_t)x : INT64_MIN;\n"
    "}\n"
    "static inline int64_t sol_to_i32_f64(double x) { return x > -0x1p31 - 1 && x < 0x1p31 ? (int64_t)x : INT32_MIN; "
    "}\n"
    "static inline int64_t sol_to_i32_f32(float x) { return x >= -0x1p31f && x < 0x1p31f ? (int64_t)x : INT32_MIN; }\n"
    "static inline int64_t sol_to_u64_f64(double x)\n"
    "{\n"
    "    return x >= 0x1p63 && x < 0x1p64 ? (int64_t)(uint64_t)x : sol_to_i64_f64(x);\n"
    "}\n"
    "static inline int64_t sol_to_u64_f32(float x) { return sol_to_u64_f64(x); }\n"
    "static inline int64_t sol_shl_i64(int64_t a, int64_t n) { return n < 0 || n > 63 ? 0 : (int64_t)((uint64_t)a << "
    "n); "
    "}\n"
    "static inline int64_t sol_shr_i64(int64_t a, int64_t n) { return a >> (n < 0 || n > 63 ? 63 : n); }\n"
    "static inline int64_t sol_pow_i64(int64_t a, int64_t n)\n"
    "{\n"
    "    uint64_t square = (uint64_t)a, r = 1;\n"
    "    if (n < 0) return a == 1 ? 1 : a == -1 ? (n % 2 ? -1 : 1) : 0;\n"
    "    for (; n; n >>= 1, square *= square)\n"
    "        if (n & 1) r *= square;\n"
    "    return (int64_t)r;\n"
    "}\n"
    "static inline int64_t sol_gcd_i64(int64_t a, int64_t b)\n"
    "{\n"
    "    while (b) {\n"
    "        const int64_t r = sol_fmod_i64(a, b);\n"
    "        a = b;\n"
    "        b = r;\n"
    "    }\n"
    "    return sol_abs_i64(a);\n"
    "}\n"
    "static inline int64_t sol_lcm_i64(int64_t a, int64_t b)\n"
    "{\n"
    "    const int64_t g = sol_gcd_i64(a, b);\n"
    "    return g ? sol_abs_i64(sol_mul_i64(a / g, b)) : 0;\n"
    "}\n"
    "/* The same for unsigned integers. */\n"
    "static inline uint64_t sol_abs_u64(uint64_t a) { return a; }\n"
    "static inline uint64_t sol_truncdiv_u64(uint64_t a, uint64_t b) { return b ? a / b : 0; }\n"
    "static inline uint64_t sol_floordiv_u64(uint64_t a, uint64_t b) { return b ? a / b : 0; }\n"
    "static inline uint64_t sol_fmod_u64(uint64_t a, uint64_t b) { return b ? a % b : 0; }\n"
    "static inline uint64_t sol_remainder_u64(uint64_t a, uint64_t b) { return b ? a % b : 0; }\n"
    "static inline uint64_t sol_shl_u64(uint64_t a, uint64_t n) { return n > 63 ? 0 : a << n; }\n"
    "static inline uint64_t sol_shr_u64(uint64_t a, uint64_t n) { return n > 63 ? 0 : a >> n; }\n"
    "static inline uint64_t sol_pow_u64(uint64_t a, uint64_t n)\n"
    "{\n"
    "    uint64_t r = 1;\n"
    "    for (; n; n >>= 1, a *= a)\n"
    "        if (n & 1) r *= a;\n"
    "    return r;\n"
    "}\n"
    "static inline uint64_t sol_gcd_u64(uint64_t a, uint64_t b)\n"
    "{\n"
    "    while (b) {\n"
    "        const uint64_t r = a % b;\n"
    "        a = b;\n"
    "        b = r;\n"
    "    }\n"
    "    return a;\n"
    "}\n"
    "static inline uint64_t sol_lcm_u64(uint64_t a, uint64_t b)\n"
    "{\n"
    "    const uint64_t g = sol_gcd_u64(a, b);\n"
    "    return g ? a / g * b : 0;\n"
    "}\n"
    "/* Uniform in 0..1, from a seed and a position (splitmix64). */\n"
    "static inline double sol_rand_i(int64_t seed, int64_t at)\n"
    "{\n"
    "    uint64_t z = (uint64_t)at * 0x9E3779B97F4A7C15u + (uint64_t)seed;\n"
    "    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;\n"
    "    z = (z ^ z >> 27) * 0x94D049BB133111EBu;\n"
    "    return (double)((z ^ z >> 31) >> 40) * 0x1p-24;\n"
    "}\n"
    "static inline double sol_remainder(double a, double b)\n"
    "{\n"
    "    const double r = fmod(a, b);\n"
    "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"
    "static inline float sol_remainderf(float a, float b)\n"
    "{\n"
    "    const float r = fmodf(a, b);\n"
    "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"
    "/* Computed from the exact remainder, as in Python. */\n"
    "static inline double sol_floordiv(double a, double b)\n"
    "{\n"
    "    if (b == 0) return a / b;\n"
    "    const double r = fmod(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0));\n"
    "    return q == 0 ? copysign(0, a / b) : floor(q) + (q - floor(q) > 0.5);\n"
    "}\n"
    "static inline float sol_floordivf(float a, float b)\n"
    "{\n"
    "    if (b == 0) return a / b;\n"
    "    const float r = fmodf(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0));\n"
    "    return q == 0 ? copysignf(0, a / b) : floorf(q) + (q - floorf(q) > 0.5f);\n"
    "}\n"
    "/* erf^-1: an approximation, then Newton's steps on erfc, which keeps digits near 1. */\n"
    "static inline double sol_erfinv(double x)\n"
    "{\n"
    "    if (x == 1 || x == -1) return copysign(INFINITY, x);\n"
    "    if (!(fabs(x) < 1)) return NAN;\n"
    "    const double l = log((1 - x) * (1 + x)), h = 4.33 + l / 2;\n"
    "    double v = copysign(sqrt(sqrt(h * h - l / 0.147) - h), x);\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        const double e = fabs(x) < 0.5 ? erf(v) - x : x > 0 ? (1 - x) - erfc(v) : erfc(-v) - (1 + x);\n"
    "        const double step = e / (1.1283791670955126 * exp(-v * v));\n"
    "        if (!__builtin_isfinite(step)) break;\n"
    "        v -= step / (1 + v * step);\n"
    "    }\n"
    "    return v;\n"
    "}\n"
    "static inline float sol_erfinvf(float x) { return (float)sol_erfinv(x); }\n"
    "/* digamma: the recurrence up to 10, then the asymptotic series, which is exact to the last digit there */\n"
    "static inline double sol_digamma(double x)\n"
    "{\n"
    "    double y = 0;\n"
    "    if (x == 0) return copysign(INFINITY, -x);\n"
    "    if (x < 0) {\n"
    "        const double part = x - trunc(x);\n"
    "        if (part == 0) return NAN;\n"
    "        y = -3.141592653589793 / tan(3.141592653589793 * part);\n"
    "        x = 1 - x;\n"
    "    }\n"
    "    for (; x < 10; x++) y -= 1 / x;\n"
    "    const double z = 1 / (x * x);\n"
    "    const double tail = 1 / 252. - z * (1 / 240. - z * (1 / 132. - z * (691 / 32760. - z / 12)));\n"
    "    return y + log(x) - 0.5 / x - z * (1 / 12. - z * (1 / 120. - z * tail));\n"
    "}\n"
    "static inline float sol_digammaf(float x) { return (float)sol_digamma(x); }\n"
    "/* Hurwitz zeta: the sum of (q + k)^-x, with the Euler-Maclaurin formula from 10 on */\n"
    "static inline double sol_zeta(double x, double q)\n"
    "{\n"
    "    static const double part[] = {1 / 12., -1 / 720., 1 / 30240., -1 / 1209600., 1 / 47900160., -691 / "
    "1307674368000.,\n"
    "                                  1 / 74724249600., -3617 / 10670622842880000., 43867 / 5109094217170944000.};\n"
    "    double sum = 0;\n"
    "    if (x == 1) return INFINITY;\n"
    "    if (!(x > 1) || (q <= 0 && q != floor(q) && x != floor(x))) return NAN;\n"
    "    if (q <= 0 && q == floor(q)) return INFINITY;\n"
    "    for (; q < 10; q++) sum += pow(q, -x);\n"
    "    const double term = pow(q, -x);\n"
    "    double factor = x * term / q;\n"
    "    sum += term * q / (x - 1) + 0.5 * term;\n"
    "    for (int j = 0; j < 9 && __builtin_isfinite(q); j++) {\n"
    "        sum += part[j] * factor;\n"
    "        factor *= (x + 2 * j + 1) * (x + 2 * j + 2) / (q * q);\n"
    "    }\n"
    "    return sum;\n"
    "}\n"
    "static inline float sol_zetaf(float x, float q) { return (float)sol_zeta(x, q); }\n"
    "/* Modified Bessel functions of order v, times exp(-|x|): the power series or the asymptotic series */\n"
    "static inline double sol_bessel_ie(int v, double x)\n"
    "{\n"
    "    const double a = fabs(x), sign = v ? copysign(1, x) : 1;\n"
    "    double term = a <= 30 ? (v ? a / 2 : 1) * exp(-a) : 1 / sqrt(6.283185307179586 * a), sum = term;\n"
    "    for (int k = 1; k < 100 && fabs(term) > 1e-17 * sum; k++) {\n"
    "        const double odd = 2 * k - 1;\n"
    "        term *= a <= 30 ? a * a / 4 / (k * (double)(k + v)) : (odd * odd - 4 * v * v) / (8 * k * a);\n"
    "        sum += term;\n"
    "    }\n"
    "    return sign * sum;\n"
    "}\n"
    "static inline double sol_i0e(double x) { return sol_bessel_ie(0, x); }\n"
    "static inline double sol_i1e(double x) { return sol_bessel_ie(1, x); }\n"
    "static inline float sol_i0ef(float x) { return (float)sol_bessel_ie(0, x); }\n"
    "static inline float sol_i1ef(float x) { return (float)sol_bessel_ie(1, x); }\n"
    "static inline float sol_sigmoid_f32(float x) { return 1 / (1 + expf(-x)); }\n"
    "static inline double sol_sigmoid_f64(double x) { return 1 / (1 + exp(-x)); }\n"
    "static inline float sol_relu_f32(float x) { return x <= 0 ? 0 : x; }\n"
    "static inline double sol_relu_f64(double x) { return x <= 0 ? 0 : x; }\n";

/* For each vector type of floats or int64_t. */
static const char vector_helpers[] =
    "static inline $V sol_splat_$V($S s) { return s - ($V){0}; }\n"
    "static inline $V sol_select_$V($I m, $V a, $V b) { return ($V)((m & ($I)a) | (~m & ($I)b)); }\n";

static const char float_helpers[] =
    "static inline $V sol_bool_$V($I m) { return ($V)(m & ($I)sol_splat_$V(1)); }\n"
    "static inline $V sol_abs_$V($V a) { return ($V)(($I)a & ~($I)sol_splat_$V(-($S)0)); }\n"
    "static inline $V sol_sign_$V($V a, $V sign) /* |a| with the sign of `sign` */\n"
    "{\n"
    "    const $I bit = ($I)sol_splat_$V(-($S)0);\n"
    "    return ($V)((($I)a & ~bit) | (($I)sign & bit));\n"
    "}\n";

static const char int_helpers[] =
    "static inline $V sol_max_$V($V a, $V b) { return sol_select_$V(($I)(a > b), a, b); }\n"
    "static inline $V sol_min_$V($V a, $V b) { return sol_select_$V(($I)(a < b), a, b); }\n"
    "static inline $V sol_bool_$V($V m) { return -m; }\n"
    "static inline $V sol_add_$V($V a, $V b) { return ($V)((u64x$L)a + (u64x$L)b); }\n"
    "static inline $V sol_sub_$V($V a, $V b) { return ($V)((u64x$L)a - (u64x$L)b); }\n"
    "static inline $V sol_mul_$V($V a, $V b) { return ($V)((u64x$L)a * (u64x$L)b); }\n"
    "static inline $V sol_neg_$V($V a) { return ($V)(0 - (u64x$L)a); }\n"
    "static inline $V sol_abs_$V($V a) { return sol_select_$V(a < 0, sol_neg_$V(a), a); }\n"
    "static inline $V sol_iota_$V(int64_t first)\n"
    "{\n"
    "    int64_t a[$L];\n"
    "    for (int i = 0; i < $L; i++) a[i] = first + i;\n"
    "    return *(const $V *)a;\n"
    "}\n";

/* Combines all lanes as a tree: $N the name, $F combines x and y; $H the type with half the lanes, $X and $Y its
 * lanes. */
static const char across_helper[] =
    "static inline $S sol_across_$N_$V($V v)\n"
    "{\n"
    "    const $H x = __builtin_shufflevector(v, v, $X), y = __builtin_shufflevector(v, v, $Y);\n"
    "    return sol_across_$N_$H($F);\n"
    "}\n";
static const char across_two[] = "static inline $S sol_across_$N_$V($V v)\n"
                                 "{\n"
                                 "    const $S x = v[0], y = v[1];\n"
                                 "    return $F;\n"
                                 "}\n";

/* Applies a function lane by lane: $F is its C text with the argument x, $N its name, $R the result's element, $W its
 * vector. */
static const char lane_helper[] = "static inline $W sol_$N_$V($V v)\n"
                                  "{\n"
                                  "    $W r;\n"
                                  "    for (int i = 0; i < $L; i++) {\n"
                                  "        const $S x = v[i];\n"
                                  "        r[i] = $F;\n"
                                  "    }\n"
                                  "    return r;\n"
                                  "}\n";

/* An instruction of x86 that gcc does not find by itself: $B its name, $C more arguments. If an operand is NaN, it
 * returns the second. */
static const char extreme_helper[] =
    "static inline $V sol_greater_$V($V a, $V b)\n"
    "{\n"
    "#if $G && !defined __clang__\n"
    "    return ($V)__builtin_ia32_max$B(a, b$C);\n"
    "#else\n"
    "    return sol_select_$V(a > b, a, b);\n"
    "#endif\n"
    "}\n"
    "static inline $V sol_less_$V($V a, $V b)\n"
    "{\n"
    "#if $G && !defined __clang__\n"
    "    return ($V)__builtin_ia32_min$B(a, b$C);\n"
    "#else\n"
    "    return sol_select_$V(a < b, a, b);\n"
    "#endif\n"
    "}\n"
    "static inline $V sol_max_$V($V a, $V b) { return sol_select_$V(a != a, a, sol_greater_$V(a, b)); }\n"
    "static inline $V sol_min_$V($V a, $V b) { return sol_select_$V(a != a, a, sol_less_$V(a, b)); }\n"
    "static inline $V sol_relu_$V($V a) { return sol_greater_$V(($V){0}, a); }\n";

static const char float_functions[] =
    "/* exp: 1 ulp. n = round(x / ln 2), exp(x) = 2^n exp(x - n ln 2), scaled in two steps so that denormals are "
    "right. */\n"
    "static inline $V sol_exp_$V($V x)\n"
    "{\n"
    "    x = sol_less_$V(sol_splat_$V(89.0f), x);\n"
    "    x = sol_greater_$V(sol_splat_$V(-105.0f), x);\n"
    "    const $V shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;\n"
    "    const $V r = (x - n * 0.693145752f) - n * 1.42860677e-6f;\n"
    "    $V q = r * 0.00138131445f + 0.00836941883f;\n"
    "    q = q * r + 0.0416684568f;\n"
    "    q = q * r + 0.166665148f;\n"
    "    q = q * r + 0.499999931f;\n"
    "    const $V e = q * (r * r) + r + 1.0f;\n"
    "    const $I k = ($I)shifted - 0x4b400000, half = k >> 1;\n"
    "    return e * ($V)((half + 127) << 23) * ($V)((k - half + 127) << 23);\n"
    "}\n"
    "/* log: 1 ulp. x = 2^k m, m in sqrt(1/2) .. sqrt(2); log(1 + r) = r - r^2 / 2 + r^3 q(r). */\n"
    "static inline $V sol_log_$V($V x)\n"
    "{\n"
    "    const $I tiny = x < 1.17549435e-38f;\n"
    "    const $V scaled = sol_select_$V(tiny, x * 8388608.0f, x);\n"
    "    const $I top = ($I)scaled - 0x3f3504f3, k = top >> 23;\n"
    "    const $V r = ($V)((top & 0x007fffff) + 0x3f3504f3) - 1.0f;\n"
    "    const $V n = __builtin_convertvector(k, $V) - sol_select_$V(tiny, sol_splat_$V(23.0f), ($V){0});\n"
    "    $V q = r * 0.0674664104f - 0.11675652f;\n"
    "    q = q * r + 0.118881621f;\n"
    "    q = q * r - 0.124055889f;\n"
    "    q = q * r + 0.142195524f;\n"
    "    q = q * r - 0.166679959f;\n"
    "    q = q * r + 0.200021187f;\n"
    "    q = q * r - 0.250000096f;\n"
    "    q = q * r + 0.333333126f;\n"
    "    const $V s = r * r;\n"
    "    $V y = (q * r * s + n * -2.12194440e-4f) - s * 0.5f;\n"
    "    y = r + y + n * 0.693359375f;\n"
    "    y = sol_select_$V(x == INFINITY, x, y);\n"
    "    y = sol_select_$V(x == 0, sol_splat_$V(-INFINITY), y);\n"
    "    return sol_select_$V(x >= 0, y, sol_splat_$V(NAN));\n"
    "}\n"
    "/* expm1: 4 ulp. */\n"
    "static inline $V sol_expm1_$V($V x)\n"
    "{\n"
    "    $V q = x * 0.00138131445f + 0.00836941883f;\n"
    "    q = q * x + 0.0416684568f;\n"
    "    q = q * x + 0.166665148f;\n"
    "    q = q * x + 0.499999931f;\n"
    "    return sol_select_$V(sol_abs_$V(x) < 0.34657359f, q * (x * x) + x, sol_exp_$V(x) - 1.0f);\n"
    "}\n"
    "/* log1p: 2 ulp. The rounding error of 1 + x is corrected with the derivative. */\n"
    "static inline $V sol_log1p_$V($V x)\n"
    "{\n"
    "    const $V u = 1.0f + x, y = sol_log_$V(u);\n"
    "    return sol_select_$V(($I)(u == 0) | ($I)(u == INFINITY), y, y + (x - (u - 1.0f)) / u);\n"
    "}\n"
    "/* tanh: 2 ulp. */\n"
    "static inline $V sol_tanh_$V($V x)\n"
    "{\n"
    "    const $V a = sol_abs_$V(x), s = x * x;\n"
    "    const $V large = 1.0f - 2.0f / (sol_exp_$V(a + a) + 1.0f);\n"
    "    $V q = s * -0.0057049872f + 0.0206390874f;\n"
    "    q = q * s - 0.0537397151f;\n"
    "    q = q * s + 0.133314422f;\n"
    "    q = q * s - 0.333332819f;\n"
    "    return sol_select_$V(a > 0.625f, sol_sign_$V(large, x), q * s * x + x);\n"
    "}\n"
    "/* erf: 2 ulp. Small: odd polynomial; large: 1 - exp(polynomial), the logarithm of erfc. */\n"
    "static inline $V sol_erf_$V($V x)\n"
    "{\n"
    "    const $V a = sol_abs_$V(x), s = x * x, t = sol_less_$V(sol_splat_$V(4.0f), a);\n"
    "    $V g = t * 0.000213984956f - 0.00321495564f;\n"
    "    g = g * t + 0.0228899642f;\n"
    "    g = g * t - 0.105261843f;\n"
    "    g = g * t - 0.635718315f;\n"
    "    g = g * t - 0.128514361f;\n"
    "    const $V large = 1.0f - sol_exp_$V(g * t - t);\n"
    "    $V q = s * -0.000595376113f + 0.00498594526f;\n"
    "    q = q * s - 0.0267617239f;\n"
    "    q = q * s + 0.112816827f;\n"
    "    q = q * s - 0.376124811f;\n"
    "    q = q * s + 0.128379148f;\n"
    "    return sol_select_$V(a > 0.93f, sol_sign_$V(large, x), q * x + x);\n"
    "}\n"
    "/* sigmoid: 2 ulp; 0 where the result would be denormal. */\n"
    "static inline $V sol_sigmoid_$V($V x) { return 1.0f / (1.0f + sol_exp_$V(-x)); }\n"
    "/* sin, cos: 1 ulp. Arguments are reduced in double by multiples of pi / 2; libm handles huge ones. */\n"
    "static inline $V sol_wave_$V($V v, int quarter)\n"
    "{\n"
    "    float a[$L];\n"
    "    __builtin_memcpy(a, &v, sizeof a);\n"
    "    int huge = 0;\n"
    "    for (int i = 0; i < $L; i++) huge |= a[i] > 1e6f || a[i] < -1e6f;\n"
    "    if (huge) {\n"
    "        for (int i = 0; i < $L; i++) a[i] = quarter ? cosf(a[i]) : sinf(a[i]);\n"
    "    } else {\n"
    "        for (int i = 0; i < $L; i++) {\n"
    "            const double x = a[i], n = (x * 0.63661977236758134 + 0x1.8p52) - 0x1.8p52;\n"
    "            const double r = (x - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34, s = r * r;\n"
    "            const double sine = r + r * s * (-0.166666666 + s * (0.00833332928 + s * (-0.000198393044 + s * "
    "2.71804649e-06)));\n"
    "            const double cosine = 1 - 0.5 * s + s * s * (0.0416666666 + s * (-0.00138888835 + s * (2.47994515e-05 "
    "+ s * -2.72050435e-07)));\n"
    "            const int64_t k = (int64_t)(n == n ? n : 0) + quarter;\n"
    "            const double y = k & 1 ? cosine : sine;\n"
    "            a[i] = (float)(k & 2 ? -y : y);\n"
    "        }\n"
    "    }\n"
    "    __builtin_memcpy(&v, a, sizeof a);\n"
    "    return v;\n"
    "}\n"
    "static inline $V sol_sin_$V($V x) { return sol_wave_$V(x, 0); }\n"
    "static inline $V sol_cos_$V($V x) { return sol_wave_$V(x, 1); }\n";

struct token {
    char ivar;
    const char *text;
};

static void fill(struct text *out, const char *template, const struct token *tokens, int n)
{
    /* start of what is not copied yet; text without changes is copied at once, since every kernel needs this */
    const char *from = template;
    for (const char *s = template; (s = strchr(s, '$')); s++) {
        int i = 0;
        while (i < n && tokens[i].ivar != s[1]) i++;
        if (i == n) continue;
        text_add(out, from, (size_t)(s - from));
        text_add(out, tokens[i].text, strlen(tokens[i].text));
        from = ++s + 1;
    }
    text_add(out, from, strlen(from));
}

/* Prints the functions without a vector form: f of each lane. */
static void lane_functions(struct text *out, struct token *t, int n, enum compute k)
{
    static const struct {
        const char *name, *f32, *f64; /* NULL: already defined */
    } functions[] = {
        {"sqrt", "sqrtf(x)", "sqrt(x)"},
        {"floor", "floorf(x)", "floor(x)"},
        {"ceil", "ceilf(x)", "ceil(x)"},
        {"trunc", "truncf(x)", "trunc(x)"},
        {"round", "rintf(x)", "rint(x)"},
        {"exp", NULL, "exp(x)"},
        {"log", NULL, "log(x)"},
        {"tanh", NULL, "tanh(x)"},
        {"erf", NULL, "erf(x)"},
        {"sin", NULL, "sin(x)"},
        {"cos", NULL, "cos(x)"},
        {"sigmoid", NULL, "sol_sigmoid_f64(x)"},
        {"expm1", NULL, "expm1(x)"},
        {"log1p", NULL, "log1p(x)"},
        {"to_i64", "sol_to_i64_f32(x)", "sol_to_i64_f64(x)"},
        {"to_i32", "sol_to_i32_f32(x)", "sol_to_i32_f64(x)"},
        {"to_u64", "sol_to_u64_f32(x)", "sol_to_u64_f64(x)"},
    };
    const char *lanes = t[0].text, *vector = t[1].text, *scalar = t[3].text;
    for (int i = 0; i < COUNT_OF(functions); i++) {
        const char *f = k == C_F32 ? functions[i].f32 : functions[i].f64;
        if (!f) continue;
        const bool to_int = !strncmp(functions[i].name, "to_", 3);
        t[n] = (struct token){'F', f};
        t[n + 1] = (struct token){'N', functions[i].name};
        t[n + 2] = (struct token){'R', to_int ? "int64_t" : scalar};
        t[n + 3] = (struct token){'W', to_int ? arena_printf(out->arena, "i64x%s", lanes) : vector};
        fill(out, lane_helper, t, n + 4);
    }
}

/* Prints sums, products and extremes across all lanes. */
static void across(struct text *out, struct token *t, int n, int lanes, enum compute k)
{
    const char *name = compute_def(k)->name;
    const char *half = lanes > 2 ? arena_printf(out->arena, "%sx%d", name, lanes / 2) : name;
    const struct {
        const char *name, *join;
    } ways[] = {{"sum", "x + y"},
                {"prod", "x * y"},
                {"max", arena_printf(out->arena, "sol_max_%s(y, x)", half)},
                {"min", arena_printf(out->arena, "sol_min_%s(y, x)", half)}};
    struct text low = text_new(out->arena), high = text_new(out->arena);
    for (int i = 0; i < lanes / 2; i++) {
        text_put(&low, i ? ", %d" : "%d", i);
        text_put(&high, i ? ", %d" : "%d", i + lanes / 2);
    }
    t[n + 2] = (struct token){'H', half};
    t[n + 3] = (struct token){'X', low.at};
    t[n + 4] = (struct token){'Y', high.at};
    for (int i = 0; i < COUNT_OF(ways); i++) {
        t[n] = (struct token){'N', ways[i].name};
        t[n + 1] = (struct token){'F', ways[i].join};
        fill(out, lanes > 2 ? across_helper : across_two, t, n + 5);
    }
}

static void extremes(struct text *out, struct token *t, int n, int lanes, enum compute k)
{
    static const struct {
        enum compute k;
        int lanes;
        const char *where, *name, *more;
    } instructions[] = {
        {C_F32, 4, "defined __SSE__", "ps", ""},
        {C_F32, 8, "defined __AVX__", "ps256", ""},
        {C_F32, 16, "defined __AVX512F__", "ps512_mask", ", a, -1, 4"},
        {C_F64, 2, "defined __SSE2__", "pd", ""},
        {C_F64, 4, "defined __AVX__", "pd256", ""},
        {C_F64, 8, "defined __AVX512F__", "pd512_mask", ", a, -1, 4"},
    };
    t[n] = (struct token){'G', "0"};
    t[n + 1] = (struct token){'B', ""};
    t[n + 2] = (struct token){'C', ""};
    for (int i = 0; i < COUNT_OF(instructions); i++) {
        if (instructions[i].k != k || instructions[i].lanes != lanes) continue;
        t[n].text = instructions[i].where;
        t[n + 1].text = instructions[i].name;
        t[n + 2].text = instructions[i].more;
    }
    fill(out, extreme_helper, t, n + 3);
}

/* Transposes as many vectors as they have lanes. Each stage interleaves the first half with the second. */
static void transpose(struct text *out, int lanes, const char *vector)
{
    struct text low = text_new(out->arena), high = text_new(out->arena);
    for (int i = 0; i < lanes / 2; i++) {
        text_put(&low, "%s%d, %d", i ? ", " : "", i, lanes + i);
        text_put(&high, "%s%d, %d", i ? ", " : "", lanes / 2 + i, lanes + lanes / 2 + i);
    }
    text_put(out, "static inline void sol_transpose_%s(%s *v)\n{\n    %s t[%d];\n", vector, vector, vector, lanes);
    const char *from = "v", *to = "t";
    for (int stage = 1; stage < lanes; stage *= 2) {
        for (int i = 0; i < lanes / 2; i++) {
            text_put(out, "    %s[%d] = __builtin_shufflevector(%s[%d], %s[%d], %s);\n", to, 2 * i, from, i, from,
                     i + lanes / 2, low.at);
            text_put(out, "    %s[%d] = __builtin_shufflevector(%s[%d], %s[%d], %s);\n", to, 2 * i + 1, from, i, from,
                     i + lanes / 2, high.at);
        }
        const char *swap = from;
        from = to;
        to = swap;
    }
    if (*from == 't') text_put(out, "    for (int i = 0; i < %d; i++) v[i] = t[i];\n", lanes);
    text_put(out, "}\n");
}

static void vectors(struct text *out, int lanes)
{
    static const char *const elements[][2] = {
        {"float", "f32"},   {"double", "f64"},   {"uint8_t", "u8"},  {"int8_t", "i8"},    {"uint16_t", "u16"},
        {"int16_t", "i16"}, {"uint32_t", "u32"}, {"int32_t", "i32"}, {"uint64_t", "u64"}, {"int64_t", "i64"}};
    static const int bytes[] = {4, 8, 1, 1, 2, 2, 4, 4, 8, 8};
    text_put(out, "\n/* -- %d lanes */\n", lanes);
    for (int i = 0; i < COUNT_OF(elements); i++)
        text_put(out, "typedef %s %sx%d __attribute__((vector_size(%d), aligned(%d), may_alias));\n", elements[i][0],
                 elements[i][1], lanes, lanes * bytes[i], bytes[i]);
    text_put(out, "static inline i32x%d sol_splat_i32x%d(int32_t s) { return s - (i32x%d){0}; }\n", lanes, lanes,
             lanes);
    for (enum compute k = C_F32; k <= C_I64; k++) {
        const struct compute_def *d = compute_def(k);
        struct token t[10] = {{'L', arena_printf(out->arena, "%d", lanes)},
                              {'V', arena_printf(out->arena, "%sx%d", d->name, lanes)},
                              {'I', arena_printf(out->arena, "%sx%d", d->mask, lanes)},
                              {'S', d->type}};
        fill(out, vector_helpers, t, 4);
        fill(out, k == C_I64 ? int_helpers : float_helpers, t, 4);
        if (k != C_I64) extremes(out, t, 4, lanes, k);
        across(out, t, 4, lanes, k);
        transpose(out, lanes, t[1].text);
        if (k == C_F32) fill(out, float_functions, t, 4);
        if (k != C_I64) lane_functions(out, t, 4, k);
    }
}

/* Declares what generated code uses of libm and <math.h>. Reading the header would take a compiler as long as most
 * kernels. */
static void libm(struct text *out)
{
    static const char *const unary[] = {"acos", "acosh", "asin",   "asinh", "atan",  "atanh", "ceil",
                                        "cos",  "cosh",  "erf",    "erfc",  "exp",   "exp2",  "expm1",
                                        "fabs", "floor", "lgamma", "log",   "log10", "log1p", "log2",
                                        "rint", "sin",   "sinh",   "sqrt",  "tan",   "tanh",  "trunc"};
    static const char *const binary[] = {"atan2", "copysign", "fmod", "hypot", "nextafter", "pow"};
    text_put(out, "#define INFINITY __builtin_inff()\n#define NAN __builtin_nanf(\"\")\n");
    for (int i = 0; i < COUNT_OF(unary); i++)
        text_put(out, "double %s(double);\nfloat %sf(float);\n", unary[i], unary[i]);
    for (int i = 0; i < COUNT_OF(binary); i++)
        text_put(out, "double %s(double, double);\nfloat %sf(float, float);\n", binary[i], binary[i]);
}

void print_prelude(struct text *out, const struct target *t)
{
    libm(out);
    text_add(out, scalar_helpers, strlen(scalar_helpers));
    for (int lanes = 2; lanes <= MAX(4, target_lanes(t, 4)); lanes *= 2) vectors(out, lanes);
    text_put(out, "\n");
}

struct text solver_text(const struct solver_context *sc)
{
    enum { ROOM = 256 << 10 }; /* of addresses, so that the text grows without being copied */
    struct text t = text_new(sc->scratch ? sc->scratch : sc->arena);
    if (!sc->scratch) return t;
    t.room = ROOM;
    t.at = arena_alloc(t.arena, t.room);
    return t;
}
