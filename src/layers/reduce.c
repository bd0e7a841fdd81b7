/* Definitions of reductions over any axes, running reductions along one axis, and softmax. Input dimension i has index
 * variable i; the output has the index variables that are not reduced. */
#include <math.h>
#include <string.h>

#include "layers/build.h"

enum { ONES = 26 }; /* index variables from here on have size 1: reduced axes that are kept */

struct parts {
    int ndim;
    bool reduced[SOL_MAX_DIMS];
    bool keep;
    int64_t elements; /* that are reduced together: a size */
};

static void put_input(struct text *out, const struct parts *p)
{
    text_put(out, "x[");
    put_ivars(out, 0, p->ndim);
    text_put(out, "]");
}

/* The reduced index variables. A scalar has none; it gets one of size 1. */
static void put_reduced(struct text *out, const struct parts *p)
{
    for (int d = 0; d < p->ndim; d++)
        if (p->reduced[d]) text_put(out, " %s", ivar(d));
    if (!p->ndim) text_put(out, " %s", ivar(0));
}

/* The remaining index variables: "[A C]", or with `keep` "[A B' C]" where B is reduced. */
static void put_kept(struct text *out, const struct parts *p, bool keep)
{
    text_put(out, "[");
    for (int d = 0; d < p->ndim; d++)
        if (keep || !p->reduced[d]) text_put(out, " %s", ivar(p->reduced[d] ? ONES + d : d));
    text_put(out, "]");
}

/* "x[..] -> y:type[..] k:i64[..] | sizes | |"; at least so many elements are reduced together */
static void put_head(struct text *out, const struct parts *p, const char *outputs, int64_t least)
{
    put_input(out, p);
    text_put(out, " -> ");
    for (const char *s = outputs; *s; s++) {
        if (*s == '$')
            put_kept(out, p, p->keep);
        else
            text_add(out, s, 1);
    }
    text_put(out, " |%s", p->ndim ? "" : " #A=1;");
    for (int d = 0; d < p->ndim; d++)
        if (p->keep && p->reduced[d]) text_put(out, " #%s=1;", ivar(ONES + d));
    put_need(out, size_sub(p->elements, least));
    text_put(out, " | | ");
}

struct reduction {
    const char *name, *outputs; /* the head; $ stands for the remaining index variables */
    /* $R index variables reduced; $x $y the tensors; $p, $u, $v a pair and its tensors; $n elements, $s n/(n -
     * correction), $c the attribute n, $i 1/n; $k what is kept, for the index of another output */
    const char *stmts;
    bool needs_one; /* an empty reduction without an initial value has no result */
};
static const struct reduction reductions[] = {
    {"Sum", "y$", "$y = sum[$R] $x", false},
    {"Mean", "y$", "$y = (sum[$R] $x) / $n", false},
    {"Prod", "y$", "$y = prod[$R] $x", false},
    {"Max", "y$", "$y = max[$R] $x", true},
    {"Min", "y$", "$y = min[$R] $x", true},
    {"Any", "y:bool$", "$y = any[$R] [$x!=0]", false},
    {"All", "y:bool$", "$y = all[$R] [$x!=0]", false},
    {"SumSquare", "y$", "$y = sum[$R] $x * $x", false},
    {"L1", "y$", "$y = sum[$R] abs($x)", false},
    {"L2", "y$", "$y = norm_sqrt(sum[$R] $x * $x)", false},
    {"LpNorm", "y$", "$y = norm_pow(sum[$R] norm_pow(abs($x), $c), $i)", false},
    {"LogSum", "y$", "$y = log(sum[$R] $x)", false},
    {"LogSumExp", "y$", "$p = softsum[$R] $x; $y = where($u==inf, $u, $u + log($v))", false},
    {"Var", "y$", "$p = moments[$R] $x; $y = $v * $s", false},
    {"Std", "y$", "$p = moments[$R] $x; $y = norm_sqrt($v * $s)", false},
    {"ArgMax", "k:i64$", "(m,k)$k = maxat[$R] $x", true},
    {"ArgMin", "k:i64$", "(m,k)$k = minat[$R] $x", true},
    {"MaxAt", "y$ k:i64$", "(y,k)$k = maxat[$R] $x", true},
    {"MinAt", "y$ k:i64$", "(y,k)$k = minat[$R] $x", true},
};
static const struct reduction norm_zero = {"LpNorm", "y$", "$y = sum[$R] [$x!=0]", false};
static const struct reduction norm_max = {"LpNorm", "y$", "$y = max[$R] abs($x)", true};
static const struct reduction norm_min = {"LpNorm", "y$", "$y = min[$R] abs($x)", true};

static const struct reduction *reduction_of(const struct layer_def *def, double n)
{
    if (!strcmp(def->name, "LpNorm")) {
        if (n == 0) return &norm_zero;
        if (isinf(n)) return n > 0 ? &norm_max : &norm_min;
    }
    for (int i = 0; i < COUNT_OF(reductions); i++)
        if (!strcmp(reductions[i].name, def->name)) return &reductions[i];
    return NULL;
}

static void put_elements(struct text *out, const struct parts *p)
{
    if (size_varies(p->elements))
        text_put(out, "%lld", (long long)p->elements);
    else
        put_number(out, (double)p->elements);
}

/* n / (n - correction) */
static void put_correction(struct text *out, const struct parts *p, int64_t correction)
{
    const double n = (double)p->elements;
    if (size_varies(p->elements) || size_varies(correction))
        text_put(out, "(%lld/%lld)", (long long)p->elements, (long long)size_max(size_sub(p->elements, correction), 0));
    else
        put_number(out, n / MAX(n - (double)correction, 0));
}

static void put_stmts(struct text *out, const struct parts *p, const char *stmts, const struct attrs *attrs)
{
    const double c = attrs_real(attrs, "n", 1);
    for (const char *s = stmts; *s; s++) {
        if (*s != '$') {
            text_add(out, s, 1);
            continue;
        }
        switch (*++s) {
        case 'R': put_reduced(out, p); break;
        case 'x': put_input(out, p); break;
        case 'n': put_elements(out, p); break;
        case 's': put_correction(out, p, attrs_int(attrs, "correction", 0, 0)); break;
        case 'c': put_number(out, c); break;
        case 'i': put_number(out, 1 / c); break;
        case 'k': put_kept(out, p, p->keep); break;
        default: text_put(out, *s == 'p' ? "(u,v)" : "%c", *s); put_kept(out, p, p->keep && *s == 'y');
        }
    }
}

static sol_status put_reduction(struct sol_ctx *ctx, const struct layer_def *def, const struct parts *p,
                                const struct attrs *attrs, struct text *out)
{
    const struct reduction *r = reduction_of(def, attrs_real(attrs, "n", 1));
    if (r->needs_one && p->elements == 0)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: there is no value over an axis of size 0", def->name);
    put_head(out, p, r->outputs, r->needs_one ? 1 : 0);
    put_stmts(out, p, r->stmts, attrs);
    return SOL_OK;
}

BUILDER(build_reduce)
{
    (void)nin;
    struct parts p = {.ndim = in->ndim, .keep = attrs_int(attrs, "keep", 0, 0) != 0, .elements = 1};
    TRY(axes_attr(arena_ctx(a), def, attrs, "axes", in->ndim, p.reduced));
    bool all = attr_length(attrs, "axes") == 0;
    for (int d = 0; d < in->ndim; d++) {
        p.reduced[d] |= all;
        if (p.reduced[d]) p.elements = size_mul(p.elements, in->shape[d]);
    }
    return put_reduction(arena_ctx(a), def, &p, attrs, out);
}

/* An axis of the input. A scalar has one axis, 0 or -1, that does not exist. */
static sol_status one_axis(struct arena *a, const struct layer_def *def, const struct opdef_input *in,
                           const struct attrs *attrs, int *out_axis)
{
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", MAX(in->ndim, 1), out_axis));
    return SOL_OK;
}

/* The last of equal elements is the first of the reversed input, counted from the back. */
static void put_last_arg(struct text *out, const struct parts *p, int axis, bool max)
{
    put_head(out, p, "k:i64$", 1);
    struct text kept = text_new(out->arena);
    put_kept(&kept, p, false);
    text_put(out, "(m,r)%s = %s[%s] x[", kept.at, max ? "maxat" : "minat", ivar(axis));
    for (int d = 0; d < p->ndim; d++) text_put(out, d == axis ? " #%s-1-%s" : " %s", ivar(d), ivar(d));
    text_put(out, "]; k");
    put_kept(out, p, p->keep);
    text_put(out, " = #%s-1-r%s", ivar(axis), kept.at);
}

BUILDER(build_arg_reduce)
{
    (void)nin;
    int axis;
    TRY(one_axis(a, def, in, attrs, &axis));
    struct parts p = {.ndim = in->ndim, .keep = attrs_int(attrs, "keep", 0, 0) != 0, .elements = 1};
    p.reduced[axis] = true;
    if (in->ndim) p.elements = in->shape[axis];
    if (attrs_int(attrs, "last", 0, 0) && p.elements > 0 && in->ndim) {
        put_last_arg(out, &p, axis, def->name[3] == 'M' && def->name[4] == 'a');
        return SOL_OK;
    }
    return put_reduction(arena_ctx(a), def, &p, attrs, out);
}

/* -- running reductions: y at a step depends on y at the previous step */

/* "y[A B-1 C]" with the axis moved */
static void put_moved(struct text *out, char name, int ndim, int axis, int by)
{
    text_put(out, "%c[", name);
    for (int d = 0; d < ndim; d++) {
        text_put(out, " %s", ivar(d));
        if (d == axis && by) text_put(out, "%+d", by);
    }
    text_put(out, "]");
}

BUILDER(build_scan)
{
    (void)nin;
    static const struct {
        const char *name, *start, *join; /* join: $ the result so far, @ the new element */
    } scans[] = {
        {"CumSum", "0", "$ + @"},
        {"CumProd", "1", "$ * @"},
        {"CumMax", "(-inf)", "where(@>=$ or @!=@, @, $)"}, /* of equals the later one, as PyTorch */
        {"CumMin", "inf", "where(@<=$ or @!=@, @, $)"},
        {"LogCumSumExp", "(-inf)", "logaddexp($, @)"},
    };
    int axis, k = 0, n = in->ndim;
    TRY(one_axis(a, def, in, attrs, &axis));
    while (strcmp(scans[k].name, def->name) != 0) k++;
    bool exclusive = attrs_int(attrs, "exclusive", 0, 0) != 0;
    int step = attrs_int(attrs, "reverse", 0, 0) ? 1 : -1;
    put_moved(out, 'x', n, -1, 0);
    text_put(out, " -> ");
    put_moved(out, 'y', n, -1, 0);
    text_put(out, " | | | ");
    put_moved(out, 'y', n, -1, 0);
    text_put(out, " = ");
    if (n == 0) {
        text_put(out, "%s", exclusive ? scans[k].start : "x[]");
        return SOL_OK;
    }
    for (const char *s = scans[k].join; *s; s++) {
        if (*s != '$' && *s != '@') {
            text_add(out, s, 1);
            continue;
        }
        put_moved(out, *s == '$' ? 'y' : 'x', n, axis, *s == '$' || exclusive ? step : 0);
        if (*s == '$' || exclusive) text_put(out, ":%s", scans[k].start);
    }
    return SOL_OK;
}

/* -- softmax */

/* How the elements of x, and what is kept of them, are written: "x[A B]" and "[A]". */
struct softmax {
    struct parts parts;
    const char *x, *kept, *sizes;
};

static sol_status softmax_of(struct arena *a, const struct layer_def *def, const struct opdef_input *in,
                             const struct attrs *attrs, struct softmax *out_s)
{
    struct text x = text_new(a), kept = text_new(a);
    int axis;
    *out_s = (struct softmax){.parts = {.ndim = in->ndim}, .sizes = in->ndim ? "" : " #A=1;"};
    TRY(one_axis(a, def, in, attrs, &axis));
    if (in->ndim) out_s->parts.reduced[axis] = true;
    put_input(&x, &out_s->parts);
    put_kept(&kept, &out_s->parts, false);
    out_s->x = x.at;
    out_s->kept = kept.at;
    return SOL_OK;
}

BUILDER(build_softmax)
{
    (void)nin;
    struct softmax s;
    TRY(softmax_of(a, def, in, attrs, &s));
    text_put(out, "%s -> y%s |%s | | (m,z)%s = softsum[", s.x, s.x + 1, s.sizes, s.kept);
    put_reduced(out, &s.parts);
    text_put(out, "] %s; y%s = ", s.x, s.x + 1);
    if (def->name[0] == 'S')
        text_put(out, "exp(%s - m%s) / z%s", s.x, s.kept, s.kept);
    else
        text_put(out, "%s - m%s - log(z%s)", s.x, s.kept, s.kept);
    return SOL_OK;
}

/* From the result x: x (d - sum x d), of the logarithm d - exp(x) sum d. */
BUILDER(build_softmax_grad)
{
    (void)nin;
    struct softmax s;
    TRY(softmax_of(a, def, in, attrs, &s));
    const bool log = attrs_int(attrs, "log", 0, 0) != 0;
    const char *at = s.x + 1;
    text_put(out, "%s d%s -> y%s |%s | | s%s = sum[", s.x, at, at, s.sizes, s.kept);
    put_reduced(out, &s.parts);
    if (log)
        text_put(out, "] d%s; y%s = d%s - exp(%s) * s%s", at, at, at, s.x, s.kept);
    else
        text_put(out, "] d%s * %s; y%s = %s * (d%s - s%s)", at, s.x, at, s.x, at, s.kept);
    return SOL_OK;
}
