/* Operator definitions as gradients have them: of the weights and the data of a convolution, of a mean, of an
 * element-wise function; and copies that pad, crop, reverse and transpose. */
#include <string.h>

#include "random/recipes.h"

/* Spaces separate attributes, so those inside the definition become tabs. */
static struct value *row(struct gen *r, unsigned needs, struct value *x, struct value *z, const char *text)
{
    char *attrs = arena_printf(r->a, "text=%s", text);
    for (char *c = attrs; *c; c++)
        if (*c == ' ') *c = '\t';
    return gen_one(r, "Row", needs, z ? 2 : 1, (struct value *[]){x, z}, attrs);
}

static bool make_copy(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 2);
    int a = (int)size_of(x, 2), b = (int)size_of(x, 3), i = gen_between(r, -2, 2), k = gen_between(r, -2, 2);
    const char *texts[] = {
        "x[N C A B] -> y[N C A B] | | | y[N C A B] = x[N C #A-1-A B]",
        "x[N C A B] -> y[N B A C] | | | y[N B A C] = x[N C A B]",
        "x[N C A B] -> y[N C B] | | | y[N C B] = x[N C 0 B]",
        format(r, "x[N C A B] -> y[N C P Q] | #P=%d; #Q=%d | | y[N C P Q] = x[N C P+%d Q-%d]:0", a + 1, b + 2, i, k),
        format(r, "x[N C A B] -> y[N C P Q] | #P=%d; #Q=%d | | y[N C P Q] = x[N C 2*P Q]", (a + 1) / 2, b),
        format(r, "x[N C A B] -> y[N C P Q] | #P=%d; #Q=%d | | y[N C P Q] = [P%%2==0] * x[N C P//2 Q]", 2 * a, b),
    };
    return row(r, p->needs, x, NULL, texts[gen_below(r, a ? COUNT_OF(texts) : 2)]) != NULL;
}

static bool make_function(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 0, 4);
    int64_t shape[SOL_MAX_DIMS];
    shape_of(x, shape);
    struct value *d = new_real(r, x->t->ndim, shape);
    if (x->exact && gen_chance(r, 50))
        return row(r, p->needs, x, d, "x[A..] d[A..] -> y[A..] | | | y[A] = [x[A]>0] * d[A]") != NULL;
    return row(r, p->needs, x, d, "x[A..] d[A..] -> y[A..] | | | y[A] = d[A] * (1 - x[A]*x[A])") != NULL;
}

static bool make_spread(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 2, 2);
    int a = gen_between(r, 1, 6), b = gen_between(r, 1, 6);
    return row(r, p->needs, x, NULL,
               format(r, "d[N C] -> y[N C A B] | #A=%d; #B=%d | | y[N C A B] = d[N C] / %d", a, b, a * b)) != NULL;
}

/* x is the convolution's input; d has the shape of its result. */
static bool make_conv_gradient(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 2);
    int a = (int)size_of(x, 2), b = (int)size_of(x, 3), k = gen_chance(r, 40) ? 1 : gen_between(r, 1, 4);
    int s = gen_chance(r, 60) ? 1 : gen_between(r, 2, 3), pad = gen_below(r, k);
    if (x->special || a + 2 * pad < k || b + 2 * pad < k) return false;
    int64_t out = gen_chance(r, 30) ? 8 : gen_between(r, 1, 6);
    int64_t made[] = {size_of(x, 0), out, (a + 2 * pad - k) / s + 1, (b + 2 * pad - k) / s + 1};
    if (gen_chance(r, 50))
        return row(r, p->needs, new_real(r, 4, made), x,
                   format(r,
                          "d[N O P Q] x[N I A B] -> y[O I K L] | #K=%d; #L=%d | | "
                          "y[O I K L] = sum[N P Q] d[N O P Q] * x[N I %d*P+K-%d %d*Q+L-%d]:0",
                          k, k, s, pad, s, pad)) != NULL;
    int64_t ws[] = {size_of(x, 1), out, k, k}; /* x is the gradient from here on */
    const char *sizes = format(r, "#A=%d; #B=%d", (a - 1) * s + k - 2 * pad, (b - 1) * s + k - 2 * pad);
    if ((a - 1) * s + k - 2 * pad < 1 || (b - 1) * s + k - 2 * pad < 1) return false;
    const char *guard = s == 1 ? "" : format(r, " | (A+%d-K)%%%d==0 and (B+%d-L)%%%d==0", pad, s, pad, s);
    const char *read =
        s == 1 ? format(r, "A+%d-K B+%d-L", pad, pad) : format(r, "(A+%d-K)//%d (B+%d-L)//%d", pad, s, pad, s);
    return row(r, p->needs, x, new_param(r, 4, ws),
               format(r,
                      "d[N O P Q] w[O I K L] -> y[N I A B] | %s | | y[N I A B] = sum[O K L%s] d[N O %s]:0 * w[O I K L]",
                      sizes, guard, read)) != NULL;
}

/* The identity with a given gradient: the stopped operand has none, and the marker is replaced by the gradient. */
static bool make_graft(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 0, 4);
    int64_t shape[SOL_MAX_DIMS];
    shape_of(x, shape);
    struct value *m = new_real(r, x->t->ndim, shape), *y = gen_one(r, "stop", p->needs, 1, &x, "");
    return y && gen_one(r, "Graft", p->needs, 4, (struct value *[]){y, m, x, m}, "");
}

const struct recipe row_recipes[] = {
    {"Row", make_copy, KEEPS_EXACT, 10, NULL},
    {"Row", make_function, NEED_FINITE | KEEPS_EXACT, 6, NULL},
    {"Row", make_spread, 0, 3, NULL},
    {"Row", make_conv_gradient, NEED_FINITE | KEEPS_EXACT, 16, NULL},
    {"Graft", make_graft, KEEPS_EXACT, 3, NULL},
    {NULL, NULL, 0, 0, NULL},
};
