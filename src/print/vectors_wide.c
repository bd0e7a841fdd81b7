/* Vector functions of float that are computed in double, lane by lane, in loops that compilers vectorise: double needs
 * no corrections for what float rounds away. Results differ by at most 0.1 ulp from the nearest float. The polynomials
 * are our own minimax fits; relative errors are given at each function. */
#include "print/helpers.h"

static const struct helper_row quick[] = {
    {"sol_quick_exp2", "/* 2^x: 2e-9, for |x| < 1000. */\n"
                       "@HELPER double sol_quick_exp2(double x)\n"
                       "{\n"
                       "    const double shifted = x + 0x1.8p52, r = x - (shifted - 0x1.8p52);\n"
                       "    double q = r * 0.00015345811702517133 + 0.0013399931214864123, scale;\n"
                       "    q = q * r + 0.0096184889581717187;\n"
                       "    q = q * r + 0.055503287769790563;\n"
                       "    q = q * r + 0.2402264689062529;\n"
                       "    q = q * r + 0.69314720573725597;\n"
                       "    q = q * r + 1.0000000005541665;\n"
                       "    uint64_t k;\n"
                       "    __builtin_memcpy(&k, &shifted, sizeof k);\n"
                       "    k = (k - 0x4338000000000000 + 1023) << 52;\n"
                       "    __builtin_memcpy(&scale, &k, sizeof k);\n"
                       "    return q * scale;\n"
                       "}"},
    {"sol_quick_log2",
     "/* log2: 5e-12, for x that is not denormal. x = 2^k m, m in sqrt(1/2) .. sqrt(2); log2(m) is odd in\n"
     " * (m - 1) / (m + 1). */\n"
     "@HELPER double sol_quick_log2(double x)\n"
     "{\n"
     "    uint64_t top, bits;\n"
     "    double m, e;\n"
     "    __builtin_memcpy(&top, &x, sizeof top);\n"
     "    top -= 0x3fe6a09e667f3bcd;\n"
     "    bits = (top & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd;\n"
     "    __builtin_memcpy(&m, &bits, sizeof m);\n"
     "    bits = ((top + 0x4000000000000000) >> 52) - 0x400 + 0x4338000000000000;\n"
     "    __builtin_memcpy(&e, &bits, sizeof e);\n"
     "    const double z = (m - 1.0) / (m + 1.0), s = z * z;\n"
     "    double q = s * 0.3406884657113039 + 0.41167552099819832;\n"
     "    q = q * s + 0.57708352159480025;\n"
     "    q = q * s + 0.96179667387915924;\n"
     "    q = q * s + 2.8853900817888332;\n"
     "    q = q * z + (e - 0x1.8p52);\n"
     "    q = x < (double)@INFINITY ? q : x;\n"
     "    return x > 0 ? q : x == 0 ? -(double)@INFINITY : (double)@NAN;\n"
     "}"},
    {"sol_quick_atan2", "/* atan2: 3e-9. */\n"
                        "@HELPER double sol_quick_atan2(double y, double x)\n"
                        "{\n"
                        "    const double a = __builtin_fabs(y), b = __builtin_fabs(x);\n"
                        "    const double high = a > b ? a : b, low = a > b ? b : a;\n"
                        "    double t = low / (high == 0 ? 1 : high);\n"
                        "    t = low == (double)@INFINITY ? 1 : t;\n"
                        "    const double s = t * t;\n"
                        "    double q = s * -0.0017873209317962266 + 0.010877021451622712;\n"
                        "    q = q * s - 0.031085603142379598;\n"
                        "    q = q * s + 0.05783577495252111;\n"
                        "    q = q * s - 0.083940004584370231;\n"
                        "    q = q * s + 0.10947793321012481;\n"
                        "    q = q * s - 0.14263050585579606;\n"
                        "    q = q * s + 0.19998374522153234;\n"
                        "    q = q * s - 0.33333287692399438;\n"
                        "    q = (q * s + 0.99999999787927418) * t;\n"
                        "    q = a > b ? 1.5707963267948966 - q : q;\n"
                        "    q = __builtin_copysign(1, x) < 0 ? 3.1415926535897932 - q : q;\n"
                        "    q = __builtin_copysign(q, y);\n"
                        "    return x != x || y != y ? x + y : q;\n"
                        "}"},
    {"sol_quick_tan", "/* tan: 1e-9, for |x| < 1e6. */\n"
                      "@HELPER double sol_quick_tan(double x)\n"
                      "{\n"
                      "    const double n = (x * 0.63661977236758134 + 0x1.8p52) - 0x1.8p52;\n"
                      "    const double r = (x - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34, s = r * r;\n"
                      "    const double sine = r + r * s * (-0.166666666 + s * (0.00833332928 + s * "
                      "(-0.000198393044 + s * 2.71804649e-06)));\n"
                      "    const double cosine = 1 - 0.5 * s + s * s * (0.0416666666 + s * (-0.00138888835 + s * "
                      "(2.47994515e-05 + s * -2.72050435e-07)));\n"
                      "    const int64_t k = (int64_t)(n == n ? n : 0);\n"
                      "    return (k & 1 ? -cosine : sine) / (k & 1 ? sine : cosine);\n"
                      "}"},
    {"sol_quick_exp", "@HELPER double sol_quick_exp(double x) /* e^x, for x >= 0 */\n"
                      "{\n"
                      "    return @sol_quick_exp2((x > 200 ? 200 : x) * 1.4426950408889634);\n"
                      "}"},
    {"sol_quick_sinh", "/* sinh: 5e-9. Small: an odd polynomial. */\n"
                       "@HELPER double sol_quick_sinh(double x)\n"
                       "{\n"
                       "    const double a = __builtin_fabs(x), e = @sol_quick_exp(a), s = x * x;\n"
                       "    double q = s * 2.8190392003549351e-06 + 0.00019835709794392627;\n"
                       "    q = q * s + 0.0083333532310209766;\n"
                       "    q = q * s + 0.16666666417587733;\n"
                       "    q = q * s * x + x;\n"
                       "    return a < 1 ? q : __builtin_copysign((e - 1 / e) * 0.5, x);\n"
                       "}"},
    {"sol_quick_asinh", "/* asinh: 1e-11. Small: a series. */\n"
                        "@HELPER double sol_quick_asinh(double x)\n"
                        "{\n"
                        "    const double a = __builtin_fabs(x), s = a * a;\n"
                        "    const double y = @sol_quick_log2(a + @sqrt(s + 1)) * 0.69314718055994531;\n"
                        "    return __builtin_copysign(a < 1e-3 ? a - a * s / 6 : y, x);\n"
                        "}"},
    {"sol_quick_atanh", "/* atanh: 1e-11. Small: a series. */\n"
                        "@HELPER double sol_quick_atanh(double x)\n"
                        "{\n"
                        "    const double a = __builtin_fabs(x);\n"
                        "    const double y = @sol_quick_log2((1 + a) / (1 - a)) * 0.34657359027997265;\n"
                        "    return __builtin_copysign(a < 1e-3 ? a + a * a * a / 3 : y, x);\n"
                        "}"},
    {"sol_quick_hypot", "@HELPER double sol_quick_hypot(double x, double y)\n"
                        "{\n"
                        "    const double a = __builtin_fabs(x), b = __builtin_fabs(y), top = (double)@INFINITY;\n"
                        "    return a == top || b == top ? top : @sqrt(a * a + b * b);\n"
                        "}"},
};

/* $N the name, $F the value in double of x, and of y. */
static const struct helper_row of_one = {"sol_$N_$V", "@HELPER @$V sol_$N_$V(@$V v)\n"
                                                      "{\n"
                                                      "    float a[$L];\n"
                                                      "    __builtin_memcpy(a, &v, sizeof a);\n"
                                                      "    for (int i = 0; i < $L; i++) {\n"
                                                      "        const double x = a[i];\n"
                                                      "        a[i] = (float)($F);\n"
                                                      "    }\n"
                                                      "    __builtin_memcpy(&v, a, sizeof a);\n"
                                                      "    return v;\n"
                                                      "}"};
static const struct helper_row of_two = {"sol_$N_$V", "@HELPER @$V sol_$N_$V(@$V v, @$V w)\n"
                                                      "{\n"
                                                      "    float a[$L], b[$L];\n"
                                                      "    __builtin_memcpy(a, &v, sizeof a);\n"
                                                      "    __builtin_memcpy(b, &w, sizeof b);\n"
                                                      "    for (int i = 0; i < $L; i++) {\n"
                                                      "        const double x = a[i], y = b[i];\n"
                                                      "        a[i] = (float)($F);\n"
                                                      "    }\n"
                                                      "    __builtin_memcpy(&v, a, sizeof a);\n"
                                                      "    return v;\n"
                                                      "}"};
static const struct {
    const char *name, *value;
    const struct helper_row *form;
} functions[] = {
    {"exp2", "@sol_quick_exp2(x < -200 ? -200 : x > 200 ? 200 : x)", &of_one},
    {"log2", "@sol_quick_log2(x)", &of_one},
    {"log10", "@sol_quick_log2(x) * 0.30102999566398120", &of_one},
    {"atan", "@sol_quick_atan2(x, 1)", &of_one},
    {"asin", "@sol_quick_atan2(x, @sqrt((1 - x) * (1 + x)))", &of_one},
    {"acos", "@sol_quick_atan2(@sqrt((1 - x) * (1 + x)), x)", &of_one},
    {"sinh", "@sol_quick_sinh(x)", &of_one},
    {"cosh", "0.5 * @sol_quick_exp(__builtin_fabs(x)) + 0.5 / @sol_quick_exp(__builtin_fabs(x))", &of_one},
    {"asinh", "@sol_quick_asinh(x)", &of_one},
    {"acosh", "(x >= 1 ? @sol_quick_log2(x + @sqrt((x - 1) * (x + 1))) : (double)@NAN) * 0.69314718055994531", &of_one},
    {"atanh", "@sol_quick_atanh(x)", &of_one},
    {"atan2", "@sol_quick_atan2(x, y)", &of_two},
    {"hypot", "@sol_quick_hypot(x, y)", &of_two},
};

/* Those that leave some arguments to libm. */
static const struct helper_row partly[] = {
    {"sol_tan_$V", "@HELPER @$V sol_tan_$V(@$V v)\n"
                   "{\n"
                   "    float a[$L];\n"
                   "    int huge = 0;\n"
                   "    __builtin_memcpy(a, &v, sizeof a);\n"
                   "    for (int i = 0; i < $L; i++) huge |= a[i] > 1e6f || a[i] < -1e6f;\n"
                   "    if (huge)\n"
                   "        for (int i = 0; i < $L; i++) a[i] = @tanf(a[i]);\n"
                   "    else\n"
                   "        for (int i = 0; i < $L; i++) a[i] = (float)@sol_quick_tan(a[i]);\n"
                   "    __builtin_memcpy(&v, a, sizeof a);\n"
                   "    return v;\n"
                   "}"},
    {"sol_pow_$V", "/* Negative x, infinities and NaN are libm's. */\n"
                   "@HELPER @$V sol_pow_$V(@$V v, @$V w)\n"
                   "{\n"
                   "    float a[$L], b[$L];\n"
                   "    int odd = 0;\n"
                   "    __builtin_memcpy(a, &v, sizeof a);\n"
                   "    __builtin_memcpy(b, &w, sizeof b);\n"
                   "    for (int i = 0; i < $L; i++)\n"
                   "        odd |= !(a[i] >= 0) | !(a[i] < @INFINITY) | !(@fabsf(b[i]) < @INFINITY) |\n"
                   "               ((a[i] == 0) & (b[i] <= 0));\n"
                   "    if (odd)\n"
                   "        for (int i = 0; i < $L; i++) a[i] = @powf(a[i], b[i]);\n"
                   "    else\n"
                   "        for (int i = 0; i < $L; i++) {\n"
                   "            const double x = a[i], e = @sol_quick_log2(x == 0 ? 1 : x) * b[i];\n"
                   "            const double y = @sol_quick_exp2(e > 500 ? 500 : e < -500 ? -500 : e);\n"
                   "            a[i] = x == 0 ? 0 : (float)y;\n"
                   "        }\n"
                   "    __builtin_memcpy(&v, a, sizeof a);\n"
                   "    return v;\n"
                   "}"},
};

void helpers_quick(struct helpers *h)
{
    for (int i = 0; i < COUNT_OF(quick); i++) helpers_add(h, quick[i].name, quick[i].text);
}

void helpers_wide(struct helpers *h, const struct token *t, int n)
{
    struct token all[8];
    for (int i = 0; i < n; i++) all[i] = t[i];
    for (int i = 0; i < COUNT_OF(functions); i++) {
        all[n] = (struct token){'N', functions[i].name};
        all[n + 1] = (struct token){'F', functions[i].value};
        helpers_add_form(h, functions[i].form->name, functions[i].form->text, n + 2, all);
    }
    for (int i = 0; i < COUNT_OF(partly); i++) helpers_add_form(h, partly[i].name, partly[i].text, n, t);
}
