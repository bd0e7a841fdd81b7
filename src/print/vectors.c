/* Vector types of generated sources and helpers on them: C with GNU vectors, without headers and intrinsics.
 *
 * gcc and clang turn selects by masks into blends, and loops over lanes into single instructions (with the flags
 * of src/build/compiler.c). Rows are templates: $L lanes, $V vector, $I its mask type, $S scalar. The
 * polynomials are our own minimax fits (Lawson's iteration). The maximum error in ulp, for normal results, is given at
 * each function. */
#include <string.h>

#include "print/helpers.h"

/* For each vector type of floats or int64_t. */
static const struct helper_row vector_helpers[] = {
    {"sol_splat_$V", "@HELPER @$V sol_splat_$V($S s) { return s - (@$V){0}; }"},
    {"sol_select_$V", "@HELPER @$V sol_select_$V(@$I m, @$V a, @$V b) { return (@$V)((m & (@$I)a) | (~m & (@$I)b)); }"},
};

static const struct helper_row float_helpers[] = {
    {"sol_bool_$V", "@HELPER @$V sol_bool_$V(@$I m) { return (@$V)(m & (@$I)@sol_splat_$V(1)); }"},
    {"sol_abs_$V", "@HELPER @$V sol_abs_$V(@$V a) { return (@$V)((@$I)a & ~(@$I)@sol_splat_$V(-($S)0)); }"},
    {"sol_sign_$V", "@HELPER @$V sol_sign_$V(@$V a, @$V sign) /* |a| with the sign of `sign` */\n"
                    "{\n"
                    "    const @$I bit = (@$I)@sol_splat_$V(-($S)0);\n"
                    "    return (@$V)(((@$I)a & ~bit) | ((@$I)sign & bit));\n"
                    "}"},
};

static const struct helper_row int_helpers[] = {
    {"sol_max_$V", "@HELPER @$V sol_max_$V(@$V a, @$V b) { return @sol_select_$V((@$I)(a > b), a, b); }"},
    {"sol_min_$V", "@HELPER @$V sol_min_$V(@$V a, @$V b) { return @sol_select_$V((@$I)(a < b), a, b); }"},
    {"sol_bool_$V", "@HELPER @$V sol_bool_$V(@$V m) { return -m; }"},
    {"sol_add_$V", "@HELPER @$V sol_add_$V(@$V a, @$V b) { return (@$V)((@u64x$L)a + (@u64x$L)b); }"},
    {"sol_sub_$V", "@HELPER @$V sol_sub_$V(@$V a, @$V b) { return (@$V)((@u64x$L)a - (@u64x$L)b); }"},
    {"sol_mul_$V", "@HELPER @$V sol_mul_$V(@$V a, @$V b) { return (@$V)((@u64x$L)a * (@u64x$L)b); }"},
    {"sol_neg_$V", "@HELPER @$V sol_neg_$V(@$V a) { return (@$V)(0 - (@u64x$L)a); }"},
    {"sol_abs_$V", "@HELPER @$V sol_abs_$V(@$V a) { return @sol_select_$V(a < 0, @sol_neg_$V(a), a); }"},
    {"sol_iota_$V", "@HELPER @$V sol_iota_$V(int64_t first)\n"
                    "{\n"
                    "    return first + (@$V){$Z};\n"
                    "}"},
};

/* Combines all lanes as a tree: $N the name, $F combines x and y; $H the type with half the lanes, $X and $Y its
 * lanes. */
static const struct helper_row across_helper = {
    "sol_across_$N_$V", "@HELPER $S sol_across_$N_$V(@$V v)\n"
                        "{\n"
                        "    const @$H x = __builtin_shufflevector(v, v, $X), y = __builtin_shufflevector(v, v, $Y);\n"
                        "    return @sol_across_$N_$H($F);\n"
                        "}"};
static const struct helper_row across_two = {"sol_across_$N_$V", "@HELPER $S sol_across_$N_$V(@$V v)\n"
                                                                 "{\n"
                                                                 "    const $S x = v[0], y = v[1];\n"
                                                                 "    return $F;\n"
                                                                 "}"};

/* Applies a function lane by lane: $F is its C text with the argument x, $N its name, $R the result's element, $W its
 * vector. */
static const struct helper_row lane_helper = {"sol_$N_$V", "@HELPER @$W sol_$N_$V(@$V v)\n"
                                                           "{\n"
                                                           "    @$W r = {0};\n"
                                                           "    for (int i = 0; i < $L; i++) {\n"
                                                           "        const $S x = v[i];\n"
                                                           "        r[i] = $F;\n"
                                                           "    }\n"
                                                           "    return r;\n"
                                                           "}"};

/* The same for a function of x and y. */
static const struct helper_row lane_helper2 = {"sol_$N_$V", "@HELPER @$W sol_$N_$V(@$V v, @$V w)\n"
                                                            "{\n"
                                                            "    @$W r = {0};\n"
                                                            "    for (int i = 0; i < $L; i++) {\n"
                                                            "        const $S x = v[i], y = w[i];\n"
                                                            "        r[i] = $F;\n"
                                                            "    }\n"
                                                            "    return r;\n"
                                                            "}"};

/* An instruction of x86 that gcc does not find by itself: $B its name, $C more arguments. If an operand is NaN, it
 * returns the second. */
static const struct helper_row extreme_helper[] = {
    {"sol_greater_$V", "@HELPER @$V sol_greater_$V(@$V a, @$V b)\n"
                       "{\n"
                       "#if $G && !defined __clang__\n"
                       "    return (@$V)__builtin_ia32_max$B(a, b$C);\n"
                       "#else\n"
                       "    return @sol_select_$V(a > b, a, b);\n"
                       "#endif\n"
                       "}"},
    {"sol_less_$V", "@HELPER @$V sol_less_$V(@$V a, @$V b)\n"
                    "{\n"
                    "#if $G && !defined __clang__\n"
                    "    return (@$V)__builtin_ia32_min$B(a, b$C);\n"
                    "#else\n"
                    "    return @sol_select_$V(a < b, a, b);\n"
                    "#endif\n"
                    "}"},
    {"sol_max_$V", "@HELPER @$V sol_max_$V(@$V a, @$V b) { return @sol_select_$V(a != a, a, @sol_greater_$V(a, b)); }"},
    {"sol_min_$V", "@HELPER @$V sol_min_$V(@$V a, @$V b) { return @sol_select_$V(a != a, a, @sol_less_$V(a, b)); }"},
    {"sol_relu_$V", "@HELPER @$V sol_relu_$V(@$V a) { return @sol_greater_$V((@$V){0}, a); }"},
};

/* Divisions of long vectors take several times as long as an estimate, which AVX-512 has, and a step of Newton's
 * method. */
static const struct helper_row inverse_helper = {"sol_inverse_$V",
                                                 "/* 1 / a of 1 <= a <= 2: 1 ulp. */\n"
                                                 "@HELPER @$V sol_inverse_$V(@$V a)\n"
                                                 "{\n"
                                                 "#if $G && !defined __clang__\n"
                                                 "    const @$V y = (@$V)__builtin_ia32_rcp14ps512_mask(a, a, -1);\n"
                                                 "    return y * (1.0f - a * y) + y;\n"
                                                 "#else\n"
                                                 "    return 1.0f / a;\n"
                                                 "#endif\n"
                                                 "}"};

/* Elements at places: an instruction of AVX-512, $T, where there is one. */
static const struct helper_row gather_helper = {"sol_gather_$V", "@HELPER @$V sol_gather_$V(const $S *x, @$I at)\n"
                                                                 "{\n"
                                                                 "#if $G && !defined __clang__\n"
                                                                 "    return (@$V)$T;\n"
                                                                 "#else\n"
                                                                 "    @$V r = {0};\n"
                                                                 "    for (int i = 0; i < $L; i++) r[i] = x[at[i]];\n"
                                                                 "    return r;\n"
                                                                 "#endif\n"
                                                                 "}"};

/* Those that have a form with tables (vectors_tables.c). */
static const struct helper_row plain_functions[] = {
    {"sol_exp$P_$V", "/* exp: 1 ulp. n = round(x / ln 2), exp(x) = 2^n exp(x - n ln 2), scaled in two steps so that "
                     "denormals are right. */\n"
                     "@HELPER @$V sol_exp$P_$V(@$V x)\n"
                     "{\n"
                     "    x = @sol_less_$V(@sol_splat_$V(89.0f), x);\n"
                     "    x = @sol_greater_$V(@sol_splat_$V(-105.0f), x);\n" EXP_REDUCED
                     "    const @$I k = (@$I)shifted - 0x4b400000, half = k >> 1;\n"
                     "    return e * (@$V)((half + 127) << 23) * (@$V)((k - half + 127) << 23);\n"
                     "}"},
    {"sol_weight_$V",
     "/* exp(x) of x <= 0, and 0 in place of denormals, with which processors multiply slowly: 2^-127 is "
     "0 here. */\n"
     "@HELPER @$V sol_weight_$V(@$V x)\n"
     "{\n"
     "    x = @sol_greater_$V(@sol_splat_$V(-88.0f), x);\n" EXP_REDUCED
     "    return e * (@$V)(((@$I)shifted - 0x4b400000 + 127) << 23);\n"
     "}"},
    {"sol_log$P_$V",
     "/* log: 1 ulp. x = 2^k m, m in sqrt(1/2) .. sqrt(2); log(1 + r) = r - r^2 / 2 + r^3 q(r). */\n"
     "@HELPER @$V sol_log$P_$V(@$V x)\n"
     "{\n"
     "    const @$I tiny = x < 1.17549435e-38f;\n"
     "    const @$V scaled = @sol_select_$V(tiny, x * 8388608.0f, x);\n"
     "    const @$I top = (@$I)scaled - 0x3f3504f3, k = top >> 23;\n"
     "    const @$V r = (@$V)((top & 0x007fffff) + 0x3f3504f3) - 1.0f;\n"
     "    const @$V n = __builtin_convertvector(k, @$V) - @sol_select_$V(tiny, @sol_splat_$V(23.0f), (@$V){0});\n"
     "    @$V q = r * 0.0674664104f - 0.11675652f;\n"
     "    q = q * r + 0.118881621f;\n"
     "    q = q * r - 0.124055889f;\n"
     "    q = q * r + 0.142195524f;\n"
     "    q = q * r - 0.166679959f;\n"
     "    q = q * r + 0.200021187f;\n"
     "    q = q * r - 0.250000096f;\n"
     "    q = q * r + 0.333333126f;\n"
     "    const @$V s = r * r;\n"
     "    @$V y = (q * r * s + n * -2.12194440e-4f) - s * 0.5f;\n"
     "    y = r + y + n * 0.693359375f;\n"
     "    y = @sol_select_$V(x == @INFINITY, x, y);\n"
     "    y = @sol_select_$V(x == 0, @sol_splat_$V(-@INFINITY), y);\n"
     "    return @sol_select_$V(x >= 0, y, @sol_splat_$V(@NAN));\n"
     "}"},
    {"sol_tanh$P_$V", "/* tanh: 2 ulp. Large: from e = exp(-2 |x|). */\n"
                      "@HELPER @$V sol_tanh$P_$V(@$V x)\n"
                      "{\n"
                      "    const @$V a = @sol_abs_$V(x), s = x * x, e = @sol_weight_$V(a * -2.0f);\n"
                      "    const @$V large = 1.0f - (e + e) * @sol_inverse_$V(e + 1.0f);\n"
                      "    @$V q = s * -0.0057049872f + 0.0206390874f;\n"
                      "    q = q * s - 0.0537397151f;\n"
                      "    q = q * s + 0.133314422f;\n"
                      "    q = q * s - 0.333332819f;\n"
                      "    return @sol_select_$V(a > 0.625f, @sol_sign_$V(large, x), q * s * x + x);\n"
                      "}"},
    {"sol_erf_small_$V", "@HELPER @$V sol_erf_small_$V(@$V x) /* erf for |x| < 0.93: an odd polynomial */\n"
                         "{\n"
                         "    const @$V s = x * x;\n"
                         "    @$V q = s * -0.000595376113f + 0.00498594526f;\n"
                         "    q = q * s - 0.0267617239f;\n"
                         "    q = q * s + 0.112816827f;\n"
                         "    q = q * s - 0.376124811f;\n"
                         "    q = q * s + 0.128379148f;\n"
                         "    return q * x + x;\n"
                         "}"},
    {"sol_erf$P_$V", "/* erf: 2 ulp. Large: 1 - exp(polynomial), the logarithm of erfc. */\n"
                     "@HELPER @$V sol_erf$P_$V(@$V x)\n"
                     "{\n"
                     "    const @$V a = @sol_abs_$V(x), t = @sol_less_$V(@sol_splat_$V(4.0f), a);\n"
                     "    @$V g = t * 0.000213984956f - 0.00321495564f;\n"
                     "    g = g * t + 0.0228899642f;\n"
                     "    g = g * t - 0.105261843f;\n"
                     "    g = g * t - 0.635718315f;\n"
                     "    g = g * t - 0.128514361f;\n"
                     "    const @$V large = 1.0f - @sol_weight_$V(g * t - t);\n"
                     "    return @sol_select_$V(a > 0.93f, @sol_sign_$V(large, x), @sol_erf_small_$V(x));\n"
                     "}"},
};

static const struct helper_row float_functions[] = {
    {"sol_expm1_$V",
     "/* expm1: 4 ulp. */\n"
     "@HELPER @$V sol_expm1_$V(@$V x)\n"
     "{\n"
     "    @$V q = x * 0.00138131445f + 0.00836941883f;\n"
     "    q = q * x + 0.0416684568f;\n"
     "    q = q * x + 0.166665148f;\n"
     "    q = q * x + 0.499999931f;\n"
     "    return @sol_select_$V(@sol_abs_$V(x) < 0.34657359f, q * (x * x) + x, @sol_exp_$V(x) - 1.0f);\n"
     "}"},
    {"sol_log1p_$V", "/* log1p: 2 ulp. The rounding error of 1 + x is corrected with the derivative. */\n"
                     "@HELPER @$V sol_log1p_$V(@$V x)\n"
                     "{\n"
                     "    const @$V u = 1.0f + x, y = @sol_log_$V(u);\n"
                     "    return @sol_select_$V((@$I)(u == 0) | (@$I)(u == @INFINITY), y, y + (x - (u - 1.0f)) / u);\n"
                     "}"},
    {"sol_erfc_$V",
     "/* erfc: 6 ulp. Large: exp(-a^2) times a polynomial in 1 / (a + 2). The square is exact for the upper half h of\n"
     " * a's digits; d is what it lacks. */\n"
     "@HELPER @$V sol_erfc_$V(@$V x)\n"
     "{\n"
     "    const @$V a = @sol_less_$V(@sol_splat_$V(10.1f), @sol_abs_$V(x)), t = 1.0f / (a + 2.0f);\n"
     "    const @$V h = (@$V)((@$I)a & -0x1000), d = (h - a) * (h + a);\n"
     "    @$V e = d * 0.0416666667f + 0.166666667f;\n"
     "    e = (e * d + 0.5f) * d * d + d;\n"
     "    @$V q = t * -31.3573303f + 75.8587036f;\n"
     "    q = q * t - 65.5581818f;\n"
     "    q = q * t + 19.5846729f;\n"
     "    q = q * t - 1.43393552f;\n"
     "    q = q * t + 3.35625076f;\n"
     "    q = q * t + 1.93193161f;\n"
     "    q = q * t + 1.13028753f;\n"
     "    q = (q * t + 0.564153194f) * t;\n"
     "    const @$V large = @sol_exp_$V(-h * h) * (q * e + q);\n"
     "    return @sol_select_$V(a > 0.5f, @sol_select_$V(x < 0, 2.0f - large, large), 1.0f - @sol_erf_small_$V(x));\n"
     "}"},
    {"sol_sigmoid_$V", "/* sigmoid: 2 ulp; 0 where the result would be denormal. */\n"
                       "@HELPER @$V sol_sigmoid_$V(@$V x) { return 1.0f / (1.0f + @sol_exp_$V(-x)); }"},
    {"sol_wave_far_$V",
     "/* Arguments are reduced in double by multiples of pi / 2; libm handles huge ones. */\n"
     "@HELPER @$V sol_wave_far_$V(@$V v, int quarter)\n"
     "{\n"
     "    float a[$L];\n"
     "    __builtin_memcpy(a, &v, sizeof a);\n"
     "    int huge = 0;\n"
     "    for (int i = 0; i < $L; i++) huge |= a[i] > 1e6f || a[i] < -1e6f;\n"
     "    if (huge) {\n"
     "        for (int i = 0; i < $L; i++) a[i] = quarter ? @cosf(a[i]) : @sinf(a[i]);\n"
     "    } else {\n"
     "        for (int i = 0; i < $L; i++) {\n"
     "            const double x = a[i], n = (x * 0.63661977236758134 + 0x1.8p52) - 0x1.8p52;\n"
     "            const double r = (x - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34, s = r * r;\n"
     "            const double sine = r + r * s * (-0.166666666 + s * (0.00833332928 + s * "
     "(-0.000198393044 + s * 2.71804649e-06)));\n"
     "            const double cosine = 1 - 0.5 * s + s * s * (0.0416666666 + s * (-0.00138888835 + s * "
     "(2.47994515e-05 + s * -2.72050435e-07)));\n"
     "            const int64_t k = (int64_t)(n == n ? n : 0) + quarter;\n"
     "            const double y = k & 1 ? cosine : sine;\n"
     "            a[i] = (float)(k & 2 ? -y : y);\n"
     "        }\n"
     "    }\n"
     "    __builtin_memcpy(&v, a, sizeof a);\n"
     "    return v;\n"
     "}"},
    {"sol_wave_$V",
     "/* sin, cos: 1 ulp. x = n pi / 2 + r + low, for |n| < 2^13. The first three of the four parts of pi / 2 have so "
     "few\n"
     " * digits that their products with n are exact. */\n"
     "@HELPER @$V sol_wave_$V(@$V x, int quarter)\n"
     "{\n"
     "#if defined __FMA__ || defined __aarch64__\n"
     "    const @$I far = @sol_abs_$V(x) > 8192.0f;\n"
     "    int some = 0;\n"
     "    for (int i = 0; i < $L; i++) some |= far[i];\n"
     "    if (some) return @sol_wave_far_$V(x, quarter);\n"
     "    const @$V shifted = x * 0.636619772f + 12582912.0f, n = shifted - 12582912.0f;\n"
     "    const @$V near = (x - n * 0x1.92p0f) - n * 0x1.fb4p-12f, r = near - n * 0x1.444p-24f;\n"
     "    const @$V low = ((near - r) - n * 0x1.444p-24f) - n * 0x1.68c234p-39f, s = r * r, one = 1.0f - s * 0.5f;\n"
     "    @$V sine = s * 2.71804649e-06f - 0.000198393044f;\n"
     "    sine = sine * s + 0.00833332928f;\n"
     "    sine = sine * s - 0.166666666f;\n"
     "    sine = r + (sine * s * r + low * one);\n"
     "    @$V cosine = s * -2.72050435e-07f + 2.47994515e-05f;\n"
     "    cosine = cosine * s - 0.00138888835f;\n"
     "    cosine = cosine * s + 0.0416666666f;\n"
     "    cosine = one + (((1.0f - one) - s * 0.5f) + (cosine * s * s - r * low));\n"
     "    const @$I k = (@$I)shifted + quarter;\n"
     "    return (@$V)((@$I)@sol_select_$V((k & 1) != 0, cosine, sine) ^ (k & 2) << 30);\n"
     "#else\n"
     "    return @sol_wave_far_$V(x, quarter);\n"
     "#endif\n"
     "}"},
    {"sol_sin_$V", "@HELPER @$V sol_sin_$V(@$V x) { return @sol_wave_$V(x, 0); }"},
    {"sol_cos_$V", "@HELPER @$V sol_cos_$V(@$V x) { return @sol_wave_$V(x, 1); }"},
};

#define ROWS(table) table, COUNT_OF(table)

static void add(struct helpers *h, const struct helper_row *rows, int n, const struct token *t, int ntoken)
{
    for (int i = 0; i < n; i++) helpers_add_form(h, rows[i].name, rows[i].text, ntoken, t);
}

/* Adds the functions without a vector form: f of each lane. */
static void lane_functions(struct helpers *h, struct token *t, int n, enum compute k)
{
    static const struct {
        const char *name, *f32, *f64; /* NULL: already defined */
    } functions[] = {
        {"sqrt", "@sqrtf(x)", "@sqrt(x)"},
        {"floor", "@floorf(x)", "@floor(x)"},
        {"ceil", "@ceilf(x)", "@ceil(x)"},
        {"trunc", "@truncf(x)", "@trunc(x)"},
        {"round", "@rintf(x)", "@rint(x)"},
        {"exp", NULL, "@exp(x)"},
        {"weight", NULL, "@exp(x)"},
        {"log", NULL, "@log(x)"},
        {"tanh", NULL, "@tanh(x)"},
        {"erf", NULL, "@erf(x)"},
        {"erfc", NULL, "@erfc(x)"},
        {"sin", NULL, "@sin(x)"},
        {"cos", NULL, "@cos(x)"},
        {"sigmoid", NULL, "@sol_sigmoid_f64(x)"},
        {"expm1", NULL, "@expm1(x)"},
        {"log1p", NULL, "@log1p(x)"},
        {"exp2", NULL, "@exp2(x)"},
        {"log2", NULL, "@log2(x)"},
        {"log10", NULL, "@log10(x)"},
        {"pow", NULL, "@pow(x, y)"},
        {"tan", NULL, "@tan(x)"},
        {"asin", NULL, "@asin(x)"},
        {"acos", NULL, "@acos(x)"},
        {"atan", NULL, "@atan(x)"},
        {"atan2", NULL, "@atan2(x, y)"},
        {"sinh", NULL, "@sinh(x)"},
        {"cosh", NULL, "@cosh(x)"},
        {"asinh", NULL, "@asinh(x)"},
        {"acosh", NULL, "@acosh(x)"},
        {"atanh", NULL, "@atanh(x)"},
        {"hypot", NULL, "@hypot(x, y)"},
        {"to_i64", "@sol_to_i64_f32(x)", "@sol_to_i64_f64(x)"},
        {"to_i32", "@sol_to_i32_f32(x)", "@sol_to_i32_f64(x)"},
        {"to_u64", "@sol_to_u64_f32(x)", "@sol_to_u64_f64(x)"},
    };
    const char *lanes = t[0].text, *vector = t[1].text, *scalar = t[3].text;
    for (int i = 0; i < COUNT_OF(functions); i++) {
        const char *f = k == C_F32 ? functions[i].f32 : functions[i].f64;
        if (!f) continue;
        const bool to_int = !strncmp(functions[i].name, "to_", 3);
        t[n] = (struct token){'F', f};
        t[n + 1] = (struct token){'N', functions[i].name};
        t[n + 2] = (struct token){'R', to_int ? "int64_t" : scalar};
        t[n + 3] = (struct token){'W', to_int ? arena_printf(h->arena, "i64x%s", lanes) : vector};
        add(h, strstr(f, ", y)") ? &lane_helper2 : &lane_helper, 1, t, n + 4);
    }
}

/* Adds sums, products and extremes across all lanes. */
static void across(struct helpers *h, struct token *t, int n, int lanes, enum compute k)
{
    const char *name = compute_def(k)->name;
    const char *half = lanes > 2 ? arena_printf(h->arena, "%sx%d", name, lanes / 2) : name;
    const struct {
        const char *name, *join;
    } ways[] = {{"sum", "x + y"},
                {"prod", "x * y"},
                {"max", arena_printf(h->arena, "@sol_max_%s(y, x)", half)},
                {"min", arena_printf(h->arena, "@sol_min_%s(y, x)", half)}};
    struct text low = text_new(h->arena), high = text_new(h->arena);
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
        add(h, lanes > 2 ? &across_helper : &across_two, 1, t, n + 5);
    }
}

static void extremes(struct helpers *h, struct token *t, int n, int lanes, enum compute k)
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
    add(h, ROWS(extreme_helper), t, n + 3);
    if (k != C_F32) return;
    if (lanes != 16) t[n].text = "0";
    add(h, &inverse_helper, 1, t, n + 1);
}

static void gathers(struct helpers *h, struct token *t, int n, int lanes, enum compute k)
{
    static const struct {
        enum compute k;
        int lanes;
        const char *where, *call;
    } instructions[] = {
        {C_F32, 16, "defined __AVX512F__", "__builtin_ia32_gathersiv16sf((@f32x16){0}, x, at, -1, 4)"},
        {C_F64, 8, "defined __AVX512F__",
         "__builtin_ia32_gatherdiv8df((@f64x8){0}, x, (long long __attribute__((vector_size(64))))at, -1, 8)"},
        {C_F32, 8, "defined __AVX512VL__",
         "__builtin_ia32_gathersiv8sf((@f32x8){0}, x, at, (@f32x8)((@i32x8){0} - 1), 4)"},
        {C_F64, 4, "defined __AVX512VL__",
         "__builtin_ia32_gatherdiv4df((@f64x4){0}, x, (long long __attribute__((vector_size(32))))at, "
         "(@f64x4)((@i64x4){0} - 1), 8)"},
    };
    t[n] = (struct token){'G', "0"};
    t[n + 1] = (struct token){'T', "x"};
    for (int i = 0; i < COUNT_OF(instructions); i++) {
        if (instructions[i].k != k || instructions[i].lanes != lanes) continue;
        t[n].text = instructions[i].where;
        t[n + 1].text = instructions[i].call;
    }
    add(h, &gather_helper, 1, t, n + 2);
}

/* Transposes as many vectors as they have lanes. Each stage interleaves the first half with the second. */
static void transpose(struct helpers *h, struct token *t, int n, int lanes)
{
    struct text low = text_new(h->arena), high = text_new(h->arena), body = text_new(h->arena);
    for (int i = 0; i < lanes / 2; i++) {
        text_put(&low, "%s%d, %d", i ? ", " : "", i, lanes + i);
        text_put(&high, "%s%d, %d", i ? ", " : "", lanes / 2 + i, lanes + lanes / 2 + i);
    }
    const char *from = "v", *to = "t";
    for (int stage = 1; stage < lanes; stage *= 2) {
        for (int i = 0; i < lanes / 2; i++) {
            text_put(&body, "    %s[%d] = __builtin_shufflevector(%s[%d], %s[%d], %s);\n", to, 2 * i, from, i, from,
                     i + lanes / 2, low.at);
            text_put(&body, "    %s[%d] = __builtin_shufflevector(%s[%d], %s[%d], %s);\n", to, 2 * i + 1, from, i, from,
                     i + lanes / 2, high.at);
        }
        const char *swap = from;
        from = to;
        to = swap;
    }
    if (*from == 't') text_put(&body, "    for (int i = 0; i < %d; i++) v[i] = t[i];\n", lanes);
    t[n] = (struct token){'B', body.at};
    helpers_add_form(h, "sol_transpose_$V", "@HELPER void sol_transpose_$V(@$V *v)\n{\n    @$V t[$L];\n$B}", n + 1, t);
}

/* Every second element from x on. The second vector ends with the last of them, so nothing behind it is read. */
static void second(struct helpers *h, struct token *t, int n, int lanes)
{
    struct text of = text_new(h->arena);
    for (int i = 0; i < lanes; i++) text_put(&of, "%s%d", i ? ", " : "", 2 * i + (2 * i >= lanes));
    t[n] = (struct token){'B', of.at};
    t[n + 1] = (struct token){'N', arena_printf(h->arena, "%d", lanes - 1)};
    helpers_add_form(h, "sol_second_$V",
                     "@HELPER @$V sol_second_$V(const $S *x)\n"
                     "{\n"
                     "    return __builtin_shufflevector(*(const @$V *)x, *(const @$V *)(x + $N), $B);\n"
                     "}",
                     n + 2, t);
}

static void functions(struct helpers *h, struct token *t, int n, int lanes)
{
    t[n] = (struct token){'P', lanes == 16 ? "_plain" : ""};
    add(h, ROWS(plain_functions), t, n + 1);
    if (lanes == 16) helpers_tables(h, t, n + 1);
    add(h, ROWS(float_functions), t, n);
    helpers_wide(h, t, n);
}

static void types(struct helpers *h, int lanes)
{
    static const struct {
        const char *c_name, *name;
        int bytes;
    } elements[] = {{"float", "f32", 4},    {"double", "f64", 8},  {"uint8_t", "u8", 1},   {"int8_t", "i8", 1},
                    {"uint16_t", "u16", 2}, {"int16_t", "i16", 2}, {"uint32_t", "u32", 4}, {"int32_t", "i32", 4},
                    {"uint64_t", "u64", 8}, {"int64_t", "i64", 8}};
    for (int i = 0; i < COUNT_OF(elements); i++) {
        const struct token t[] = {{'T', elements[i].c_name},
                                  {'V', arena_printf(h->arena, "%sx%d", elements[i].name, lanes)},
                                  {'B', arena_printf(h->arena, "%d", lanes * elements[i].bytes)},
                                  {'A', arena_printf(h->arena, "%d", elements[i].bytes)}};
        helpers_add_form(h, "$V", h->flavour->vector, 4, t);
    }
}

void helpers_vector(struct helpers *h, int lanes)
{
    const char *n = arena_printf(h->arena, "%d", lanes);
    struct text numbers = text_new(h->arena);
    for (int i = 0; i < lanes; i++) text_put(&numbers, i ? ", %d" : "%d", i);
    const struct token own[] = {{'L', n}, {'Z', numbers.at}};
    types(h, lanes);
    helpers_add_form(h, "sol_splat_i32x$L", "@HELPER @i32x$L sol_splat_i32x$L(int32_t s) { return s - (@i32x$L){0}; }",
                     1, own);
    helpers_add_form(h, "sol_iota_i32x$L", "@HELPER @i32x$L sol_iota_i32x$L(void) { return (@i32x$L){$Z}; }", 2, own);
    for (enum compute k = C_F32; k <= C_I64; k++) {
        const struct compute_def *d = compute_def(k);
        struct token t[10] = {{'L', n},
                              {'V', arena_printf(h->arena, "%sx%d", d->name, lanes)},
                              {'I', arena_printf(h->arena, "%sx%d", d->mask, lanes)},
                              {'S', d->type},
                              own[1]};
        add(h, ROWS(vector_helpers), t, 4);
        if (k == C_I64)
            add(h, ROWS(int_helpers), t, 5);
        else
            add(h, ROWS(float_helpers), t, 4);
        if (k != C_I64) extremes(h, t, 4, lanes, k);
        if (k != C_I64) gathers(h, t, 4, lanes, k);
        across(h, t, 4, lanes, k);
        transpose(h, t, 4, lanes);
        second(h, t, 4, lanes);
        if (k == C_F32) functions(h, t, 4, lanes);
        if (k != C_I64) lane_functions(h, t, 4, k);
    }
}
