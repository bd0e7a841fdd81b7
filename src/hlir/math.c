/* The table of element-wise functions from math.def, and their values for tests and constant folding. The file is
 * included three times: for prototypes of the composites, for the functions, and for the table. */
#include <iso646.h> /* composites say `and` */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hlir/loops.h"

/* -- what the rows consist of. Integer arithmetic wraps and never traps. */

static int64_t wrap_add(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x + (uint64_t)y);
}

static int64_t wrap_sub(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x - (uint64_t)y);
}

static int64_t wrap_mul(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x * (uint64_t)y);
}

static int64_t trunc_div_int(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? wrap_sub(0, x) : x / y;
}

static int64_t fmod_int(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}

static int64_t remainder_int(int64_t x, int64_t y)
{
    int64_t r = fmod_int(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static int64_t floor_div_int(int64_t x, int64_t y)
{
    int64_t q = trunc_div_int(x, y), r = fmod_int(x, y);
    return r != 0 && (r < 0) != (y < 0) ? q - 1 : q;
}

static int64_t pow_int(int64_t x, int64_t y)
{
    uint64_t base = (uint64_t)x, out = 1;
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
    for (; y; y >>= 1, base *= base)
        if (y & 1) out *= base;
    return (int64_t)out;
}

static int64_t gcd_int(int64_t x, int64_t y)
{
    while (y) {
        int64_t t = fmod_int(x, y);
        x = y;
        y = t;
    }
    return x < 0 ? wrap_sub(0, x) : x;
}

static int64_t lcm_int(int64_t x, int64_t y)
{
    int64_t g = gcd_int(x, y), v = g ? wrap_mul(x / g, y) : 0;
    return v < 0 ? wrap_sub(0, v) : v;
}

static int64_t shift_left(int64_t x, int64_t y)
{
    return y < 0 || y > 63 ? 0 : (int64_t)((uint64_t)x << y);
}

static int64_t shift_right(int64_t x, int64_t y)
{
    return x >> (y < 0 || y > 63 ? 63 : y);
}

/* -- the same for u64: the type of y selects the variant. Sums and products have the same bits either way. */

static uint64_t div_unsigned(uint64_t x, uint64_t y)
{
    return y ? x / y : 0;
}

static uint64_t rest_unsigned(uint64_t x, uint64_t y)
{
    return y ? x % y : 0;
}

static uint64_t pow_unsigned(uint64_t x, uint64_t y)
{
    uint64_t out = 1;
    for (; y; y >>= 1, x *= x)
        if (y & 1) out *= x;
    return out;
}

static uint64_t gcd_unsigned(uint64_t x, uint64_t y)
{
    while (y) {
        const uint64_t t = x % y;
        x = y;
        y = t;
    }
    return x;
}

static uint64_t lcm_unsigned(uint64_t x, uint64_t y)
{
    const uint64_t g = gcd_unsigned(x, y);
    return g ? x / g * y : 0;
}

static uint64_t left_unsigned(uint64_t x, uint64_t y)
{
    return y > 63 ? 0 : x << y;
}

static uint64_t right_unsigned(uint64_t x, uint64_t y)
{
    return y > 63 ? 0 : x >> y;
}

static uint64_t sub_unsigned(uint64_t x, uint64_t y)
{
    return x - y;
}

#define BY_SIGN(with, without, x, y) _Generic((y), uint64_t : without, default : with)(x, y)
#define wrap_sub(x, y) BY_SIGN(wrap_sub, sub_unsigned, x, y)
#define trunc_div_int(x, y) BY_SIGN(trunc_div_int, div_unsigned, x, y)
#define floor_div_int(x, y) BY_SIGN(floor_div_int, div_unsigned, x, y)
#define remainder_int(x, y) BY_SIGN(remainder_int, rest_unsigned, x, y)
#define fmod_int(x, y) BY_SIGN(fmod_int, rest_unsigned, x, y)
#define pow_int(x, y) BY_SIGN(pow_int, pow_unsigned, x, y)
#define gcd_int(x, y) BY_SIGN(gcd_int, gcd_unsigned, x, y)
#define lcm_int(x, y) BY_SIGN(lcm_int, lcm_unsigned, x, y)
#define shift_left(x, y) BY_SIGN(shift_left, left_unsigned, x, y)
#define shift_right(x, y) BY_SIGN(shift_right, right_unsigned, x, y)

static double max(double x, double y)
{
    return x > y || x != x ? x : y;
}

static double min(double x, double y)
{
    return x < y || x != x ? x : y;
}

static double where(double x, double y, double z)
{
    return x != 0 ? y : z;
}

static double square(double x)
{
    return x * x;
}

static double remainder_real(double x, double y)
{
    double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* Python's: computed from the exact remainder, so that x == y*q + r holds as well as it can. */
static double floor_div_real(double x, double y)
{
    if (y == 0) return x / y;
    double r = fmod(x, y), q = (x - r) / y;
    if (r != 0 && (r < 0) != (y < 0)) q -= 1;
    if (q == 0) return copysign(0, x / y);
    double whole = floor(q);
    return q - whole > 0.5 ? whole + 1 : whole;
}

/* First an approximation by M. Giles, "Approximating the erfinv function" (GPU Computing Gems 2, 2011), then Newton's
 * steps. */
static double erf_inverse(double x)
{
    if (x == 1 || x == -1) return copysign(INFINITY, x);
    if (!(fabs(x) < 1)) return NAN;
    static const double near[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                  -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
    static const double far[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                 -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
    double w = -log((1 - x) * (1 + x)), t = w < 5 ? w - 2.5 : sqrt(w) - 3, p = 0;
    for (int i = 0; i < COUNT_OF(near); ++i) p = p * t + (w < 5 ? near[i] : far[i]);
    double v = p * x;
    for (int i = 0; i < 50; ++i) { /* erfc keeps digits where erf is close to 1 */
        double error = fabs(x) < 0.5 ? erf(v) - x : x > 0 ? (1 - x) - erfc(v) : erfc(-v) - (1 + x);
        double step = error / (1.1283791670955126 * exp(-v * v));
        if (!isfinite(step)) break;
        v -= step;
        if (fabs(step) <= 1e-16 * fabs(v)) break;
    }
    return v;
}

/* The method of generated code, from a larger argument on and with fewer terms. */
static double digamma(double x)
{
    double y = 0;
    if (x == 0) return copysign(INFINITY, -x);
    if (x < 0) {
        if (x == trunc(x)) return NAN;
        y = -3.141592653589793 / tan(3.141592653589793 * (x - trunc(x)));
        x = 1 - x;
    }
    for (; x < 40; x++) y -= 1 / x;
    const double z = 1 / (x * x);
    return y + log(x) - 0.5 / x - z / 12 + z * z / 120 - z * z * z / 252 + z * z * z * z / 240;
}

/* The first terms of the sum, then an integral and its corrections (Euler-Maclaurin). */
static double zeta(double x, double q)
{
    if (x == 1 || (x > 1 && q <= 0 && q == floor(q))) return INFINITY;
    if (!(x > 1) || (q <= 0 && x != floor(x))) return NAN;
    double sum = 0;
    for (; q < 200; q++) sum += pow(q, -x);
    const double term = pow(q, -x), first = x * term / q;
    if (!isfinite(q)) return sum;
    sum += term * q / (x - 1) + 0.5 * term + first / 12;
    return sum - first * (x + 1) * (x + 2) / (q * q) / 720 +
           first * (x + 1) * (x + 2) * (x + 3) * (x + 4) / (q * q * q * q) / 30240;
}

/* Bessel's integral by the trapezoidal rule, which is exact to the last digit for a periodic integrand. For large
 * arguments, the first terms of the asymptotic series. */
static double bessel_ie(int v, double x)
{
    const double a = fabs(x);
    double sum = 0;
    if (!(a < 1e4))
        sum = (1 - (4 * v - 1) / (8 * a) + (4 * v - 1) * (4 * v - 9) / (128 * a * a)) / sqrt(6.283185307179586 * a);
    const int n = 64 + (int)(16 * sqrt(a < 1e4 ? a : 0));
    for (int k = 0; a < 1e4 && k < n; k++) {
        const double angle = 6.283185307179586 * k / n;
        sum += exp(a * (cos(angle) - 1)) * cos(v * angle) / n;
    }
    return v ? copysign(sum, x) : sum;
}

static double i0e(double x)
{
    return bessel_ie(0, x);
}

static double i1e(double x)
{
    return bessel_ie(1, x);
}

double math_eval_rand(int64_t seed, int64_t position)
{
    uint64_t z = (uint64_t)position * 0x9E3779B97F4A7C15u + (uint64_t)seed;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z = z ^ z >> 31;
    return (double)(z >> 40) / 16777216; /* 24 bits: a float holds them exactly and does not round to 1 */
}

/* -- the functions */

#define LIST_1 double x
#define LIST_2 double x, double y
#define LIST_3 double x, double y, double z
#define TAKE_1(type) const type x = a[0];
#define TAKE_2(type) const type x = a[0], y = a[1];
#define TAKE_3(type) const type x = a[0], y = a[1], z = a[2];
#define USE_1 (void)x
#define USE_2 (void)x, (void)y
#define USE_3 (void)x, (void)y, (void)z
#define abs(v) fabs(v)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits" /* `x < 0` on uint64_t */
#define P(name, n, type, real, integer, c_scalar, c_vector, c_int, derivative, doc) \
    static double real_##name(const double *a)                                      \
    {                                                                               \
        TAKE_##n(double) USE_##n;                                                   \
        return (double)(real);                                                      \
    }                                                                               \
    static int64_t int_##name(const int64_t *a)                                     \
    {                                                                               \
        TAKE_##n(int64_t) USE_##n;                                                  \
        return integer;                                                             \
    }                                                                               \
    static uint64_t unsigned_##name(const uint64_t *a)                              \
    {                                                                               \
        TAKE_##n(uint64_t) USE_##n;                                                 \
        return (uint64_t)(integer);                                                 \
    }
#define C(name, n, type, expr, derivative, doc) \
    static double real_##name(const double *a)  \
    {                                           \
        TAKE_##n(double) USE_##n;               \
        return expr;                            \
    }
#include "hlir/math.def"
#undef P
#undef C
#pragma GCC diagnostic pop

static const struct {
    struct math_def def;
    double (*real)(const double *);
    int64_t (*integer)(const int64_t *);
    uint64_t (*without_sign)(const uint64_t *);
} rows[] = {
#define PARAMS_1 "x"
#define PARAMS_2 "x y"
#define PARAMS_3 "x y z"
#define P(name, n, type, real, integer, c_scalar, c_vector, c_int, derivative, doc)  \
    {{#name, n, PARAMS_##n, NULL, type, c_scalar, c_vector, c_int, derivative, doc}, \
     real_##name,                                                                    \
     int_##name,                                                                     \
     unsigned_##name},
#define C(name, n, type, expr, derivative, doc) \
    {{#name, n, PARAMS_##n, #expr, type, NULL, NULL, NULL, derivative, doc}, real_##name, NULL, NULL},
#include "hlir/math.def"
#undef P
#undef C
};
_Static_assert(sizeof rows / sizeof *rows < 256, "the number of a row is kept in 8 bits");

int math_row(const char *name)
{
    for (int i = 0; i < COUNT_OF(rows); ++i)
        if (!strcmp(rows[i].def.name, name)) return i;
    return -1;
}

const struct math_def *math_at(int row)
{
    return row >= 0 && row < COUNT_OF(rows) ? &rows[row].def : NULL;
}

int math_rows(void)
{
    return COUNT_OF(rows);
}

double math_eval(int row, const double *args)
{
    return rows[row].real(args);
}

int64_t math_eval_int(int row, const int64_t *args)
{
    double real[3] = {0};
    if (rows[row].def.c_int) return rows[row].integer(args);
    for (int i = 0; i < rows[row].def.arity; ++i) real[i] = (double)args[i];
    double v = rows[row].real(real);
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
}

uint64_t math_eval_unsigned(int row, const uint64_t *args)
{
    return rows[row].without_sign(args);
}
