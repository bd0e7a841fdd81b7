/* Vector functions of float that are computed in double: these need no corrections for what float rounds away. Their
 * results are as exact as float can be, but for 0.1 ulp. The polynomials are our own minimax fits, and relative errors
 * are given at each function. What is unusual and rare is left to libm. */
#include "print/helpers.h"

#define WIDE "@f64x$L"
#define BITS "@i64x$L"

static const struct helper_row wide_helpers[] = {
    {"sol_wide_$V", "@HELPER " WIDE " sol_wide_$V(@$V x) { return __builtin_convertvector(x, " WIDE "); }"},
    {"sol_narrow_$V", "@HELPER @$V sol_narrow_$V(" WIDE " x) { return __builtin_convertvector(x, @$V); }"},
    {"sol_quick_exp2_$V", "/* 2^x: 2e-9, for |x| < 1000. */\n"
                          "@HELPER " WIDE " sol_quick_exp2_$V(" WIDE " x)\n"
                          "{\n"
                          "    const " WIDE " shifted = x + 0x1.8p52, r = x - (shifted - 0x1.8p52);\n"
                          "    " WIDE " q = r * 0.00015345811702517133 + 0.0013399931214864123;\n"
                          "    q = q * r + 0.0096184889581717187;\n"
                          "    q = q * r + 0.055503287769790563;\n"
                          "    q = q * r + 0.2402264689062529;\n"
                          "    q = q * r + 0.69314720573725597;\n"
                          "    q = q * r + 1.0000000005541665;\n"
                          "    return q * (" WIDE ")(((" BITS ")shifted - 0x4338000000000000 + 1023) << 52);\n"
                          "}"},
    {"sol_quick_log2_$V",
     "/* log2: 5e-12, for normal x > 0. x = 2^k m, m in sqrt(1/2) .. sqrt(2); log2(m) is odd in (m - 1) / (m + 1). */\n"
     "@HELPER " WIDE " sol_quick_log2_$V(" WIDE " x)\n"
     "{\n"
     "    const " BITS " top = (" BITS ")x - 0x3fe6a09e667f3bcd, k = top >> 52;\n"
     "    const " WIDE " m = (" WIDE ")((top & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd);\n"
     "    const " WIDE " z = (m - 1.0) / (m + 1.0), s = z * z;\n"
     "    " WIDE " q = s * 0.3406884657113039 + 0.41167552099819832;\n"
     "    q = q * s + 0.57708352159480025;\n"
     "    q = q * s + 0.96179667387915924;\n"
     "    q = q * s + 2.8853900817888332;\n"
     "    return q * z + ((" WIDE ")(k + 0x4338000000000000) - 0x1.8p52);\n"
     "}"},
    {"sol_quick_atan2_$V",
     "/* atan2: 3e-9. */\n"
     "@HELPER " WIDE " sol_quick_atan2_$V(" WIDE " y, " WIDE " x)\n"
     "{\n"
     "    const " WIDE " a = @sol_abs_f64x$L(y), b = @sol_abs_f64x$L(x), one = @sol_splat_f64x$L(1.0);\n"
     "    const " BITS " steep = (" BITS ")(a > b);\n"
     "    const " WIDE " high = @sol_select_f64x$L(steep, a, b), low = @sol_select_f64x$L(steep, b, a);\n"
     "    " WIDE " t = low / @sol_select_f64x$L((" BITS ")(high == 0), one, high);\n"
     "    t = @sol_select_f64x$L((" BITS ")(low == (double)@INFINITY), one, t);\n"
     "    const " WIDE " s = t * t;\n"
     "    " WIDE " q = s * -0.0017873209317962266 + 0.010877021451622712;\n"
     "    q = q * s - 0.031085603142379598;\n"
     "    q = q * s + 0.05783577495252111;\n"
     "    q = q * s - 0.083940004584370231;\n"
     "    q = q * s + 0.10947793321012481;\n"
     "    q = q * s - 0.14263050585579606;\n"
     "    q = q * s + 0.19998374522153234;\n"
     "    q = q * s - 0.33333287692399438;\n"
     "    q = (q * s + 0.99999999787927418) * t;\n"
     "    q = @sol_select_f64x$L(steep, 1.5707963267948966 - q, q);\n"
     "    q = @sol_select_f64x$L((" BITS ")x < 0, 3.1415926535897932 - q, q);\n"
     "    q = @sol_sign_f64x$L(q, y);\n"
     "    return @sol_select_f64x$L((" BITS ")(x != x) | (" BITS ")(y != y), x + y, q);\n"
     "}"},
    {"sol_exp2_$V", "@HELPER @$V sol_exp2_$V(@$V x)\n"
                    "{\n"
                    "    x = @sol_greater_$V(@sol_splat_$V(-200.0f), @sol_less_$V(@sol_splat_$V(200.0f), x));\n"
                    "    return @sol_narrow_$V(@sol_quick_exp2_$V(@sol_wide_$V(x)));\n"
                    "}"},
    {"sol_logarithm_$V", "@HELPER @$V sol_logarithm_$V(@$V x, double unit) /* log2(x) * unit */\n"
                         "{\n"
                         "    const @$V y = @sol_narrow_$V(@sol_quick_log2_$V(@sol_wide_$V(x)) * unit);\n"
                         "    const @$V low = @sol_select_$V(x == 0, @sol_splat_$V(-@INFINITY), @sol_splat_$V(@NAN));\n"
                         "    return @sol_select_$V(x == @INFINITY, x, @sol_select_$V(x > 0, y, low));\n"
                         "}"},
    {"sol_log2_$V", "@HELPER @$V sol_log2_$V(@$V x) { return @sol_logarithm_$V(x, 1.0); }"},
    {"sol_log10_$V", "@HELPER @$V sol_log10_$V(@$V x) { return @sol_logarithm_$V(x, 0.30102999566398120); }"},
    {"sol_pow_$V",
     "/* pow; libm has the cases of negative x, infinities and NaN. */\n"
     "@HELPER @$V sol_pow_$V(@$V x, @$V y)\n"
     "{\n"
     "    float a[$L], b[$L];\n"
     "    int odd = 0;\n"
     "    __builtin_memcpy(a, &x, sizeof a);\n"
     "    __builtin_memcpy(b, &y, sizeof b);\n"
     "    for (int i = 0; i < $L; i++)\n"
     "        odd |= !(a[i] >= 0) | !(a[i] < @INFINITY) | !(@fabsf(b[i]) < @INFINITY) | ((a[i] == 0) & (b[i] <= 0));\n"
     "    if (odd) {\n"
     "        for (int i = 0; i < $L; i++) a[i] = @powf(a[i], b[i]);\n"
     "        __builtin_memcpy(&x, a, sizeof a);\n"
     "        return x;\n"
     "    }\n"
     "    const @$V base = @sol_select_$V(x == 0, @sol_splat_$V(1.0f), x);\n"
     "    " WIDE " e = @sol_quick_log2_$V(@sol_wide_$V(base)) * @sol_wide_$V(y);\n"
     "    e = @sol_select_f64x$L((" BITS ")(e > 500.0), @sol_splat_f64x$L(500.0), e);\n"
     "    e = @sol_select_f64x$L((" BITS ")(e < -500.0), @sol_splat_f64x$L(-500.0), e);\n"
     "    return @sol_select_$V(x == 0, (@$V){0}, @sol_narrow_$V(@sol_quick_exp2_$V(e)));\n"
     "}"},
    {"sol_atan2_$V", "@HELPER @$V sol_atan2_$V(@$V y, @$V x)\n"
                     "{\n"
                     "    return @sol_narrow_$V(@sol_quick_atan2_$V(@sol_wide_$V(y), @sol_wide_$V(x)));\n"
                     "}"},
    {"sol_atan_$V", "@HELPER @$V sol_atan_$V(@$V x)\n"
                    "{\n"
                    "    return @sol_narrow_$V(@sol_quick_atan2_$V(@sol_wide_$V(x), @sol_splat_f64x$L(1.0)));\n"
                    "}"},
    {"sol_other_leg_$V", "@HELPER " WIDE " sol_other_leg_$V(" WIDE " x) /* sqrt(1 - x^2) */\n"
                         "{\n"
                         "    return @sol_sqrt_f64x$L((1.0 - x) * (1.0 + x));\n"
                         "}"},
    {"sol_asin_$V", "@HELPER @$V sol_asin_$V(@$V x)\n"
                    "{\n"
                    "    const " WIDE " w = @sol_wide_$V(x);\n"
                    "    return @sol_narrow_$V(@sol_quick_atan2_$V(w, @sol_other_leg_$V(w)));\n"
                    "}"},
    {"sol_acos_$V", "@HELPER @$V sol_acos_$V(@$V x)\n"
                    "{\n"
                    "    const " WIDE " w = @sol_wide_$V(x);\n"
                    "    return @sol_narrow_$V(@sol_quick_atan2_$V(@sol_other_leg_$V(w), w));\n"
                    "}"},
    {"sol_tan_$V", "/* tan: as sol_wave. */\n"
                   "@HELPER @$V sol_tan_$V(@$V v)\n"
                   "{\n"
                   "    float a[$L];\n"
                   "    __builtin_memcpy(a, &v, sizeof a);\n"
                   "    int huge = 0;\n"
                   "    for (int i = 0; i < $L; i++) huge |= a[i] > 1e6f || a[i] < -1e6f;\n"
                   "    if (huge) {\n"
                   "        for (int i = 0; i < $L; i++) a[i] = @tanf(a[i]);\n"
                   "    } else {\n"
                   "        for (int i = 0; i < $L; i++) {\n"
                   "            const double x = a[i], n = (x * 0.63661977236758134 + 0x1.8p52) - 0x1.8p52;\n"
                   "            const double r = (x - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34, s = r * r;\n"
                   "            const double sine = r + r * s * (-0.166666666 + s * (0.00833332928 + s * "
                   "(-0.000198393044 + s * 2.71804649e-06)));\n"
                   "            const double cosine = 1 - 0.5 * s + s * s * (0.0416666666 + s * (-0.00138888835 + s * "
                   "(2.47994515e-05 + s * -2.72050435e-07)));\n"
                   "            const int64_t k = (int64_t)(n == n ? n : 0);\n"
                   "            a[i] = (float)(k & 1 ? -cosine / sine : sine / cosine);\n"
                   "        }\n"
                   "    }\n"
                   "    __builtin_memcpy(&v, a, sizeof a);\n"
                   "    return v;\n"
                   "}"},
    {"sol_quick_exp_$V", "@HELPER " WIDE " sol_quick_exp_$V(@$V x) /* e^x, for x >= 0 */\n"
                         "{\n"
                         "    const " WIDE " w = @sol_wide_$V(@sol_less_$V(@sol_splat_$V(200.0f), x));\n"
                         "    return @sol_quick_exp2_$V(w * 1.4426950408889634);\n"
                         "}"},
    {"sol_sinh_$V", "/* sinh; small: an odd polynomial. */\n"
                    "@HELPER @$V sol_sinh_$V(@$V x)\n"
                    "{\n"
                    "    const @$V a = @sol_abs_$V(x);\n"
                    "    const " WIDE " e = @sol_quick_exp_$V(a), w = @sol_wide_$V(x), s = w * w;\n"
                    "    " WIDE " q = s * 2.8190392003549351e-06 + 0.00019835709794392627;\n"
                    "    q = q * s + 0.0083333532310209766;\n"
                    "    q = q * s + 0.16666666417587733;\n"
                    "    q = q * s * w + w;\n"
                    "    const @$V large = @sol_sign_$V(@sol_narrow_$V((e - 1.0 / e) * 0.5), x);\n"
                    "    return @sol_select_$V(a < 1.0f, @sol_narrow_$V(q), large);\n"
                    "}"},
    {"sol_cosh_$V", "@HELPER @$V sol_cosh_$V(@$V x)\n"
                    "{\n"
                    "    const " WIDE " e = @sol_quick_exp_$V(@sol_abs_$V(x));\n"
                    "    return @sol_narrow_$V((e + 1.0 / e) * 0.5);\n"
                    "}"},
    {"sol_asinh_$V", "/* asinh; small: a series. */\n"
                     "@HELPER @$V sol_asinh_$V(@$V x)\n"
                     "{\n"
                     "    const @$V a = @sol_abs_$V(x);\n"
                     "    const " WIDE " w = @sol_wide_$V(a), s = w * w;\n"
                     "    const " WIDE " y = @sol_quick_log2_$V(w + @sol_sqrt_f64x$L(s + 1.0)) * 0.69314718055994531;\n"
                     "    const @$V r = @sol_narrow_$V(@sol_select_f64x$L((" BITS ")(w < 1e-3), w - w * s / 6.0, y));\n"
                     "    return @sol_select_$V(a < @INFINITY, @sol_sign_$V(r, x), x);\n"
                     "}"},
    {"sol_acosh_$V", "@HELPER @$V sol_acosh_$V(@$V x)\n"
                     "{\n"
                     "    const " WIDE " w = @sol_wide_$V(x), s = @sol_sqrt_f64x$L((w - 1.0) * (w + 1.0));\n"
                     "    const @$V y = @sol_narrow_$V(@sol_quick_log2_$V(w + s) * 0.69314718055994531);\n"
                     "    return @sol_select_$V(x >= 1.0f, @sol_select_$V(x < @INFINITY, y, x), @sol_splat_$V(@NAN));\n"
                     "}"},
    {"sol_atanh_$V", "/* atanh; small: a series. */\n"
                     "@HELPER @$V sol_atanh_$V(@$V x)\n"
                     "{\n"
                     "    const @$V a = @sol_abs_$V(x);\n"
                     "    const " WIDE " w = @sol_wide_$V(a);\n"
                     "    const " WIDE " y = @sol_quick_log2_$V((1.0 + w) / (1.0 - w)) * 0.34657359027997265;\n"
                     "    @$V r = @sol_narrow_$V(@sol_select_f64x$L((" BITS ")(w < 1e-3), w + w * w * w / 3.0, y));\n"
                     "    r = @sol_select_$V(a == 1.0f, @sol_splat_$V(@INFINITY), r);\n"
                     "    return @sol_select_$V(a <= 1.0f, @sol_sign_$V(r, x), @sol_splat_$V(@NAN));\n"
                     "}"},
    {"sol_hypot_$V",
     "@HELPER @$V sol_hypot_$V(@$V x, @$V y)\n"
     "{\n"
     "    const " WIDE " a = @sol_wide_$V(x), b = @sol_wide_$V(y);\n"
     "    const @$V r = @sol_narrow_$V(@sol_sqrt_f64x$L(a * a + b * b)), top = @sol_splat_$V(@INFINITY);\n"
     "    return @sol_select_$V((@$I)(@sol_abs_$V(x) == top) | (@$I)(@sol_abs_$V(y) == top), top, r);\n"
     "}"},
};

void helpers_wide(struct helpers *h, const struct token *t, int n)
{
    for (int i = 0; i < COUNT_OF(wide_helpers); i++)
        helpers_add_form(h, wide_helpers[i].name, wide_helpers[i].text, n, t);
}
