/* Sizes that vary: arithmetic, proofs, values, text. The proofs are of facts that networks need. */
#include "base/size.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct sol_ctx *ctx;
    struct arena *a;
    int64_t n, t, s, h; /* #0 #1 #2 from 1 on, #3 from 32 on */
};

static int64_t dim(int index, int64_t min, int64_t max, int64_t multiple)
{
    const struct size_dim d = {index, 64 * multiple, min, max, multiple};
    return size_of_dim(&d);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const int64_t most = INT64_C(1) << 31;
    if (sol_ctx_create(NULL, &f->ctx)) return 1;
    f->a = arena_create(f->ctx);
    f->n = dim(0, 1, most, 1);
    f->t = dim(1, 1, most, 1);
    f->s = dim(2, 1, most, 1);
    f->h = dim(3, 32, most, 1);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_destroy(f->a);
    sol_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

static int64_t convolved(int64_t h, int k, int s, int p, int d)
{
    return size_add(size_floor_div(size_sub(size_add(h, 2 * p), d * (k - 1) + 1), s), 1);
}

static void equal_forms_are_equal_numbers(void **state)
{
    const struct fixture *f = *state;
    assert_true(size_varies(f->n) && !size_varies(5) && !size_varies(SIZE_BAD));
    assert_true(size_mul(size_add(f->n, 1), f->t) == size_add(size_mul(f->t, f->n), f->t));
    assert_true(size_sub(size_add(f->n, f->t), f->n) == f->t);
    assert_int_equal(size_sub(f->n, f->n), 0);
    assert_true(size_exact_div(size_mul(768, size_mul(f->n, f->t)), f->t) == size_mul(768, f->n));
    assert_true(size_exact_div(size_mul(f->n, size_add(f->s, f->t)), size_add(f->t, f->s)) == f->n);
    assert_true(size_exact_div(f->n, 2) == SIZE_BAD && size_exact_div(-10, 5) == -2);
    assert_int_equal(size_floor_div(size_sub(f->n, 1), f->n), 0);
    assert_true(size_floor_div(size_add(size_mul(6, f->n), 5), 3) == size_add(size_mul(2, f->n), 1));
    assert_true(size_floor_div(size_add(size_floor_div(f->n, 2), 1), 2) == size_floor_div(size_add(f->n, 2), 4));
    assert_true(size_mod(size_mul(4, f->n), 4) == 0);
    assert_true(size_min(f->n, size_add(f->n, 3)) == f->n);
    assert_true(size_max(f->n, f->t) == size_max(f->t, f->n));
}

static void overflow_is_bad(void **state)
{
    const struct fixture *f = *state;
    int64_t v = f->n;
    assert_true(size_mul(INT64_C(1) << 62, size_mul(f->n, 4)) == SIZE_BAD);
    assert_true(size_add(SIZE_BAD, 1) == SIZE_BAD && size_floor_div(f->n, 0) == SIZE_BAD);
    for (int i = 0; i < 10; i++) v = size_mul(v, f->n);
    assert_true(v == SIZE_BAD);
    const struct size_dim empty = {0, 3, 4, 5, 3};
    assert_true(size_of_dim(&empty) == SIZE_BAD);
}

static void windows_stay_inside(void **state)
{
    const struct fixture *f = *state;
    static const int conv[][4] = {{3, 1, 1, 1}, {3, 2, 1, 1}, {7, 2, 3, 1}, {5, 1, 2, 1},
                                  {3, 1, 4, 4}, {1, 2, 0, 1}, {3, 2, 0, 1}};
    for (int i = 0; i < COUNT_OF(conv); i++) {
        const int k = conv[i][0], s = conv[i][1], p = conv[i][2], d = conv[i][3];
        const int64_t o = convolved(f->h, k, s, p, d);
        const int64_t last = size_add(size_mul(s, size_sub(o, 1)), d * (k - 1) - p);
        assert_true(size_le(last, size_add(f->h, p - 1)));
        assert_true(size_le(1, o));
    }
    int64_t h = convolved(f->h, 7, 2, 3, 1);
    for (int i = 0; i < 4; i++) h = convolved(h, 3, 2, 1, 1);
    assert_true(size_le(1, h));
}

static void positions_stay_inside(void **state)
{
    const struct fixture *f = *state;
    const int64_t n = f->n, t = f->t, s = f->s, h = f->h;
    assert_true(size_le(size_add(size_mul(size_sub(n, 1), t), size_sub(t, 1)), size_sub(size_mul(n, t), 1)));
    assert_true(size_lt(size_add(s, size_sub(t, 1)), size_add(s, t)));
    assert_true(size_le(size_mul(2, size_floor_div(t, 2)), t));
    assert_true(size_le(size_floor_div(t, 2), t));
    assert_true(size_le(size_mul(16, size_floor_div(h, 16)), h));
    const int64_t half = size_ceil_div(dim(7, 1, 4096, 1), 2); /* at least 1, so twice as much is 2 and not only 1 */
    assert_true(size_le(2, size_mul(2, half)) && !size_le(3, size_mul(2, half)));
    /* where a picture half as large again reads last: in thirds of pixels, 3*(t-1) - 1 is below t-1 */
    const int64_t larger = size_floor_div(size_mul(3, size_sub(t, 1)), 2);
    assert_true(size_lt(size_floor_div(size_sub(size_mul(2, larger), 1), 3), size_sub(t, 1)));
    assert_true(size_le(size_mul(n, t), size_mul(14, size_ceil_div(size_mul(n, t), 14))));
    assert_true(size_le(size_min(t, s), t) && size_le(t, size_max(t, s)) && !size_le(t, size_min(t, s)));
}

static void multiples_divide(void **state)
{
    const struct fixture *f = *state;
    const int64_t u = dim(4, 4, 4096, 4), a = convolved(u, 3, 2, 1, 1), b = convolved(a, 3, 2, 1, 1);
    assert_true(size_mul(2, b) == a && size_mul(4, b) == u);
    assert_int_equal(size_factor(u), 4);
    const int64_t c = convolved(f->h, 3, 2, 1, 1), d = convolved(c, 3, 2, 1, 1);
    assert_false(size_mul(2, d) == c);
    assert_false(size_lt(f->t, 512));
    assert_true(size_le(dim(5, 1, 512, 1), 512) && !size_lt(dim(5, 1, 512, 1), 512));
}

static void values(void **state)
{
    const struct fixture *f = *state;
    const int64_t at[] = {3, 7, 1, 33}, form = size_add(size_mul(f->n, size_floor_div(f->h, 4)), size_min(f->t, 5));
    assert_int_equal(size_at(form, at), 3 * 8 + 5);
    assert_int_equal(size_hint(form), 64 * 16 + 5);
    assert_int_equal(size_dims(form), 11);
    assert_true(size_least(form) <= 1 * 8 + 1 && size_least(form) >= 1 && size_most(f->n) == INT64_C(1) << 31);
    assert_int_equal(size_at(42, at), 42);
}

static void text_is_parsed_back(void **state)
{
    const struct fixture *f = *state;
    const int64_t u = dim(4, 4, 4096, 4), dims[] = {f->n, f->t, f->s, f->h, u};
    const int64_t forms[] = {f->n,
                             size_add(size_mul(12, size_mul(f->n, f->t)), 7),
                             size_sub(3, f->t),
                             size_sub(0, size_mul(2, f->s)),
                             size_floor_div(size_sub(f->h, 40), 2),
                             size_floor_div(size_mul(f->n, f->t), size_add(f->s, 1)),
                             u,
                             size_add(size_floor_div(u, 2), size_floor_div(u, 4)),
                             size_max(size_min(f->t, f->s), 4),
                             size_sub(f->t, size_mul(3, size_floor_div(f->t, 3))),
                             size_sub(0, size_floor_div(f->t, 2)),
                             size_mul(size_mul(f->n, size_floor_div(f->s, 7)), size_floor_div(f->t, 2)),
                             12};
    for (int i = 0; i < COUNT_OF(forms); i++) {
        int64_t back = 0;
        const char *text = size_text(f->a, forms[i]), *end = size_parse(text, 5, dims, &back);
        assert_non_null(end);
        assert_string_equal(end, "");
        assert_true(back == forms[i]);
    }
    int64_t v;
    assert_string_equal(size_text(f->a, forms[1]), "12*#0*#1+7");
    assert_string_equal(size_text(f->a, forms[9]), "#1-3*(#1//3)");
    assert_null(size_parse("#9", 5, dims, &v));
    assert_null(size_parse("3+", 5, dims, &v));
    assert_null(size_parse("(3", 5, dims, &v));
}

/* The most of many forms, such as the memory that each step of a program needs. */
static int64_t most_of_many(const struct fixture *f)
{
    int64_t most = f->t;
    for (int i = 1; i <= 40; i++)
        most = size_max(size_add(size_mul(1000 - 25 * i, size_floor_div(size_sub(f->t, 5 * i), 7)), 90 * i), most);
    return most;
}

/* Compiles and runs what size_c, size_c_with and size_magnitude_c write, for sizes around those where they round. The
 * magnitude is that of the value and of what it is computed from, not of products of these. */
static void c_text_has_the_same_values(void **state)
{
    const struct fixture *f = *state;
    const int64_t u = dim(4, 4, 4096, 4);
    const int64_t forms[] = {size_floor_div(size_sub(f->t, 40), 3),
                             size_sub(3, f->t),
                             size_max(f->t, size_mul(2, f->s)),
                             size_floor_div(u, 2),
                             size_add(size_floor_div(u, 4), size_mul(f->n, -5)),
                             size_floor_div(size_mul(f->n, f->t), size_add(f->s, 1)),
                             size_mul(size_floor_div(f->t, 8), size_floor_div(size_add(f->t, 7), 4))};
    const int64_t many = most_of_many(f);
    struct text declared = text_new(f->a);
    struct size_variables variables = {f->a, &declared, map_create(f->a), 0};
    char command[256];
    FILE *c = fopen("size_test_made.c", "w");
    assert_non_null(c);
    fprintf(c, "#include <stdint.h>\n#include <stdio.h>\nint main(void)\n{\n    int64_t d0 = 3, d2 = 2, d3 = 40, d4;\n"
               "    for (int64_t d1 = 1; d1 < 60; d1++) {\n        d4 = 4 * d1;\n        (void)d3, (void)d4;\n");
    for (int i = 0; i < COUNT_OF(forms); i++)
        fprintf(c, "        printf(\"%%lld %%.17g \", (long long)%s, %s);\n", size_c(f->a, forms[i], "d"),
                size_magnitude_c(f->a, forms[i], "d"));
    for (int i = 0; i <= COUNT_OF(forms); i++) {
        declared.n = 0;
        const char *form = size_c_with(i < COUNT_OF(forms) ? forms[i] : many, "d", &variables);
        assert_true(declared.n < 10000);
        if (declared.n) fprintf(c, "%s", declared.at);
        fprintf(c, "        printf(\"%%lld \", (long long)%s);\n", form);
    }
    fprintf(c, "    }\n}\n");
    fclose(c);
    snprintf(command, sizeof command,
             "cc -w -o size_test_made size_test_made.c && ./size_test_made > size_test_made.txt");
    assert_int_equal(system(command), 0);
    FILE *out = fopen("size_test_made.txt", "r");
    assert_non_null(out);
    for (int64_t t = 1; t < 60; t++) {
        const int64_t at[] = {3, t, 2, 40, 4 * t};
        for (int i = 0; i < COUNT_OF(forms); i++) {
            long long v = 0;
            double most = 0;
            assert_int_equal(fscanf(out, "%lld %lf", &v, &most), 2);
            assert_int_equal(v, size_at(forms[i], at));
            assert_true(most >= (double)(v < 0 ? -v : v));
            if (i == COUNT_OF(forms) - 1) assert_true(most < (double)v + 5 * (double)t + 30);
        }
        for (int i = 0; i <= COUNT_OF(forms); i++) {
            long long v = 0;
            assert_int_equal(fscanf(out, "%lld", &v), 1);
            assert_int_equal(v, size_at(i < COUNT_OF(forms) ? forms[i] : many, at));
        }
    }
    fclose(out);
    remove("size_test_made.c");
    remove("size_test_made");
    remove("size_test_made.txt");
}

/* What is proven holds for all small sizes, and bounds hold. */
static void proofs_are_sound(void **state)
{
    const struct fixture *f = *state;
    unsigned seed = 1;
    int proven = 0;
    int64_t forms[40] = {f->n, f->t, f->s, 1, 2, 5, 0};
    const int made = COUNT_OF(forms);
    for (int i = 7; i < made; i++) {
        const int64_t a = forms[rand_r(&seed) % i], b = forms[rand_r(&seed) % i];
        const int kind = rand_r(&seed) % 6, k = 1 + rand_r(&seed) % 4;
        forms[i] = kind == 0   ? size_add(a, b)
                   : kind == 1 ? size_sub(a, b)
                   : kind == 2 ? size_mul(a, b)
                   : kind == 3 ? size_floor_div(a, k)
                   : kind == 4 ? size_min(a, b)
                               : size_max(a, size_mul(k, b));
        if (forms[i] == SIZE_BAD) forms[i] = f->n;
    }
    for (int i = 0; i < made; i++)
        for (int j = 0; j < made; j++) {
            const bool le = size_le(forms[i], forms[j]);
            proven += le;
            for (int v = 0; v < 64; v++) {
                const int64_t at[] = {1 + v % 4, 1 + v / 4 % 4, 1 + v / 16, 40};
                const int64_t x = size_at(forms[i], at), y = size_at(forms[j], at);
                if (le) assert_true(x <= y);
                assert_true(size_least(forms[i]) <= x && x <= size_most(forms[i]));
            }
        }
    assert_true(proven > 300);
}

static int64_t ceiling(int64_t a, int64_t b)
{
    return size_sub(0, size_floor_div(size_sub(0, a), b));
}

/* Upper bounds where #0 is at most 2 * #1 are at least as large as the form, for all values of both. */
static void bounded_above(const int64_t *form, int n, int *out_known)
{
    const int64_t most[SIZE_MOST_DIMS] = {
        size_mul(2, dim(1, 1, 64, 1)), -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    for (int i = 0; i < n; i++) {
        const int64_t upper = size_upper(form[i], most);
        if (upper == SIZE_BAD) continue;
        ++*out_known;
        assert_false(size_dims(upper) & 1);
        for (int64_t b = 1; b <= 4; b++)
            for (int64_t a = 0; a <= 2 * b; a++)
                assert_true(size_at(form[i], (const int64_t[]){a, b}) <= size_at(upper, (const int64_t[]){a, b}));
    }
}

static void upper_bounds_are_sound(void **state)
{
    (void)state;
    const int64_t d = dim(0, 0, 128, 1), n = dim(1, 1, 64, 1), less = size_sub(d, 5);
    const int64_t signs[] = {/* quotients that may be negative: a ceiling, by a number and by a size, a difference */
                             ceiling(d, 2),
                             ceiling(d, n),
                             size_floor_div(less, 2),
                             size_floor_div(less, n),
                             size_floor_div(n, size_add(d, 1)),
                             size_floor_div(less, size_add(d, 1)),
                             size_max(size_floor_div(less, 2), 0),
                             size_sub(n, size_floor_div(less, 2))};
    int64_t forms[300] = {d, n, 1, 3, less};
    unsigned seed = 5;
    int known = 0;
    bounded_above(signs, (int)(sizeof signs / sizeof *signs), &known);
    assert_int_equal(known, sizeof signs / sizeof *signs);
    for (int i = 5; i < 300; i++) {
        const int64_t a = forms[rand_r(&seed) % i], b = forms[rand_r(&seed) % i];
        const int kind = rand_r(&seed) % 7;
        forms[i] = kind == 0   ? size_add(a, b)
                   : kind == 1 ? size_sub(a, b)
                   : kind == 2 ? size_mul(a, b)
                   : kind == 3 ? size_floor_div(a, 2)
                   : kind == 4 ? size_floor_div(a, size_max(b, 1))
                   : kind == 5 ? size_min(a, b)
                               : size_max(a, b);
        if (forms[i] == SIZE_BAD) forms[i] = d;
    }
    bounded_above(forms, 300, &known);
    assert_true(known > 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_forms_are_equal_numbers),
        cmocka_unit_test(overflow_is_bad),
        cmocka_unit_test(windows_stay_inside),
        cmocka_unit_test(positions_stay_inside),
        cmocka_unit_test(multiples_divide),
        cmocka_unit_test(values),
        cmocka_unit_test(text_is_parsed_back),
        cmocka_unit_test(c_text_has_the_same_values),
        cmocka_unit_test(proofs_are_sound),
        cmocka_unit_test(upper_bounds_are_sound),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
