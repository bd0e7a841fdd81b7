/* Operator definitions, binding, folding and the interpreter. Values are compared with PyTorch's (loops/cases.inc, made
 * by make_cases.py), results of binding and folding as printed text. */
#include "rows_help.h"

#define BODY(row, attrs, inputs, expected) assert_string_equal(body(bind(row, attrs, inputs)), expected)

/* -- values */

struct example {
    const char *name, *row, *attrs, *inputs;
    int n;
    const double *want;
};
#define CASE(name, row, attrs, inputs, ...) \
    {name, row, attrs, inputs, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (const double[]){__VA_ARGS__}},
static const struct example examples[] = {
#include "loops/cases.inc"
};

static double element(const void *data, int64_t i, int type)
{
    return type == SOL_F64    ? ((const double *)data)[i]
           : type == SOL_I64  ? (double)((const int64_t *)data)[i]
           : type == SOL_BOOL ? ((const uint8_t *)data)[i]
                              : NAN;
}

static void check_example(const struct example *x)
{
    struct opdef_input in[16];
    void *data[64] = {0}, *given[16] = {0};
    struct attrs attrs = read_attrs(x->attrs);
    struct opdef *opdef;
    const struct loops *loops;
    int n = read_inputs(x->inputs, in, given), k = 0, at = 0;
    if (opdef_parse(arena, x->name, x->row, &opdef)) fail_msg("%s", sol_error(ctx));
    if (opdef_bind(arena, opdef, n, in, &attrs, &loops)) fail_msg("%s", sol_error(ctx));
    for (int i = 0; i < n; ++i)
        if (!in[i].missing) data[k++] = given[i];
    for (int i = k; i < loops->tensors.n; ++i)
        if (loops->tensors.at[i].role == LOOPS_OUTPUT)
            data[i] =
                arena_alloc(arena, (size_t)elements(loops->tensors.at[i].ndim, loops->tensors.at[i].shape) * 8 + 8);
    if (loops_interpret(ctx, loops, data)) fail_msg("%s", sol_error(ctx));
    for (int i = k; i < loops->tensors.n; ++i) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        if (t->role != LOOPS_OUTPUT || (!strncmp(x->name, "ArgMax", 6) && !strcmp(t->name, "y"))) continue;
        for (int64_t j = 0; j < elements(t->ndim, t->shape); ++j, ++at) {
            if (at >= x->n) fail_msg("%s: more than %d results", x->name, x->n);
            double got = element(data[i], j, t->dtype), want = x->want[at];
            if (!(fabs(got - want) <= 1e-8 * (1 + fabs(want))) && !(isnan(got) && isnan(want)))
                fail_msg("%s: %s[%d] is %.10g, expected %.10g", x->name, t->name, (int)j, got, want);
        }
    }
    if (at != x->n) fail_msg("%s: %d results, expected %d", x->name, at, x->n);
}

static void test_values(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(examples); ++i) check_example(&examples[i]);
}

/* -- parsing */

static void test_parse_errors(void **state)
{
    static const struct {
        const char *row, *error;
    } bad[] = {
        {"x[A] -> y[A]", "column 1: expected head | sizes | tables | body"},
        {"x[A] -> y[A] | y[A] = x[A", "column 26: expected an expression, found the end"},
        {"x[A] -> y[A] | y[A] = x[A] +", "expected an expression, found the end"},
        {"x[A] -> y[A] | y[A] = foo(x[A])",
         "column 23: expected a function (docs/layers.md lists them), found 'foo(x[A])'"},
        {"x[A] -> y[A] | y[A] = exp(x[A], 2)", "expected 1 arguments for exp"},
        {"x[A] -> y[A] | y[A] = x[A]; z", "expected '['"},
        {"x[A] -> y[A] | x[A] = 1", "a result in front (x is an input)"},
        {"x[A] -> y[A] z[A] | y[A] = x[A]", "z is never written"},
        {"x[A] -> y[A] | y[A] = t[A]", "t is never written"},
        {"x[A] -> y[A] | y[A] = sum[B | ] x[A]", "column 31: expected an expression"},
        {"x[A] -> y[A] | y[A] = [x[A]]", "expected a comparison"},
        {"x[A] -> y[A] | y[A] = maxat[B] x[A]", "2 results in front"},
        {"x[A] -> y[A] | (y,z)[A] = sum[B] x[A]", "1 results in front"},
        {"x[A] -> y[A] | y[A] = 1 + maxat[B] x[A]", "maxat has several results"},
        {"x[A] -> y[A] | t[A+1] = x[A]; y[A] = t[A]", "expected plain index variables, or t in the head"},
        {"x[A] x[B] -> y[A] | y[A] = x[A]", "column 6: expected a tensor with a new name"},
        {"x[A] -> y[A] | #A | y[A] = x[A]", "expected a comparison"},
        {"x[A] -> y[A] | y[A] = x[A] $", "expected ';' or the end, found '$'"},
        {"x:=t[A] -> y[A] | y[A] = x[A]", "input x cannot have the type := t"},
        {"x[A B] -> y[] i:i64[] | (y,i)[] = maxat[B A] x[A B]", "in the order in which the row names them"},
    };
    (void)state;
    for (int i = 0; i < COUNT_OF(bad); ++i) {
        struct opdef *row;
        assert_int_equal(opdef_parse(arena, "Bad", bad[i].row, &row), SOL_ERR_INVALID);
        if (!strstr(sol_error(ctx), bad[i].error) || strncmp(sol_error(ctx), "definition Bad: ", 16))
            fail_msg("'%s' gives: %s", bad[i].row, sol_error(ctx));
    }
}

static void test_deep_brackets(void **state)
{
    char text[1200] = "x[A] -> y[A] | y[A] = ";
    struct opdef *opdef;
    (void)state;
    memset(text + strlen(text), '(', 1000);
    assert_int_equal(opdef_parse(arena, "Deep", text, &opdef), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(ctx), "fewer levels"));
}

static void test_precedence(void **state)
{
    (void)state;
    BODY("x[A B] -> y[A] | y[A] = sum[B] x[A B] / sum[B] 1", "", "f:2x3", "y[A] = (sum[B] x[A B])/3");
    BODY("x[A B] -> y[A] | y[A] = 2 * sum[B] x[A B] * x[A B] + 1", "", "f:2x3", "y[A] = 2*(sum[B] x[A B]*x[A B]) + 1");
    BODY("x[A B] -> y[A] | y[A] = -x[A 1] - (x[A 0] - x[A 2])", "", "f:2x3", "y[A] = (-x[A 1]) - (x[A 0] - x[A 2])");
}

/* Printed loops parse to the same loops. */
static void test_print_parses(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(examples); ++i) {
        const struct example *x = &examples[i];
        const struct loops *loops = bind(x->row, x->attrs, x->inputs), *again;
        struct text head = text_new(arena), out = text_new(arena), sizes = text_new(arena);
        struct opdef_input in[16];
        struct attrs none = {0};
        bool table = false;
        int nin = 0, ivar = 0;
        for (int role = LOOPS_INPUT; role <= LOOPS_TEMP; ++role, text_put(&out, "-> "))
            for (int t = 0; t < loops->tensors.n; ++t) {
                const struct loops_tensor *u = &loops->tensors.at[t];
                table |= u->role == LOOPS_TABLE;
                if (u->role != role) continue;
                if (role == LOOPS_INPUT)
                    in[nin++] = (struct opdef_input){.dtype = u->dtype, .ndim = u->ndim, .shape = u->shape};
                text_put(&out, "%s:%s[", u->name, dtype_def(u->dtype)->name);
                for (int d = 0; d < u->ndim; ++d) {
                    text_put(&out, d ? " Z%d" : "Z%d", ivar);
                    text_put(&sizes, "#Z%d=%d; ", ivar++, (int)u->shape[d]);
                }
                text_put(&out, "] ");
            }
        if (table || ivar + loops->ivars.n > 60) continue;
        out.n -= 3;
        for (int k = 0; k < loops->ivars.n; ++k)
            text_put(&sizes, "#%s=%d; ", loops->ivars.at[k].name, (int)loops->ivars.at[k].size);
        text_put(&head, "%.*s| %s | ", (int)out.n, out.at, sizes.at);
        const char *statements = body(loops);
        char *copy = arena_strdup(arena, statements);
        for (char *at; (at = strstr(copy, "  -- scan"));)
            memmove(at, at + 11 + strcspn(at + 11, "; "), strlen(at + 11 + strcspn(at + 11, "; ")) + 1);
        for (char *q = copy; *q; ++q)
            if (*q == 'q' && q > copy && q[-1] >= 'A' && q[-1] <= 'Z') *q = '\'';
        text_put(&head, "%s", copy);
        struct opdef *opdef;
        if (opdef_parse(arena, x->name, head.at, &opdef)) fail_msg("%s: %s", sol_error(ctx), head.at);
        if (opdef_bind(arena, opdef, nin, in, &none, &again)) fail_msg("%s: %s", sol_error(ctx), head.at);
        assert_string_equal(body(again), statements);
    }
}

/* -- binding */

static void test_bodies(void **state)
{
    static const char conv[] =
        "x[N I Q..] w[O J K..] b?[O] -> y[N O P..] | #G=g; #C=#O//g; #O=#C*#G; #I=#J*#G; #P=(#Q+p+q-d*(#K-1)-1)//s+1 |"
        " y[N G*#C+C P] = (sum[J K] x[N G*#J+J s*P+d*K-p]:0 * w[G*#C+C J K]) + b[G*#C+C]:0";
    (void)state;
    BODY(conv, "s=1 p=1 q=1 d=1 g=1", "f:2x3x8x9 f:4x3x3x3 f:4",
         "y[N C P0 P1] = (sum[J K0 K1] x[N J P0+K0-1 P1+K1-1]:0*w[C J K0 K1]) + b[C]");
    BODY(conv, "s=2 p=0 q=0 d=1 g=1", "f:2x3x8x9 f:4x3x1x1 -", "y[N C P0 P1] = sum[J] x[N J 2*P0 2*P1]*w[C J 0 0]");
    BODY(conv, "s=1 p=[0,1] q=[0,1] d=1 g=3", "f:1x3x8x9 f:3x1x3x3 -",
         "y[0 G P0 P1] = sum[K0 K1] x[0 G P0+K0 P1+K1-1]:0*w[G 0 K0 K1]");
    BODY("x[A..] z[A..] -> y[A..] | y[A] = x[A] + z[A]", "", "f: f:", "y[] = x[] + z[]");
    BODY("x[N C Q..] -> y[N C P..] | #K=k; #P=#Q-k+1 | y[N C P] = sum[K] x[N C P+K] / sum[K | 0<=P+K<#Q] 1", "k=[2,1]",
         "f:1x3x4x5", "y[0 C P0 P1] = (sum[K0] x[0 C P0+K0 P1])/2");
    BODY("x[A B] -> y[B A] | y[B A] = x[A B]", "", "f:2x3", "y[B A] = x[A B]");
    BODY("x[A] -> y[A] | y[A] = where(A>=0,x[A],0.0) * [A<#A] * 1.0", "", "f:4", "y[A] = x[A]");
    BODY("x[P'] -> y[P] | y[P] = x[P] * sum[P'] x[P']", "", "f:4", "y[P] = x[P]*(sum[Pq] x[Pq])");
    BODY("x[A] -> y[A] t[A] | y[A] = x[A-#A]:7; t[A] = x[A+1]:0", "", "f:4", "y[A] = 7; t[A] = x[A+1]:0");
    BODY("x[A X B] z[A Z B] -> y[A Q B] | #Q=#X+#Z | y[A X B] = x[A X B]; y[A #X+Z B] = z[A Z B]", "",
         "f:2x3x4 f:2x5x4", "y[A X B] = x[A X B]; y[A Z+3 B] = z[A Z B]");
}

/* The loops of reshapes. */
static void test_reshape(void **state)
{
    static const char reshape[] = "x[Q..] -> y[P..] | #P=shape | y[P] = x[dig(lin(#P,P),#Q)]";
    (void)state;
    BODY(reshape, "shape=[2,3,4]", "f:2x3x4", "y[P0 P1 P2] = x[P0 P1 P2]");
    BODY(reshape, "shape=[6,4]", "f:2x3x4", "y[P0 P1] = x[P0//3 P0%3 P1]");
    BODY(reshape, "shape=[2,3,4]", "f:6x4", "y[P0 P1 P2] = x[3*P0+P1 P2]");
    BODY(reshape, "shape=[24]", "f:2x3x4", "y[P] = x[P//12 P//4%3 P%4]");
    BODY(reshape, "shape=[2,12]", "f:2x3x4", "y[P0 P1] = x[P0 P1//4 P1%4]");
    BODY(reshape, "shape=[1,2,1,3,4,1]", "f:6x4", "y[0 P1 0 P3 P4 0] = x[3*P1+P3 P4]");
    BODY(reshape, "shape=[4,6]", "f:6x4", "y[P0 P1] = x[(6*P0 + P1)//4 (6*P0 + P1)%4]");
    /* a reshape and its inverse cancel */
    BODY("x[A] -> y[A] | #B=3; #C=2; #D=4 | y[A] = x[(A//8*2+A//4%2)*4+A%4]", "", "f:24", "y[A] = x[A]");
    BODY("x[A] -> y[A] | y[A] = x[(A//12)*12+A//4%3*4+A%4]", "", "f:48", "y[A] = x[A]");
}

static void test_tables(void **state)
{
    (void)state;
    BODY("x[Q..] -> y[P..] | #P=#Q*2 | t[P] = P//2 | y[P] = x[t[P]]", "", "f:3x1", "y[P0 P1] = x[t0[P0] 0]");
    BODY("x[Q..] -> y[P..] | #P=#Q-1 | t[P] = P+1 | y[P] = x[t[P]]", "", "f:3x4", "y[P0 P1] = x[P0+1 P1+1]");
    BODY("x[Q..] -> y[Q..] | | t[Q] = 0.5+Q*0 | y[Q] = x[Q] * t[Q]", "", "f:2x2",
         "y[Q0 Q1] = x[Q0 Q1]*(t0[Q0]*t1[Q1])");
    BODY("x[Q..] -> y[Q..] | | t[Q] = 0.5 | y[Q] = x[Q] * t[Q]", "", "f:", "y[] = x[]");
    const struct loops *loops = bind("x[Q] -> y[P] | #P=4 | t[P] = P*5//4 | y[P] = x[t[P]]", "", "f:5");
    const struct loops_tensor *t = &loops->tensors.at[2];
    assert_int_equal(t->role, LOOPS_TABLE);
    static const int64_t want[] = {0, 1, 2, 3};
    assert_memory_equal(t->table, want, sizeof want);
}

static void test_scans(void **state)
{
    (void)state;
    BODY("x[T] -> y[T] | y[T] = y[T-1]:0 + x[T]", "", "f:4", "y[T] = y[T-1]:0 + x[T]  -- scan T+1");
    BODY("x[T] -> y[T] | y[T] = y[T+1]:0 + x[T]", "", "f:4", "y[T] = y[T+1]:0 + x[T]  -- scan T-1");
    BODY("x[T] -> y[T] | y[T] = y[T-1]:0 + x[T]", "", "f:1", "y[0] = x[0]");
}

/* Statements in any order; a scan of three statements, with one ahead of it; two scans over one index variable stay
 * separate. */
static void test_order(void **state)
{
    (void)state;
    BODY("x[T] -> h[T] | h[T] = g[T] * 2; g[T] = a[T] + h[T-1]:0; a[T] = exp(x[T])", "", "f:4",
         "a[T] = exp(x[T]); g[T] = a[T] + h[T-1]:0  -- scan T+1; h[T] = g[T]*2  -- scan T+1");
    BODY("x[T] -> y[T] | y[T] = y[T-1]:0 + a[#T-1-T]; a[T] = a[T-1]:0 + x[T]", "", "f:4",
         "a[T] = a[T-1]:0 + x[T]  -- scan T+1; y[T_2] = y[T_2-1]:0 + a[3-T_2]  -- scan T_2+1");
}

static const char *bind_error(const char *text, const char *attrs, const char *inputs)
{
    struct opdef_input in[16];
    void *data[16];
    struct attrs a = read_attrs(attrs);
    const struct loops *loops;
    int n = read_inputs(inputs, in, data);
    if (opdef_bind(arena, parse(text), n, in, &a, &loops) == SOL_OK) fail_msg("'%s' is bound to %s", text, body(loops));
    return sol_error(ctx);
}

static void test_bind_errors(void **state)
{
    static const struct {
        const char *row, *attrs, *inputs, *error;
    } bad[] = {
        {"x[A] z[A] -> y[A] | y[A] = x[A] + z[A]", "", "f:3 f:4",
         "Row: dimension 0 of z is 4, but A is 3 elsewhere (inputs: x 3 z 4)"},
        {"x[A B] -> y[A] | y[A] = x[A 0]", "", "f:3", "x has 1 dimensions, but x[A B] needs 2 (inputs: x 3)"},
        {"x[A B C..] -> y[A] | y[A] = sum[B C] x[A B C]", "", "f:3", "but x[A B C..] needs 2"},
        {"x[Q] -> y[P] | #P=#Q-5 | y[P] = x[P]", "", "f:3", "P is negative: #P=#Q-5 is -2 (inputs: x 3)"},
        {"x[Q] -> y[P] | #P=#Q//s | y[P] = x[P]", "s=0", "f:3",
         "#P=#Q//s: not an integer, too large, or divided by zero"},
        {"x[Q] -> y[P] | #P=#Q*s | y[P] = x[0]", "s=4611686018427387904", "f:3", "not an integer, too large"},
        {"x[Q] -> y[P] | #P=s | y[P] = x[0]", "s=4503599627370496", "f:3", "y"},
        {"x[Q] -> y[P] | #P=s | y[P] = x[0]", "s=1.5", "f:3", "not an integer"},
        {"x[Q] -> y[P] | #P=s | y[P] = x[0]", "", "f:3", "attribute s is missing"},
        {"x[Q] -> y[P] | #P=s | y[P] = x[0]", "s=f32", "f:3", "attribute s must be a number"},
        {"x[Q] -> y[Q] | y[Q] = x[Q] * s", "s=[1,2]", "f:3", "attribute s must be one value, not 2"},
        {"x[A] -> y[B] | y[B] = x[0]", "", "f:3", "the size of B follows from nothing that is given"},
        {"x[A.. B..] -> y[A..] | y[A] = sum[B] x[A B]", "", "f:3", "the number of dimensions of A is open"},
        {"x[A.. B..] -> y[A..] | A=3 | y[A] = sum[B] x[A B]", "", "f:3", "x has 1 dimensions, but x[A.. B..] needs 3"},
        {"x[A..] -> y[A..] | A=n | y[A] = x[A]", "n=-1", "f:3", "A=n is not a number of dimensions"},
        {"x[A] b?[A] -> y[A] | y[A] = x[A] + b[A]", "", "f:3 -", "input b is missing, but needed"},
        {"x[A] -> y[A] | #A<4 | y[A] = x[A]", "", "f:5", "#A<4 does not hold (inputs: x 5)"},
        {"x[A] -> y[A] | #A=n*2 | y[A] = x[A]", "n=2", "f:5", "#A=n*2 does not hold: A is 5, not 4"},
        {"x[A R] -> y[A] | y[A] = max[R] x[A R]", "", "f:5x0", "max over nothing"},
        {"x:int[A] -> y[A] | y[A] = x[A]", "", "f:5", "x has type f64, but must be int"},
        {"x[A] -> y:=to[A] | y[A] = x[A]", "to=f31", "f:5", "attribute to must name a type"},
        {"x[A] -> y:q[A] | y[A] = x[A]", "", "f:5", "y has the unknown type q"},
        {"x[A] -> y[A] | y[A] = a[A]; a[A] = y[A] + x[A]", "", "f:5", "depends on itself within a step"},
        {"x[A] -> y[A] | y[A] = x[A -1]", "", "f:5", "x has 1 dimensions and is read with 2 indices"},
        {"x[A] -> y[A] | y[A] = y[A-1]:0 + y[A+1]:0", "", "f:5",
         "a cycle over more than one index variable or direction"},
        {"x[N C Q..] -> y[N C P..] | #P=s | y[N C P] = x[N C P]", "s=[1,2,3]", "f:2x2x2x2",
         "attribute s has 3 values, expected 2"},
    };
    (void)state;
    for (int i = 0; i < COUNT_OF(bad); ++i) {
        const char *error = bind_error(bad[i].row, bad[i].attrs, bad[i].inputs);
        if (!strstr(error, bad[i].error)) fail_msg("'%s' gives: %s", bad[i].row, error);
    }
}

/* Sizes of 0 are legal: nothing runs, and sums over nothing are 0. */
static void test_empty(void **state)
{
    double out[3] = {7, 7, 7}, nothing[1];
    void *data[] = {nothing, out};
    (void)state;
    assert_int_equal(loops_interpret(ctx, bind("x[A R] -> y[A] | y[A] = sum[R] x[A R]", "", "f:3x0"), data), SOL_OK);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0);
    assert_int_equal(loops_interpret(ctx, bind("x[A R] -> y[A] | y[A] = max[R] x[A R]", "", "f:0x0"), data), SOL_OK);
    assert_int_equal(loops_interpret(ctx, bind("x[A R] -> y[A] | y[A] = max[R | R<#R] x[A R]", "", "f:2x0"), data),
                     SOL_OK);
    assert_true(isinf(out[0]) && out[0] < 0);
}

static void test_types(void **state)
{
    const struct loops *loops = bind("i:int[A] x[A] -> y[A] z:x[A] u:bool[A] v:=to[A] w:float[A] -> t:i8[A]"
                                     "| y[A] = i[A]; z[A] = t[A]; u[A] = s[A]; v[A] = q[A]; w[A] = 1; t[A] = 1;"
                                     " s[A] = x[A]; (r,q)[A] = maxat[] x[A]",
                                     "to=bf16", "i4:3 f:3");
    static const enum sol_dtype want[] = {SOL_I64, SOL_F64, SOL_I64, SOL_F64, SOL_BOOL, SOL_BF16,
                                          SOL_F32, SOL_I8,  SOL_F64, SOL_F64, SOL_I64};
    static const char *const names[] = {"i", "x", "y", "z", "u", "v", "w", "t", "s", "r", "q"};
    (void)state;
    assert_int_equal(loops->tensors.n, COUNT_OF(names));
    for (int i = 0; i < COUNT_OF(names); ++i)
        for (int k = 0; k < loops->tensors.n; ++k)
            if (!strcmp(loops->tensors.at[k].name, names[i]) && loops->tensors.at[k].dtype != want[i])
                fail_msg("%s has type %s", names[i], dtype_def(loops->tensors.at[k].dtype)->name);
}

static void test_purposes(void **state)
{
    struct opdef *r = parse("x[N C Q..] w[O I K..] -> y[N O P..] | #P=#Q | y[N O P] = x[N 0 P] * w[O 0 0]");
    (void)state;
    assert_int_equal(opdef_purpose(r, false, 0, 0, 4), 'N');
    assert_int_equal(opdef_purpose(r, false, 0, 1, 4), 'C');
    assert_int_equal(opdef_purpose(r, false, 0, 3, 4), 'P');
    assert_int_equal(opdef_purpose(r, false, 0, 4, 4), 0);
    assert_int_equal(opdef_purpose(r, false, 1, 1, 3), 'C');
    assert_int_equal(opdef_purpose(r, true, 0, 2, 5), 'P');
    assert_int_equal(opdef_purpose(r, true, 1, 0, 5), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_values),       TEST(test_parse_errors), TEST(test_deep_brackets), TEST(test_precedence),
        TEST(test_print_parses), TEST(test_bodies),       TEST(test_reshape),       TEST(test_tables),
        TEST(test_scans),        TEST(test_order),        TEST(test_bind_errors),   TEST(test_empty),
        TEST(test_types),        TEST(test_purposes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
