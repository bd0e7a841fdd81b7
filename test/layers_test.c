/* The table of layers: signatures, attributes and defaults, binding, and limits that numerical tests do not show.
 * test/python/test_layers.py compares what each row computes with PyTorch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/layers.h"
#include "rows_help.h"

/* The number of words before "->" in a signature: the names of inputs. */
static int words_before_arrow(const char *s)
{
    int n = 0;
    for (; strncmp(s, "->", 2) != 0; s += strcspn(s, " "), s += strspn(s, " ")) n++;
    return n;
}

/* The number of tensors before "->" in the head of an operator definition. */
static int tensors_before_arrow(const char *s)
{
    int n = 0;
    for (; strncmp(s, "->", 2) != 0; s++) n += *s == '[';
    return n;
}

static void rows_and_signatures_agree(void **state)
{
    (void)state;
    const struct layer_def *d;
    int n = 0;
    for (; (d = layer_def_at(n)); n++) {
        assert_ptr_equal(layer_def(d->name), d);
        assert_non_null(strstr(d->doc, "->"));
        assert_non_null(strchr(d->doc, ':'));
        if (d->text) assert_int_equal(words_before_arrow(d->doc), tensors_before_arrow(d->text));
        if (d->text) assert_non_null(d->row);
        assert_int_equal(!!(d->flags & LAYER_ELEMENTWISE), d->math >= 0);
        assert_int_equal(!!(d->flags & LAYER_OPAQUE), d->describe != NULL && d->shape != NULL);
        assert_true(d->text || d->build || d->describe);
    }
    assert_true(n > 150);
    assert_null(layer_def_at(-1));
    assert_null(layer_def("conv"));
}

/* -- attributes */

static const struct opdef_attr *given(const char *kind, struct opdef_attr v, struct attrs *out)
{
    struct attrs one = {1, &v};
    if (layer_attrs(arena, layer_def(kind), &one, out)) return NULL;
    return attrs_find(out, v.name);
}

static void defaults_are_filled_in(void **state)
{
    (void)state;
    struct attrs all;
    assert_int_equal(layer_attrs(arena, layer_def("Conv"), NULL, &all), SOL_OK);
    assert_int_equal(all.n, 5);
    assert_int_equal(attrs_int(&all, "s", 3, 0), 1);
    assert_int_equal(attrs_int(&all, "p", 0, 7), 0);
    assert_int_equal(layer_attrs(arena, layer_def("LRN"),
                                 &(struct attrs){1, &(struct opdef_attr){.name = "n", .n = -1, .ints = &(int64_t){3}}},
                                 &all),
                     SOL_OK);
    assert_true(attrs_real(&all, "alpha", 0) == 1e-4 && attrs_real(&all, "bias", 0) == 1);
    assert_int_equal(layer_attrs(arena, layer_def("Sum"), NULL, &all), SOL_OK);
    assert_int_equal(attrs_find(&all, "axes")->n, 0);
    assert_int_equal(layer_attrs(arena, layer_def("Pad"), NULL, &all), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "Pad: attribute 'p' must be given"));
}

static void kinds_are_checked(void **state)
{
    (void)state;
    struct attrs all;
    int64_t two = 2;
    double half = 0.5;
    const struct opdef_attr *v =
        given("LayerNorm", (struct opdef_attr){.name = "e", .kind = ATTR_INT, .n = -1, .ints = &two}, &all);
    assert_int_equal(v->kind, ATTR_REAL);
    assert_true(v->reals[0] == 2);
    assert_null(given("LayerNorm", (struct opdef_attr){.name = "n", .kind = ATTR_REAL, .n = -1, .reals = &half}, &all));
    assert_non_null(strstr(sol_error(ctx), "LayerNorm: attribute n: expected an integer, got a real number"));
    assert_null(given("Cast", (struct opdef_attr){.name = "to", .kind = ATTR_INT, .n = -1, .ints = &two}, &all));
    assert_non_null(strstr(sol_error(ctx), "expected text, got an integer"));
    assert_null(given("Identity", (struct opdef_attr){.name = "k", .kind = ATTR_INT, .n = -1, .ints = &two}, &all));
    assert_non_null(strstr(sol_error(ctx), "Identity: unknown attribute 'k'; it has none"));
}

static void what_equals_the_default_is_known(void **state)
{
    (void)state;
    struct attrs all;
    const struct layer_def *pad = layer_def("Pad"), *sum = layer_def("Sum");
    int64_t zero = 0;
    double inf = INFINITY, null = 0;
    struct opdef_attr values[] = {
        {.name = "p", .kind = ATTR_INT, .n = -1, .ints = &zero},
        {.name = "q", .kind = ATTR_INT, .n = -1, .ints = &zero},
        {.name = "mode", .kind = ATTR_TEXT, .n = -1, .text = "constant"},
        {.name = "v", .kind = ATTR_REAL, .n = -1, .reals = &null},
    };
    assert_int_equal(layer_attrs(arena, pad, &(struct attrs){4, values}, &all), SOL_OK);
    assert_false(layer_attr_is_default(arena, pad, attrs_find(&all, "p"))); /* it has no default */
    assert_true(layer_attr_is_default(arena, pad, attrs_find(&all, "mode")));
    assert_true(layer_attr_is_default(arena, pad, attrs_find(&all, "v")));
    values[3].reals = &inf;
    assert_false(layer_attr_is_default(arena, pad, &values[3]));
    assert_true(layer_attr_is_default(arena, sum, &(struct opdef_attr){.name = "axes", .kind = ATTR_INT, .n = 0}));
    assert_false(layer_attr_is_default(arena, sum,
                                       &(struct opdef_attr){.name = "axes", .kind = ATTR_INT, .n = 1, .ints = &zero}));
}

/* -- loops of some layers as text, in the form that other code relies on */

/* "2x3 4" -> inputs of type f32 */
static int read_shapes(const char *text, struct opdef_input *in)
{
    int n = 0;
    for (; *text; n++, text += *text == ' ') {
        int64_t *shape = NEW_ARRAY(arena, int64_t, SOL_MAX_DIMS);
        char *at = (char *)(uintptr_t)text;
        in[n] = (struct opdef_input){.dtype = SOL_F32, .shape = shape};
        in[n].missing = *at == '-';
        at += in[n].missing;
        while (*at && *at != ' ') {
            shape[in[n].ndim++] = strtoll(at, &at, 10);
            at += *at == 'x';
        }
        text = at;
    }
    return n;
}

static void loops_are(const char *kind, const char *shapes, int nattr, struct opdef_attr *attrs, const char *want)
{
    struct opdef_input in[8];
    struct layer_bound bound;
    struct text out = text_new(arena);
    int nin = read_shapes(shapes, in);
    if (layer_bind(arena, layer_def(kind), nin, in, &(struct attrs){nattr, attrs}, &bound))
        fail_msg("%s", sol_error(ctx));
    const struct loops *loops = bound.loops;
    for (int i = 0; i < loops->stmts.n; i++) {
        text_put(&out, "[");
        for (int32_t e = loops->stmts.at[i].index; e; e = loops->ex.at[e].next) {
            ex_print(loops, e, &out);
            text_put(&out, loops->ex.at[e].next ? " " : "");
        }
        text_put(&out, "] ");
        ex_print(loops, loops->stmts.at[i].value, &out);
        text_put(&out, "\n");
    }
    assert_string_equal(out.at, want);
}

#define INTS(attr, ...)                                                                                 \
    {                                                                                                   \
        .name = #attr, .kind = ATTR_INT, .n = COUNT_OF(((int64_t[]){__VA_ARGS__})), .ints = (int64_t[]) \
        {                                                                                               \
            __VA_ARGS__                                                                                 \
        }                                                                                               \
    }

static void loops_of_layers(void **state)
{
    (void)state;
    /* equal trailing sizes of a reshape stay plain index variables; merging is affine */
    loops_are("Reshape", "2x12x5", 1, (struct opdef_attr[]){INTS(shape, 2, 3, 4, 5)}, "[A B D E] x[A 4*B+D E]\n");
    loops_are("Reshape", "2x3x4x5", 1, (struct opdef_attr[]){INTS(shape, 2, 12, 5)}, "[A B D] x[A B//4 B%4 D]\n");
    loops_are("Reshape", "4x6", 1, (struct opdef_attr[]){INTS(shape, 2, 12)}, "[A B] x[2*A+B//6 B%6]\n");
    /* stride 2 gives four dense convolutions; kernel = stride gives one without overlap */
    loops_are("ConvT", "1x3x4 3x2x4", 2, (struct opdef_attr[]){INTS(s, 2), INTS(p, 1)},
              "[0 J 2*U0_0] sum[C T0_0] x[0 C U0_0-T0_0]:0*w[C J 2*T0_0+1]\n"
              "[0 J 2*U0_1 + 1] sum[C T0_1] x[0 C U0_1-T0_1+1]:0*w[C J 2*T0_1]\n");
    loops_are("ConvT", "1x3x4 3x2x1", 1, (struct opdef_attr[]){INTS(s, 2)},
              "[0 J 2*U0_0] sum[C] x[0 C U0_0]*w[C J 0]\n"
              "[0 J 2*U0_1 + 1] 0\n");
    /* a full window is divided by a constant */
    loops_are("AvgPool", "1x3x6", 2, (struct opdef_attr[]){INTS(k, 2), INTS(s, 2)},
              "[0 C P] (sum[K] x[0 C 2*P+K])/2\n");
    loops_are("AdaptiveAvgPool", "1x3x7", 1, (struct opdef_attr[]){INTS(o, 1)}, "[0 C 0] (sum[K] x[0 C K])/7\n");
    /* each input of a Concat is one statement */
    loops_are("Concat", "2x3 2x4 2x3", 1, (struct opdef_attr[]){INTS(axis, 1)},
              "[A U] x0[A U]\n[A V + 3] x1[A V]\n[A U + 7] x2[A U]\n");
    loops_are("Slice", "9 ", 4,
              (struct opdef_attr[]){INTS(axes, 0), INTS(start, -1), INTS(end, INT64_MIN), INTS(step, -2)},
              "[A] x[8-2*A]\n");
    loops_are("Resize", "5", 1, (struct opdef_attr[]){INTS(size, 10)}, "[A] x[A//2]\n");
}

/* -- limits */

static void rejected(const char *kind, const char *shapes, int nattr, struct opdef_attr *attrs, const char *message)
{
    struct opdef_input in[8];
    struct layer_bound bound;
    int nin = read_shapes(shapes, in);
    assert_int_not_equal(layer_bind(arena, layer_def(kind), nin, in, &(struct attrs){nattr, attrs}, &bound), SOL_OK);
    if (!strstr(sol_error(ctx), message)) fail_msg("expected '%s' in '%s'", message, sol_error(ctx));
}

static void limits_are_rejected(void **state)
{
    (void)state;
    int64_t huge = INT64_MAX;
    rejected("Expand", "1", 1, (struct opdef_attr[]){INTS(shape, huge)}, "2^47");
    rejected("Tile", "3", 1, (struct opdef_attr[]){INTS(n, huge)}, "n: expected -2^30..2^30");
    rejected("Reshape", "4", 1, (struct opdef_attr[]){INTS(shape, huge, huge)}, "makes no sense");
    rejected("Reshape", "4", 1, (struct opdef_attr[]){INTS(shape, 3, -1)}, "do not fit");
    rejected("Pad", "4", 2, (struct opdef_attr[]){INTS(p, huge), INTS(q, huge)}, "p: expected -2^30..2^30");
    rejected("Pad", "4", 2, (struct opdef_attr[]){INTS(p, -3), INTS(q, -2)}, "makes no sense");
    rejected("Stack", "1x1x1x1x1x1x1x1x1x1x1x1", 1, (struct opdef_attr[]){INTS(axis, 0)}, "at most 12");
    rejected("Expand", "1", 1, (struct opdef_attr[]){INTS(shape, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)}, "at most 12");
    rejected("Conv", "1x4x8x8 6x2x3x3", 1, (struct opdef_attr[]){INTS(g, 4)}, "Conv");
    rejected("Conv", "1x4x8x8 6x4x3x3", 1, (struct opdef_attr[]){INTS(s, 0)}, "Conv");
    rejected("ConvT", "1x4x8 4x2x3", 1, (struct opdef_attr[]){INTS(s, 0)}, "at least 1");
    rejected("MaxPool", "1x4x8x8", 2, (struct opdef_attr[]){INTS(k, 2, 2), INTS(s, 1, 1, 1)}, "MaxPool");
    rejected("Split", "6", 2, (struct opdef_attr[]){INTS(axis, 0), INTS(sizes, 4, 4)}, "exceed");
    rejected("Split", "6", 2, (struct opdef_attr[]){INTS(axis, 0), INTS(sizes, 2, 2)}, "together 4");
    rejected("Windows", "6", 3, (struct opdef_attr[]){INTS(axis, 0), INTS(n, 7), INTS(s, 1)}, "no window");
    rejected("Resize", "0", 1, (struct opdef_attr[]){INTS(size, 3)}, "cannot make");
    rejected("TopK", "4", 1, (struct opdef_attr[]){INTS(k, 5)}, "expected 0 to 4");
    rejected("TopK", "4", 2, (struct opdef_attr[]){INTS(k, 2), INTS(first, 3)}, "k: expected 0 to 1, got 2");
    rejected("Slice", "4", 4, (struct opdef_attr[]){INTS(axes, 0), INTS(start, 0), INTS(end, 4), INTS(step, 0)},
             "step");
    rejected("TopK", "4", 2, (struct opdef_attr[]){INTS(k, 1, 2), INTS(axis, 0)}, "k: expected one value, got 2");
    rejected("TopK", "4", 2, (struct opdef_attr[]){INTS(k, 1), {.name = "axis", .kind = ATTR_INT}},
             "one value or more, got 0");
    rejected("Attention", "2x4x8 2x4x8 2x4x8 4", 0, NULL, "input 3: expected at least 2 dimensions");
    rejected("LSTM", "5x2x3 15x3 16x4", 0, NULL, "LSTM");
    rejected("PixelShuffle", "1x6x2x2", 1, (struct opdef_attr[]){INTS(r, 2)}, "does not divide");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_signatures_agree), cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(kinds_are_checked),         cmocka_unit_test(what_equals_the_default_is_known),
        cmocka_unit_test(loops_of_layers),           cmocka_unit_test(limits_are_rejected),
    };
    return cmocka_run_group_tests_name("layers", tests, begin, end);
}
