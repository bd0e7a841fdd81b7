/* The plain nest compared with the interpreter (operator definitions, types, layouts), and the prelude's functions
 * compared with libm. */

#include "context.h"
#include "kernel_cases.h"
#include "print/print.h"

static void test_nest(void **state)
{
    (void)state;
    struct target host;
    target_host(&host);
    const struct check_tool tool = {.cc = "gcc", .flags = {"-O1"}, .target = &host};
    int bad = 0;
    for (int i = 0; i < COUNT_OF(common_cases); i++) bad += !check_case(ctx, &nest_solver, &common_cases[i], &tool);
    assert_int_equal(bad, 0);
}

/* Compares the prelude's vector functions with libm in double, over all exponents and both signs. */
#define SWEEP                                                                                                        \
    "static double ulps(float got, double want)\n"                                                                   \
    "{\n"                                                                                                            \
    "    if (want != want) return got != got ? 0 : 1e9;\n"                                                           \
    "    const float w = (float)want;\n"                                                                             \
    "    if (isinf(w) || fabs(want) < 1.2e-38) return fabs((double)got - w) <= 2e-45 || got == w ? 0 : 1e9;\n"       \
    "    return fabs((double)got - want) / (nextafterf(fabsf(w), INFINITY) - fabsf(w));\n"                           \
    "}\n"                                                                                                            \
    "#define SWEEP(name) \\\n"                                                                                       \
    "    double worst_##name(void) \\\n"                                                                             \
    "    { \\\n"                                                                                                     \
    "        double worst = 0; \\\n"                                                                                 \
    "        for (int64_t b = -8192; b < 0x100000000 / 60013; b += LANES) { /* below 0: multiples of pi / 2 */ \\\n" \
    "            float x[LANES]; \\\n"                                                                               \
    "            VECTOR y; \\\n"                                                                                     \
    "            for (int i = 0; i < LANES; i++) { \\\n"                                                             \
    "                const uint32_t bits = (uint32_t)(60013 * (b + i)); \\\n"                                        \
    "                __builtin_memcpy(x + i, &bits, 4); \\\n"                                                        \
    "                if (b < 0) x[i] = (float)((double)(b + i) * 1.5707963267948966); \\\n"                          \
    "            } \\\n"                                                                                             \
    "            __builtin_memcpy(&y, x, sizeof y); \\\n"                                                            \
    "            y = CALL(name)(y); \\\n"                                                                            \
    "            for (int i = 0; i < LANES; i++) worst = fmax(worst, ulps(y[i], name((double)x[i]))); \\\n"          \
    "        } \\\n"                                                                                                 \
    "        return worst; \\\n"                                                                                     \
    "    }\n"                                                                                                        \
    "SWEEP(exp) SWEEP(log) SWEEP(tanh) SWEEP(erf) SWEEP(erfc) SWEEP(sin) SWEEP(cos) SWEEP(expm1) SWEEP(log1p)\n"     \
    "SWEEP(sqrt) SWEEP(floor) SWEEP(ceil) SWEEP(trunc) SWEEP(exp2) SWEEP(log2) SWEEP(log10) SWEEP(tan)\n"            \
    "SWEEP(asin) SWEEP(acos) SWEEP(atan) SWEEP(sinh) SWEEP(cosh) SWEEP(asinh) SWEEP(acosh) SWEEP(atanh)\n"

/* The same for functions of two arguments: all exponents of one with some of the other, and special values. */
#define SWEEP2                                                                                                         \
    "#define SWEEP2(name)                                                                                        \\\n" \
    "    double worst_##name(void)                                                                               \\\n" \
    "    {                                                                                                       \\\n" \
    "        static const float special[] = {0.0f, -0.0f, 1, -1, 2, -3, 0.5f, 1.7f, 1e-40f, 3e38f, INFINITY, "         \
    "-INFINITY, NAN}; \\\n"                                                                                            \
    "        const int n = sizeof special / sizeof *special;                                                     \\\n" \
    "        double worst = 0;                                                                                   \\\n" \
    "        for (uint64_t b = 0, k = 0; b < 0x100000000u; b += 600011, k++) {                                   \\\n" \
    "            float x[4], y[4];                                                                               \\\n" \
    "            for (int i = 0; i < 4; i++) {                                                                   \\\n" \
    "                const uint32_t bits = (uint32_t)(b + 150001 * i), other = (uint32_t)(k * 2654435761u + 97 * i); " \
    "\\\n"                                                                                                             \
    "                __builtin_memcpy(x + i, &bits, 4);                                                          \\\n" \
    "                __builtin_memcpy(y + i, &other, 4);                                                         \\\n" \
    "                if (k % 3 == 0) y[i] = special[k / 3 % n];                                                  \\\n" \
    "                if (k % 3 == 1) x[i] = special[(k + i) / 3 % n];                                            \\\n" \
    "                if (k % 3 == 1) y[i] = special[(k / 3 / n) % n];                                            \\\n" \
    "                if (k % 3 == 2) y[i] = (float)(k % 1000) / 50 - 10, x[i] = fabsf(x[i]);                     \\\n" \
    "            }                                                                                               \\\n" \
    "            const f32x4 z = sol_##name##_f32x4(*(const f32x4 *)x, *(const f32x4 *)y);                       \\\n" \
    "            for (int i = 0; i < 4; i++) worst = fmax(worst, ulps(z[i], name((double)x[i], (double)y[i])));  \\\n" \
    "        }                                                                                                   \\\n" \
    "        return worst;                                                                                       \\\n" \
    "    }\n"                                                                                                          \
    "SWEEP2(pow) SWEEP2(atan2) SWEEP2(hypot)\n"

static void test_functions(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double most; /* ulp */
    } functions[] = {{"exp", 1},     {"log", 1},    {"tanh", 2},    {"erf", 2},     {"erfc", 6},    {"sin", 1},
                     {"cos", 1},     {"expm1", 4},  {"log1p", 2},   {"sqrt", 1},    {"floor", 0},   {"ceil", 0},
                     {"trunc", 0},   {"exp2", 0.6}, {"log2", 0.6},  {"log10", 0.6}, {"tan", 1},     {"asin", 0.6},
                     {"acos", 0.6},  {"atan", 0.6}, {"sinh", 0.6},  {"cosh", 0.6},  {"asinh", 0.6}, {"acosh", 0.6},
                     {"atanh", 0.6}, {"pow", 1},    {"atan2", 0.6}, {"hypot", 0.6}};
    const char *const targets[][3] = {
        {"avx512", "native", "gcc"}, {"sse2", "x86-64", "gcc"}, {"sse2", "x86-64", "clang"}};
    for (int t = 0; t < COUNT_OF(targets); t++) {
        struct arena *a = arena_create(ctx);
        struct target target;
        assert_int_equal(target_named(ctx, targets[t][0], &target), SOL_OK);
        struct text text = text_new(a);
        text_put(&text, "#include <math.h>\n");
        helpers_print(&text, helpers_make(a, &target));
        const int lanes = target.vector_bytes / 4; /* the widest vector */
        text_put(&text, "#define LANES %d\n#define VECTOR f32x%d\n#define CALL(name) sol_##name##_f32x%d\n", lanes,
                 lanes, lanes);
        text_put(&text, "%s%s", SWEEP, SWEEP2);
        const struct check_tool tool = {
            .cc = targets[t][2], .flags = {"-O2", arena_printf(a, "-march=%s", targets[t][1])}, .target = &target};
        const char *output = "";
        void *handle = check_compile(ctx, a, &tool, text.at, &output);
        if (!handle) fail_msg("%s", output);
        for (int i = 0; i < COUNT_OF(functions); i++) {
            double (*worst)(void);
            *(void **)&worst = dlsym(handle, arena_printf(a, "worst_%s", functions[i].name));
            assert_non_null(worst);
            const double found = worst();
            if (found > functions[i].most) fail_msg("%s: %g ulp", functions[i].name, found);
        }
        dlclose(handle);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nest), cmocka_unit_test(test_functions)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
