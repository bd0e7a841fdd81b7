/* Scalar helpers of generated sources: one row each, in plain C. A helper stands behind those that it uses, whose names
 * are marked in its text. */
#include "print/helpers.h"

static const struct helper_row scalar_helpers[] = {
    {"sol_max_f32", "@HELPER float sol_max_f32(float a, float b) { return a > b || a != a ? a : b; }"},
    {"sol_min_f32", "@HELPER float sol_min_f32(float a, float b) { return a < b || a != a ? a : b; }"},
    {"sol_max_f64", "@HELPER double sol_max_f64(double a, double b) { return a > b || a != a ? a : b; }"},
    {"sol_min_f64", "@HELPER double sol_min_f64(double a, double b) { return a < b || a != a ? a : b; }"},
    {"sol_max_i64", "@HELPER int64_t sol_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }"},
    {"sol_min_i64", "@HELPER int64_t sol_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }"},
    {"sol_add_i64",
     "@HELPER int64_t sol_add_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }"},
    {"sol_sub_i64",
     "@HELPER int64_t sol_sub_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }"},
    {"sol_mul_i64",
     "@HELPER int64_t sol_mul_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }"},
    {"sol_neg_i64", "@HELPER int64_t sol_neg_i64(int64_t a) { return (int64_t)(0 - (uint64_t)a); }"},
    {"sol_abs_i64", "@HELPER int64_t sol_abs_i64(int64_t a) { return a < 0 ? @sol_neg_i64(a) : a; }"},
    {"sol_error", "@HELPER void sol_error(const struct sol_frame *f, int32_t what)\n"
                  "{\n"
                  "    if (*f->error) return;\n"
                  "    *f->error_step = f->step;\n"
                  "    *f->error = what;\n"
                  "}"},
    {"sol_truncdiv_i64", "@HELPER int64_t sol_truncdiv_i64(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? "
                         "@sol_neg_i64(a) : a / b; }"},
    {"sol_fmod_i64", "@HELPER int64_t sol_fmod_i64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }"},
    {"sol_floordiv_i64", "@HELPER int64_t sol_floordiv_i64(int64_t a, int64_t b)\n"
                         "{\n"
                         "    const int64_t r = @sol_fmod_i64(a, b);\n"
                         "    return @sol_truncdiv_i64(a, b) - (r != 0 && (r < 0) != (b < 0));\n"
                         "}"},
    {"sol_remainder_i64", "@HELPER int64_t sol_remainder_i64(int64_t a, int64_t b)\n"
                          "{\n"
                          "    const int64_t r = @sol_fmod_i64(a, b);\n"
                          "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
                          "}"},
    {"sol_index", "/* Checks an index from data. Out of range it reports an error and returns 0. */\n"
                  "@HELPER int64_t sol_index(int64_t i, int64_t n, const struct sol_frame *f)\n"
                  "{\n"
                  "    if ((uint64_t)i < (uint64_t)n) return i;\n"
                  "    return @sol_error(f, SOL_KERNEL_INDEX), 0;\n"
                  "}"},
    {"sol_to_i64_f64", "@HELPER int64_t sol_to_i64_f64(double x)\n"
                       "{\n"
                       "    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;\n"
                       "}"},
    {"sol_to_i64_f32", "@HELPER int64_t sol_to_i64_f32(float x)\n"
                       "{\n"
                       "    return x >= -0x1p63f && x < 0x1p63f ? (int64_t)x : INT64_MIN;\n"
                       "}"},
    {"sol_to_i32_f64", "@HELPER int64_t sol_to_i32_f64(double x) { return x > -0x1p31 - 1 && x < 0x1p31 ? "
                       "(int64_t)x : INT32_MIN; }"},
    {"sol_to_i32_f32",
     "@HELPER int64_t sol_to_i32_f32(float x) { return x >= -0x1p31f && x < 0x1p31f ? (int64_t)x : INT32_MIN; }"},
    {"sol_to_u64_f64", "@HELPER int64_t sol_to_u64_f64(double x)\n"
                       "{\n"
                       "    return x >= 0x1p63 && x < 0x1p64 ? (int64_t)(uint64_t)x : @sol_to_i64_f64(x);\n"
                       "}"},
    {"sol_to_u64_f32", "@HELPER int64_t sol_to_u64_f32(float x) { return @sol_to_u64_f64(x); }"},
    {"sol_shl_i64", "@HELPER int64_t sol_shl_i64(int64_t a, int64_t n) { return n < 0 || n > 63 ? 0 : "
                    "(int64_t)((uint64_t)a << n); }"},
    {"sol_shr_i64", "@HELPER int64_t sol_shr_i64(int64_t a, int64_t n) { return a >> (n < 0 || n > 63 ? 63 : n); }"},
    {"sol_pow_i64", "@HELPER int64_t sol_pow_i64(int64_t a, int64_t n)\n"
                    "{\n"
                    "    uint64_t square = (uint64_t)a, r = 1;\n"
                    "    if (n < 0) return a == 1 ? 1 : a == -1 ? (n % 2 ? -1 : 1) : 0;\n"
                    "    for (; n; n >>= 1, square *= square)\n"
                    "        if (n & 1) r *= square;\n"
                    "    return (int64_t)r;\n"
                    "}"},
    {"sol_gcd_i64", "@HELPER int64_t sol_gcd_i64(int64_t a, int64_t b)\n"
                    "{\n"
                    "    while (b) {\n"
                    "        const int64_t r = @sol_fmod_i64(a, b);\n"
                    "        a = b;\n"
                    "        b = r;\n"
                    "    }\n"
                    "    return @sol_abs_i64(a);\n"
                    "}"},
    {"sol_lcm_i64", "@HELPER int64_t sol_lcm_i64(int64_t a, int64_t b)\n"
                    "{\n"
                    "    const int64_t g = @sol_gcd_i64(a, b);\n"
                    "    return g ? @sol_abs_i64(@sol_mul_i64(a / g, b)) : 0;\n"
                    "}"},
    {"sol_abs_u64", "/* The same for unsigned integers. */\n"
                    "@HELPER uint64_t sol_abs_u64(uint64_t a) { return a; }"},
    {"sol_truncdiv_u64", "@HELPER uint64_t sol_truncdiv_u64(uint64_t a, uint64_t b) { return b ? a / b : 0; }"},
    {"sol_floordiv_u64", "@HELPER uint64_t sol_floordiv_u64(uint64_t a, uint64_t b) { return b ? a / b : 0; }"},
    {"sol_fmod_u64", "@HELPER uint64_t sol_fmod_u64(uint64_t a, uint64_t b) { return b ? a % b : 0; }"},
    {"sol_remainder_u64", "@HELPER uint64_t sol_remainder_u64(uint64_t a, uint64_t b) { return b ? a % b : 0; }"},
    {"sol_shl_u64", "@HELPER uint64_t sol_shl_u64(uint64_t a, uint64_t n) { return n > 63 ? 0 : a << n; }"},
    {"sol_shr_u64", "@HELPER uint64_t sol_shr_u64(uint64_t a, uint64_t n) { return n > 63 ? 0 : a >> n; }"},
    {"sol_pow_u64", "@HELPER uint64_t sol_pow_u64(uint64_t a, uint64_t n)\n"
                    "{\n"
                    "    uint64_t r = 1;\n"
                    "    for (; n; n >>= 1, a *= a)\n"
                    "        if (n & 1) r *= a;\n"
                    "    return r;\n"
                    "}"},
    {"sol_gcd_u64", "@HELPER uint64_t sol_gcd_u64(uint64_t a, uint64_t b)\n"
                    "{\n"
                    "    while (b) {\n"
                    "        const uint64_t r = a % b;\n"
                    "        a = b;\n"
                    "        b = r;\n"
                    "    }\n"
                    "    return a;\n"
                    "}"},
    {"sol_lcm_u64", "@HELPER uint64_t sol_lcm_u64(uint64_t a, uint64_t b)\n"
                    "{\n"
                    "    const uint64_t g = @sol_gcd_u64(a, b);\n"
                    "    return g ? a / g * b : 0;\n"
                    "}"},
    {"sol_rand_i", "/* Uniform in 0..1, from a seed and a position (splitmix64). */\n"
                   "@HELPER double sol_rand_i(int64_t seed, int64_t at)\n"
                   "{\n"
                   "    uint64_t z = (uint64_t)at * 0x9E3779B97F4A7C15u + (uint64_t)seed;\n"
                   "    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;\n"
                   "    z = (z ^ z >> 27) * 0x94D049BB133111EBu;\n"
                   "    return (double)((z ^ z >> 31) >> 40) * 0x1p-24;\n"
                   "}"},
    {"sol_remainder", "@HELPER double sol_remainder(double a, double b)\n"
                      "{\n"
                      "    const double r = @fmod(a, b);\n"
                      "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
                      "}"},
    {"sol_remainderf", "@HELPER float sol_remainderf(float a, float b)\n"
                       "{\n"
                       "    const float r = @fmodf(a, b);\n"
                       "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"
                       "}"},
    {"sol_floordiv", "/* Computed from the exact remainder, as in Python. */\n"
                     "@HELPER double sol_floordiv(double a, double b)\n"
                     "{\n"
                     "    if (b == 0) return a / b;\n"
                     "    const double r = @fmod(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0));\n"
                     "    return q == 0 ? @copysign(0.0, a / b) : @floor(q) + (q - @floor(q) > 0.5);\n"
                     "}"},
    {"sol_floordivf", "@HELPER float sol_floordivf(float a, float b)\n"
                      "{\n"
                      "    if (b == 0) return a / b;\n"
                      "    const float r = @fmodf(a, b), q = (a - r) / b - (r != 0 && (r < 0) != (b < 0));\n"
                      "    return q == 0 ? @copysignf(0, a / b) : @floorf(q) + (q - @floorf(q) > 0.5f);\n"
                      "}"},
    {"sol_erfinv",
     "/* erf^-1: an approximation, then Newton's steps on erfc, which keeps digits near 1. */\n"
     "@HELPER double sol_erfinv(double x)\n"
     "{\n"
     "    if (x == 1 || x == -1) return @copysign((double)@INFINITY, x);\n"
     "    if (!(@fabs(x) < 1)) return @NAN;\n"
     "    const double l = @log((1 - x) * (1 + x)), h = 4.33 + l / 2;\n"
     "    double v = @copysign(@sqrt(@sqrt(h * h - l / 0.147) - h), x);\n"
     "    for (int i = 0; i < 4; i++) {\n"
     "        const double e = @fabs(x) < 0.5 ? @erf(v) - x : x > 0 ? (1 - x) - @erfc(v) : @erfc(-v) - (1 + x);\n"
     "        const double step = e / (1.1283791670955126 * @exp(-v * v));\n"
     "        if (!__builtin_isfinite(step)) break;\n"
     "        v -= step / (1 + v * step);\n"
     "    }\n"
     "    return v;\n"
     "}"},
    {"sol_erfinvf", "@HELPER float sol_erfinvf(float x) { return (float)@sol_erfinv(x); }"},
    {"sol_digamma",
     "/* digamma: the recurrence up to 10, then the asymptotic series, which is exact to the last digit there */\n"
     "@HELPER double sol_digamma(double x)\n"
     "{\n"
     "    double y = 0;\n"
     "    if (x == 0) return @copysign((double)@INFINITY, -x);\n"
     "    if (x < 0) {\n"
     "        const double part = x - @trunc(x);\n"
     "        if (part == 0) return @NAN;\n"
     "        y = -3.141592653589793 / @tan(3.141592653589793 * part);\n"
     "        x = 1 - x;\n"
     "    }\n"
     "    for (; x < 10; x++) y -= 1 / x;\n"
     "    const double z = 1 / (x * x);\n"
     "    const double tail = 1 / 252. - z * (1 / 240. - z * (1 / 132. - z * (691 / 32760. - z / 12)));\n"
     "    return y + @log(x) - 0.5 / x - z * (1 / 12. - z * (1 / 120. - z * tail));\n"
     "}"},
    {"sol_digammaf", "@HELPER float sol_digammaf(float x) { return (float)@sol_digamma(x); }"},
    {"sol_zeta",
     "/* Hurwitz zeta: the sum of (q + k)^-x, with the Euler-Maclaurin formula from 10 on */\n"
     "@HELPER double sol_zeta(double x, double q)\n"
     "{\n"
     "    @CONSTANT double part[] = {1 / 12., -1 / 720., 1 / 30240., -1 / 1209600., 1 / 47900160., -691 / "
     "1307674368000.,\n"
     "                                  1 / 74724249600., -3617 / 10670622842880000., 43867 / 5109094217170944000.};\n"
     "    double sum = 0;\n"
     "    if (x == 1) return @INFINITY;\n"
     "    if (!(x > 1) || (q <= 0 && q != @floor(q) && x != @floor(x))) return @NAN;\n"
     "    if (q <= 0 && q == @floor(q)) return @INFINITY;\n"
     "    for (; q < 10; q++) sum += @pow(q, -x);\n"
     "    const double term = @pow(q, -x);\n"
     "    double factor = x * term / q;\n"
     "    sum += term * q / (x - 1) + 0.5 * term;\n"
     "    for (int j = 0; j < 9 && __builtin_isfinite(q); j++) {\n"
     "        sum += part[j] * factor;\n"
     "        factor *= (x + 2 * j + 1) * (x + 2 * j + 2) / (q * q);\n"
     "    }\n"
     "    return sum;\n"
     "}"},
    {"sol_zetaf", "@HELPER float sol_zetaf(float x, float q) { return (float)@sol_zeta(x, q); }"},
    {"sol_bessel_ie",
     "/* Modified Bessel functions of order v, times exp(-|x|): the power series or the asymptotic series */\n"
     "@HELPER double sol_bessel_ie(int v, double x)\n"
     "{\n"
     "    const double a = @fabs(x), sign = v ? @copysign(1.0, x) : 1;\n"
     "    double term = a <= 30 ? (v ? a / 2 : 1) * @exp(-a) : 1 / @sqrt(6.283185307179586 * a), sum = term;\n"
     "    for (int k = 1; k < 100 && @fabs(term) > 1e-17 * sum; k++) {\n"
     "        const double odd = 2 * k - 1;\n"
     "        term *= a <= 30 ? a * a / 4 / (k * (double)(k + v)) : (odd * odd - 4 * v * v) / (8 * k * a);\n"
     "        sum += term;\n"
     "    }\n"
     "    return sign * sum;\n"
     "}"},
    {"sol_i0e", "@HELPER double sol_i0e(double x) { return @sol_bessel_ie(0, x); }"},
    {"sol_i1e", "@HELPER double sol_i1e(double x) { return @sol_bessel_ie(1, x); }"},
    {"sol_i0ef", "@HELPER float sol_i0ef(float x) { return (float)@sol_bessel_ie(0, x); }"},
    {"sol_i1ef", "@HELPER float sol_i1ef(float x) { return (float)@sol_bessel_ie(1, x); }"},
    {"sol_sigmoid_f32", "@HELPER float sol_sigmoid_f32(float x) { return 1 / (1 + @expf(-x)); }"},
    {"sol_sigmoid_f64", "@HELPER double sol_sigmoid_f64(double x) { return 1 / (1 + @exp(-x)); }"},
    {"sol_relu_f32", "@HELPER float sol_relu_f32(float x) { return x <= 0 ? 0 : x; }"},
    {"sol_relu_f64", "@HELPER double sol_relu_f64(double x) { return x <= 0 ? 0 : x; }"},
};

/* Declares what generated code uses of libm and <math.h>. Reading the header would take a compiler as long as most
 * kernels. */
static void libm(struct helpers *h)
{
    static const char *const unary[] = {"acos", "acosh", "asin",   "asinh", "atan",  "atanh", "ceil",
                                        "cos",  "cosh",  "erf",    "erfc",  "exp",   "exp2",  "expm1",
                                        "fabs", "floor", "lgamma", "log",   "log10", "log1p", "log2",
                                        "rint", "sin",   "sinh",   "sqrt",  "tan",   "tanh",  "trunc"};
    static const char *const binary[] = {"atan2", "copysign", "fmod", "hypot", "nextafter", "pow"};
    const struct flavour *f = h->flavour;
    helpers_add(h, "INFINITY", f->infinity);
    helpers_add(h, "NAN", f->nan);
    for (int i = 0; i < COUNT_OF(unary); i++) {
        helpers_add_form(h, "$N", f->unary, 1, &(struct token){'N', unary[i]});
        helpers_add_form(h, "$Nf", f->unary_f, 1, &(struct token){'N', unary[i]});
    }
    for (int i = 0; i < COUNT_OF(binary); i++) {
        helpers_add_form(h, "$N", f->binary, 1, &(struct token){'N', binary[i]});
        helpers_add_form(h, "$Nf", f->binary_f, 1, &(struct token){'N', binary[i]});
    }
}

/* Joins the values of the items of a work group, whose number is a power of two, and at least 64: all get the result.
 * Items that run together exchange their values, where the flavour has a word for it. */
static void joins(struct helpers *h)
{
    static const struct {
        const char *name, *join, *warp;
    } ops[] = {{"sum", "t[i] + t[i + n]", "x + y"},
               {"prod", "t[i] * t[i + n]", "x * y"},
               {"max", "@sol_max_$S(t[i + n], t[i])", "@sol_max_$S(y, x)"},
               {"min", "@sol_min_$S(t[i + n], t[i])", "@sol_min_$S(y, x)"}};
    static const char *const types[][2] = {{"f32", "float"}, {"f64", "double"}, {"i64", "int64_t"}};
    static const char warps[] = "@HELPER $T sol_join_$O_$S($T x, @SHARED $T *t)\n"
                                "{\n"
                                "    for (int n = 16; n > 0; n /= 2) {\n"
                                "        const $T y = @NEIGHBOUR(x, n);\n"
                                "        x = $W;\n"
                                "    }\n"
                                "    if (@ITEM % 32 == 0) t[@ITEM / 32] = x;\n"
                                "    @BARRIER;\n"
                                "    x = t[0];\n"
                                "    for (int i = 1; i < (int)@GROUP / 32; i++) {\n"
                                "        const $T y = t[i];\n"
                                "        x = $W;\n"
                                "    }\n"
                                "    @BARRIER;\n"
                                "    return x;\n"
                                "}";
    for (int o = 0; o < COUNT_OF(ops); o++)
        for (int k = 0; k < COUNT_OF(types); k++) {
            const struct token type[] = {{'S', types[k][0]}, {'T', types[k][1]}};
            const struct token all[] = {type[0],
                                        type[1],
                                        {'O', ops[o].name},
                                        {'J', form_fill(h->arena, ops[o].join, 2, type)},
                                        {'W', form_fill(h->arena, ops[o].warp, 2, type)}};
            if (*h->flavour->neighbour) {
                helpers_add_form(h, "sol_join_$O_$S", warps, COUNT_OF(all), all);
                continue;
            }
            helpers_add_form(h, "sol_join_$O_$S",
                             "@HELPER $T sol_join_$O_$S($T x, @SHARED $T *t)\n"
                             "{\n"
                             "    const int i = (int)@ITEM;\n"
                             "    t[i] = x;\n"
                             "    @BARRIER;\n"
                             "    for (int n = (int)@GROUP / 2; n > 0; n /= 2) {\n"
                             "        if (i < n) t[i] = $J;\n"
                             "        @BARRIER;\n"
                             "    }\n"
                             "    x = t[0];\n"
                             "    @BARRIER;\n"
                             "    return x;\n"
                             "}",
                             COUNT_OF(all), all);
        }
}

void helpers_scalar(struct helpers *h)
{
    libm(h);
    for (int i = 0; i < COUNT_OF(scalar_helpers); i++) helpers_add(h, scalar_helpers[i].name, scalar_helpers[i].text);
    if (!*h->flavour->item) return;
    joins(h);
    helpers_add(h, "sol_total",
                "@HELPER float sol_total(float x, float rest) { return __builtin_isfinite(rest) ? x + rest : x; }");
}
