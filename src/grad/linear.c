/* Linear algebra layers: their gradients consist of products, triangles and solutions, as layers. The formulas are
 * known (M. Giles: An extended collection of matrix derivative results, 2008; M. Seeger et al.: Auto-differentiating
 * linear algebra, 2017). Each rule gives its formula, with x' for the transpose and dx for the gradient of x. A NULL
 * tensor is zero. */
#include <string.h>

#include "grad/grad.h"

typedef struct sol_tensor tensor;

/* -- formulas as layers; the first error stays in the call */

static struct opdef_attr whole(struct rule_call *c, const char *name, int64_t v)
{
    int64_t *ints = arena_memdup(c->g->arena, &v, sizeof v);
    return (struct opdef_attr){.name = name, .kind = ATTR_INT, .n = -1, .ints = ints};
}

static struct sol_layer *layer(struct rule_call *c, const char *kind, int nin, tensor *const *in, int nattr,
                               struct opdef_attr *at)
{
    struct sol_layer *l = NULL;
    if (!c->status)
        c->status = graph_add(
            c->g, NULL, &(struct new_layer){kind, nin, in, &(struct attrs){nattr, at}, c->l->name, c->l->where}, &l);
    return c->status ? NULL : l;
}

static tensor *one(struct rule_call *c, const char *kind, tensor *x, int nattr, struct opdef_attr *at)
{
    struct sol_layer *l = x ? layer(c, kind, 1, &x, nattr, at) : NULL;
    return l ? l->out[0] : NULL;
}

static tensor *two(struct rule_call *c, const char *kind, tensor *x, tensor *y, int nattr, struct opdef_attr *at)
{
    struct sol_layer *l = x && y ? layer(c, kind, 2, (tensor *[]){x, y}, nattr, at) : NULL;
    return l ? l->out[0] : NULL;
}

static tensor *product(struct rule_call *c, tensor *x, tensor *y)
{
    return two(c, "MatMul", x, y, 0, NULL);
}

static tensor *times(struct rule_call *c, tensor *x, tensor *y)
{
    return two(c, "mul", x, y, 0, NULL);
}

static tensor *over(struct rule_call *c, tensor *x, tensor *y)
{
    return two(c, "div", x, y, 0, NULL);
}

static tensor *negative(struct rule_call *c, tensor *x)
{
    return one(c, "neg", x, 0, NULL);
}

static tensor *plus(struct rule_call *c, tensor *x, tensor *y)
{
    return !x ? y : !y ? x : two(c, "add", x, y, 0, NULL);
}

static tensor *minus(struct rule_call *c, tensor *x, tensor *y)
{
    return !x ? negative(c, y) : !y ? x : two(c, "sub", x, y, 0, NULL);
}

static tensor *number(struct rule_call *c, const tensor *like, double v)
{
    tensor *t = NULL;
    if (!c->status) c->status = graph_number(c->g, v, (enum sol_dtype)like->dtype, &t);
    return t;
}

/* x' */
static tensor *turned(struct rule_call *c, tensor *x)
{
    if (!x) return NULL;
    int64_t *perm = NEW_ARRAY(c->g->arena, int64_t, x->ndim);
    for (int d = 0; d < x->ndim; d++) perm[d] = d < x->ndim - 2 ? d : 2 * x->ndim - 3 - d;
    return one(c, "Permute", x, 1, &(struct opdef_attr){.name = "perm", .kind = ATTR_INT, .n = x->ndim, .ints = perm});
}

/* The part of x on and below (above) diagonal k. */
static tensor *lower(struct rule_call *c, tensor *x, int k)
{
    return one(c, "Tril", x, 1, (struct opdef_attr[]){whole(c, "k", k)});
}

static tensor *upper(struct rule_call *c, tensor *x, int k)
{
    return one(c, "Triu", x, 1, (struct opdef_attr[]){whole(c, "k", k)});
}

static tensor *diagonal(struct rule_call *c, tensor *x)
{
    return one(c, "Diagonal", x, 2, (struct opdef_attr[]){whole(c, "axis1", -2), whole(c, "axis2", -1)});
}

static tensor *diagonal_matrix(struct rule_call *c, tensor *x)
{
    return one(c, "DiagEmbed", x, 0, NULL);
}

/* x[A.. n] as x[A.. n 1] (or, flat, as x[A.. 1 n]). */
static tensor *beside(struct rule_call *c, tensor *x, bool flat)
{
    int64_t shape[SOL_MAX_DIMS + 1] = {0};
    tensor *t = NULL;
    if (!x || c->status) return NULL;
    for (int d = 0; d < x->ndim; d++) shape[d] = x->dim[d].size;
    shape[x->ndim] = 1;
    if (flat) {
        shape[x->ndim] = shape[x->ndim - 1];
        shape[x->ndim - 1] = 1;
    }
    c->status = grad_reshape(c->g, c->l, x, x->ndim + 1, shape, &t);
    return t;
}

/* 1 on the diagonal of m x n, of the type of `like`. */
static tensor *identity(struct rule_call *c, const tensor *like, int64_t m, int64_t n)
{
    struct opdef_attr at[] = {whole(c, "n", m),
                              whole(c, "m", n),
                              {.name = "to", .kind = ATTR_TEXT, .n = -1, .text = dtype_def(like->dtype)->name}};
    struct sol_layer *eye = layer(c, "Eye", 0, NULL, 3, at);
    return eye ? eye->out[0] : NULL;
}

/* x[A..] times the n x n identity. */
static tensor *times_identity(struct rule_call *c, tensor *x, int64_t n)
{
    if (!x) return NULL;
    return times(c, beside(c, beside(c, x, false), false), identity(c, x, n, n));
}

/* from:end along the last axis (1) or the one before it (2). */
static tensor *part(struct rule_call *c, tensor *x, int axis, int64_t from, int64_t end)
{
    if (!x || (from == 0 && end == x->dim[x->ndim - axis].size)) return x;
    struct opdef_attr at[] = {whole(c, "axes", -axis), whole(c, "start", from), whole(c, "end", end)};
    for (int i = 0; i < COUNT_OF(at); i++) at[i].n = 1;
    return one(c, "Slice", x, 3, at);
}

static tensor *joined(struct rule_call *c, tensor *x, tensor *y, int axis)
{
    return two(c, "Concat", x, y, 1, (struct opdef_attr[]){whole(c, "axis", -axis)});
}

enum { UPPER = 1, UNIT = 2 };

/* a^-1 b for a triangular a. */
static tensor *solved(struct rule_call *c, tensor *a, tensor *b, int flags)
{
    struct opdef_attr at[] = {whole(c, "upper", flags & UPPER), whole(c, "unit", (flags & UNIT) != 0)};
    return two(c, "SolveTriangular", a, b, 2, at);
}

/* b a^-1, that is (a'^-1 b')'. */
static tensor *solved_right(struct rule_call *c, tensor *b, tensor *a, int flags)
{
    return b ? turned(c, solved(c, turned(c, a), turned(c, b), flags ^ UPPER)) : NULL;
}

/* a^-1 b, or a'^-1 b, from the LU factors of a. */
static tensor *solved_lu(struct rule_call *c, tensor *lu, tensor *p, tensor *b, int adjoint)
{
    struct opdef_attr at = whole(c, "adjoint", adjoint);
    struct sol_layer *l = lu && b ? layer(c, "LUSolve", 3, (tensor *[]){lu, p, b}, 1, &at) : NULL;
    return l ? l->out[0] : NULL;
}

static int64_t columns(const tensor *t)
{
    return t->dim[t->ndim - 1].size;
}

static int64_t rows(const tensor *t)
{
    return t->dim[t->ndim - 2].size;
}

/* x with 1 on its diagonal, where it is 0 */
static tensor *with_ones(struct rule_call *c, tensor *x)
{
    return x ? plus(c, x, identity(c, x, rows(x), columns(x))) : NULL;
}

static sol_status reject_shape(struct rule_call *c, int64_t m, int64_t n)
{
    return ctx_fail(
        c->g->ctx, SOL_ERR_UNSUPPORTED,
        "gradient of layer '%s' (%s)%s%s: a matrix is %lld x %lld; for sizes that vary it must be square, or "
        "it must be known which one is smaller",
        c->l->name, c->l->def->name, *c->l->where ? " at " : "", c->l->where, (long long)m, (long long)n);
}

/* The smaller one of two sizes. */
static sol_status smaller(struct rule_call *c, int64_t m, int64_t n, int64_t *out_k)
{
    *out_k = size_le(m, n) ? m : n;
    return size_le(*out_k, m) ? SOL_OK : reject_shape(c, m, n);
}

/* Zeros of the shape of x, but `size` along the last axis (1) or the one before (2). */
static tensor *zeros(struct rule_call *c, const tensor *x, int axis, int64_t size)
{
    tensor *t = NULL;
    int64_t *shape = NEW_ARRAY(c->g->arena, int64_t, x->ndim + 1);
    for (int d = 0; d < x->ndim; d++) shape[d] = d == x->ndim - axis ? size : x->dim[d].size;
    if (!c->status) c->status = grad_zeros(c->g, c->l->name, (enum sol_dtype)x->dtype, x->ndim, shape, &t);
    return t;
}

/* x, filled with zeros up to `size` along an axis. */
static tensor *filled(struct rule_call *c, tensor *x, int axis, int64_t size)
{
    const int64_t missing = x ? size_sub(size, x->dim[x->ndim - axis].size) : 0;
    return missing ? joined(c, x, zeros(c, x, axis, missing), axis) : x;
}

/* The sum of each row. */
static tensor *row_sums(struct rule_call *c, tensor *x)
{
    struct opdef_attr axes = whole(c, "axes", -1);
    axes.n = 1;
    return one(c, "Sum", x, 1, &axes);
}

/* -- solutions and determinants */

/* db = a'^-1 dx, da = -db x' */
static sol_status rule_solve(struct rule_call *c)
{
    tensor *db = solved_lu(c, c->l->out[1], c->l->out[2], c->d[0], 1);
    if (c->want[0]) c->out_d[0] = negative(c, product(c, db, turned(c, c->l->out[0])));
    c->out_d[1] = db;
    return c->status;
}

/* da = -y' dy y' */
static sol_status rule_inverse(struct rule_call *c)
{
    tensor *yt = turned(c, c->l->out[0]);
    c->out_d[0] = negative(c, product(c, yt, product(c, c->d[0], yt)));
    return c->status;
}

/* 1 for an even number of exchanges p, else -1 */
static tensor *parity(struct rule_call *c, tensor *p, const tensor *like)
{
    struct opdef_attr at[] = {whole(c, "n", columns(p)),
                              {.name = "start", .kind = ATTR_REAL, .n = -1, .reals = (double[]){1.0}},
                              {.name = "to", .kind = ATTR_TEXT, .n = -1, .text = "i32"}};
    struct opdef_attr to = {.name = "to", .kind = ATTR_TEXT, .n = -1, .text = dtype_def(like->dtype)->name};
    struct opdef_attr axes = whole(c, "axes", -1);
    axes.n = 1;
    struct sol_layer *places = layer(c, "Range", 0, NULL, 3, at);
    tensor *moved = places ? two(c, "ne", p, places->out[0], 0, NULL) : NULL;
    tensor *sign = minus(c, number(c, like, 1), times(c, one(c, "Cast", moved, 1, &to), number(c, like, 2)));
    return one(c, "Prod", sign, 1, &axes);
}

/* da = det a'^-1 dd. A zero pivot counts as a very small one, also in the determinant. The result is right if the rank
 * is one less than the size. */
static sol_status rule_det(struct rule_call *c)
{
    tensor *lu = c->l->out[1], *p = c->l->out[2], *zero = number(c, lu, 0);
    tensor *tiny = number(c, lu, lu->dtype == SOL_F32 ? 1.1920929e-7 : 2.220446049250313e-16);
    tensor *pivots = diagonal(c, lu), *is_zero = pivots && zero ? two(c, "eq", pivots, zero, 0, NULL) : NULL;
    struct opdef_attr axes = whole(c, "axes", -1);
    axes.n = 1;
    struct sol_layer *more = is_zero && tiny ? layer(c, "where", 3, (tensor *[]){is_zero, tiny, zero}, 0, NULL) : NULL;
    if (!more) return c->status;
    tensor *det = times(c, one(c, "Prod", plus(c, pivots, more->out[0]), 1, &axes), parity(c, p, lu));
    lu = plus(c, lu, diagonal_matrix(c, more->out[0]));
    c->out_d[0] = solved_lu(c, lu, p, times_identity(c, times(c, c->d[0], det), columns(lu)), 1);
    return c->status;
}

/* da = a'^-1 dlog; the sign has no gradient */
static sol_status rule_slogdet(struct rule_call *c)
{
    tensor *lu = c->l->out[2];
    c->out_d[0] = solved_lu(c, lu, c->l->out[3], times_identity(c, c->d[1], columns(lu)), 1);
    return c->status;
}

/* The exchanges p of rows, applied to x, or (`back`) undone: a system with l = u = 1. `lu` has the size. */
static tensor *permuted(struct rule_call *c, const tensor *lu, tensor *p, tensor *x, bool back)
{
    if (!x || c->status) return NULL;
    int64_t shape[SOL_MAX_DIMS];
    tensor *square = zeros(c, lu, 1, rows(lu));
    tensor *eye = identity(c, lu, rows(lu), rows(lu));
    if (!eye) return NULL;
    const int64_t missing = size_sub(rows(lu), columns(p));
    if (missing) { /* rows that were not pivots keep their places */
        if (size_varies(columns(p))) c->status = reject_shape(c, rows(lu), columns(p));
        struct opdef_attr range[] = {
            whole(c, "n", missing),
            {.name = "start", .kind = ATTR_REAL, .n = -1, .reals = (double[]){(double)columns(p) + 1}},
            {.name = "to", .kind = ATTR_TEXT, .n = -1, .text = "i32"}};
        struct sol_layer *rest = layer(c, "Range", 0, NULL, 3, range);
        for (int d = 0; d < p->ndim; d++) shape[d] = d == p->ndim - 1 ? missing : p->dim[d].size;
        struct opdef_attr to = {
            .name = "shape", .kind = ATTR_INT, .n = p->ndim, .ints = arena_memdup(c->g->arena, shape, sizeof shape)};
        p = joined(c, p, rest ? one(c, "Expand", rest->out[0], 1, &to) : NULL, 1);
    }
    return solved_lu(c, plus(c, square, eye), p, x, back);
}

/* With l and u as they are, p a = l u:
 *   square or wide, u = [u1 u2]: da1 = p' l'^-1 (tril(l'dl - du2 u2', -1) + triu(du1 u1')) u1'^-1, da2 = p' l'^-1 du2
 *   tall, l = [l1; l2]:          da1 = p' l1'^-1 (tril(l1'dl1, -1) + triu(du u' - l2'dl2)) u'^-1,  da2 = p' dl2 u'^-1
 */
static sol_status rule_lu(struct rule_call *c)
{
    tensor *lu = c->l->out[0], *d = c->d[0];
    const int64_t m = rows(lu), n = columns(lu);
    int64_t k;
    TRY(smaller(c, m, n, &k));
    tensor *square = part(c, part(c, lu, 2, 0, k), 1, 0, k), *ds = part(c, part(c, d, 2, 0, k), 1, 0, k);
    tensor *l1 = lower(c, square, -1), *u1 = upper(c, square, 0), *dl1 = lower(c, ds, -1), *du1 = upper(c, ds, 0);
    tensor *low = plus(c, dl1, product(c, turned(c, l1), dl1)); /* (1 + l1)' dl1 */
    tensor *up = product(c, du1, turned(c, u1)), *l1t = turned(c, square), *rest = NULL;
    if (n != k) {
        rest = part(c, d, 1, k, n);
        low = minus(c, low, product(c, rest, turned(c, part(c, lu, 1, k, n))));
    }
    if (m != k) {
        rest = part(c, d, 2, k, m);
        up = minus(c, up, product(c, turned(c, part(c, lu, 2, k, m)), rest));
    }
    tensor *inner = plus(c, lower(c, low, -1), upper(c, up, 0));
    tensor *u1t = turned(c, u1);
    tensor *da = solved_right(c, solved(c, l1t, inner, UPPER | UNIT), u1t, 0);
    if (n != k) da = joined(c, da, solved(c, l1t, rest, UPPER | UNIT), 1);
    if (m != k) da = joined(c, da, solved_right(c, rest, u1t, 0), 2);
    c->out_d[0] = permuted(c, lu, c->l->out[1], da, true);
    return c->status;
}

/* db = a'^-1 dx, and
 *   g = u'^-1 dx x', du = -triu(g), dl = -tril(l'^-1 g u', -1)
 *   adjoint: y = p x, dw = l^-1 p dx, du = -triu(l' y db'), dl = -tril(y dw', -1) */
static sol_status rule_lu_solve(struct rule_call *c)
{
    const bool adjoint = attrs_int(&c->l->attrs, "adjoint", 0, 0) != 0;
    tensor *lu = c->l->in[0], *p = c->l->in[1], *x = c->l->out[0], *dx = c->d[0], *du, *dl;
    c->out_d[2] = solved_lu(c, lu, p, dx, !adjoint);
    if (!c->want[0]) return c->status;
    tensor *lut = turned(c, lu);
    if (adjoint) {
        tensor *y = permuted(c, lu, p, x, false);
        tensor *dw = solved(c, lu, permuted(c, lu, p, dx, false), UNIT);
        tensor *lt = plus(c, product(c, upper(c, lut, 1), y), y);
        du = product(c, lt, turned(c, c->out_d[2]));
        dl = product(c, y, turned(c, dw));
    } else {
        du = product(c, solved(c, lut, dx, 0), turned(c, x));
        dl = product(c, solved(c, lut, du, UPPER | UNIT), lower(c, lut, 0));
    }
    c->out_d[0] = negative(c, plus(c, upper(c, du, 0), lower(c, dl, -1)));
    return c->status;
}

/* -- triangular systems, Cholesky, QR */

/* db = a'^-1 dx, da = -db x' where a is read */
static sol_status rule_triangular(struct rule_call *c)
{
    const bool up = attrs_int(&c->l->attrs, "upper", 0, 0) != 0, unit = attrs_int(&c->l->attrs, "unit", 0, 0) != 0;
    tensor *db = solved(c, turned(c, c->l->in[0]), c->d[0], (up ? 0 : UPPER) | (unit ? UNIT : 0));
    c->out_d[1] = db;
    if (!c->want[0]) return c->status;
    tensor *da = negative(c, product(c, db, turned(c, c->l->out[0])));
    c->out_d[0] = up ? upper(c, da, unit) : lower(c, da, -unit);
    return c->status;
}

/* x with half its diagonal */
static tensor *halved(struct rule_call *c, tensor *x)
{
    return minus(c, x, diagonal_matrix(c, times(c, diagonal(c, x), x ? number(c, x, 0.5) : NULL)));
}

/* da = (s + s') / 2, s = l'^-1 f l^-1, f = l'dl below its diagonal, of which half */
static sol_status rule_cholesky(struct rule_call *c)
{
    const bool up = attrs_int(&c->l->attrs, "upper", 0, 0) != 0;
    tensor *l = up ? turned(c, c->l->out[0]) : c->l->out[0], *dl = up ? turned(c, c->d[0]) : c->d[0];
    tensor *lt = turned(c, l), *f = halved(c, lower(c, product(c, lt, dl), 0));
    tensor *s = solved_right(c, solved(c, lt, f, UPPER), l, 0);
    c->out_d[0] = s ? times(c, plus(c, s, turned(c, s)), number(c, s, 0.5)) : NULL;
    return c->status;
}

/* With f = triu(dr r' - q'dq), da = (dq + q (f + f' with half its diagonal)) r'^-1. Columns of a that are not among q's
 * come of r2 = q'a2: da2 = q dr2, and dq has a2 dr2' more. */
static sol_status rule_qr(struct rule_call *c)
{
    tensor *a = c->l->in[0], *q = c->l->out[0], *r = c->l->out[1], *dq = c->d[0], *dr = c->d[1], *da2 = NULL;
    const int64_t m = rows(a), n = columns(a);
    int64_t k;
    TRY(smaller(c, m, n, &k));
    if (columns(q) != k)
        return ctx_fail(
            c->g->ctx, SOL_ERR_UNSUPPORTED,
            "gradient of layer '%s' (QR)%s%s: there is none of columns of Q beyond those of the matrix; use "
            "mode='reduced'",
            c->l->name, *c->l->where ? " at " : "", c->l->where);
    if (n != k) {
        tensor *dr2 = part(c, dr, 1, m, n);
        dq = plus(c, dq, product(c, part(c, a, 1, m, n), turned(c, dr2)));
        da2 = product(c, q, dr2);
        r = part(c, r, 1, 0, m);
        dr = part(c, dr, 1, 0, m);
        if (!da2) da2 = zeros(c, a, 1, size_sub(n, m)); /* as nothing comes of R */
    }
    tensor *f = upper(c, minus(c, product(c, dr, turned(c, r)), product(c, turned(c, q), dq)), 0);
    f = halved(c, plus(c, f, turned(c, f)));
    tensor *da = solved_right(c, plus(c, dq, product(c, q, f)), turned(c, r), 0);
    c->out_d[0] = n != k ? joined(c, da, da2, 1) : da;
    return c->status;
}

/* Reflections in a row, of which 1 - t[i] v[i] v[i]' is one, are 1 - v w^-1 t v', w = 1 + t s, s = triu(v'v, 1), where
 * t is diag(tau) and v has 1 on its diagonal (C. Puglisi: Modification of the Householder method based on the compact
 * WY representation, 1992). With e for the columns of the identity that q has, x = w^-1 t v'e, z = w'^-1 v'dq:
 *   dw = triu(z x', 1), ds = t dw, dv = v (ds + ds') - dq x' - e z't
 *   dtau[i] = dw[i] s[i]' - z[i] (v'e)[i]' */
static sol_status rule_householder(struct rule_call *c)
{
    tensor *a = c->l->in[0], *tau = c->l->in[1], *g = c->d[0];
    const int64_t m = rows(a), k = columns(tau), n = columns(c->l->out[0]);
    tensor *v = with_ones(c, lower(c, part(c, a, 1, 0, k), -1)), *vt = turned(c, v), *t = beside(c, tau, false);
    tensor *ve = part(c, vt, 1, 0, n), *s = upper(c, product(c, vt, v), 1), *w = times(c, t, s);
    tensor *z = solved(c, turned(c, w), product(c, vt, g), UNIT);
    tensor *x = solved(c, w, times(c, t, ve), UPPER | UNIT);
    tensor *xt = turned(c, x), *dw = upper(c, product(c, z, xt), 1);
    if (c->want[0]) {
        tensor *ds = times(c, t, dw), *along = product(c, v, plus(c, ds, turned(c, ds)));
        tensor *dv = minus(c, along, plus(c, product(c, g, xt), filled(c, turned(c, times(c, t, z)), 2, m)));
        c->out_d[0] = filled(c, lower(c, dv, -1), 1, columns(a));
    }
    if (c->want[1]) c->out_d[1] = minus(c, row_sums(c, times(c, dw, s)), row_sums(c, times(c, z, ve)));
    return c->status;
}

/* -- eigenvalues, singular values */

/* The layer again with its vectors, if only the values were requested. */
static struct sol_layer *with_vectors(struct rule_call *c)
{
    struct opdef_attr at = whole(c, "upper", attrs_int(&c->l->attrs, "upper", 0, 0));
    if (!attrs_int(&c->l->attrs, "values", 0, 0)) return c->l;
    return layer(c, c->l->def->name, 1, c->l->in, !strcmp(c->l->def->name, "Eigh"), &at);
}

/* x - x' */
static tensor *skew(struct rule_call *c, tensor *x)
{
    return minus(c, x, turned(c, x));
}

/* da = v (diag(dw) + skew(v'dv) / 2e) v', e[i j] = w[j] - w[i]: symmetric, as a is */
static sol_status rule_eigh(struct rule_call *c)
{
    const struct sol_layer *l = with_vectors(c);
    if (!l) return c->status;
    tensor *w = l->out[0], *v = l->out[1], *vt = turned(c, v), *inner = diagonal_matrix(c, c->d[0]);
    if (l == c->l && c->d[1]) {
        tensor *e = with_ones(c, minus(c, beside(c, w, true), beside(c, w, false)));
        tensor *part_of_v = over(c, skew(c, product(c, vt, c->d[1])), e);
        inner = plus(c, inner, times(c, part_of_v, number(c, w, 0.5)));
    }
    c->out_d[0] = product(c, v, product(c, inner, vt));
    return c->status;
}

/* a = u diag(s) v, e[i j] = s[j]^2 - s[i]^2:
 *   da = u (diag(ds) + skew(u'du) / e s + s skew(v dv') / e) v + (1 - u u') du / s v + u / s dv (1 - v'v) */
static sol_status rule_svd(struct rule_call *c)
{
    const struct sol_layer *l = with_vectors(c);
    if (!l) return c->status;
    const tensor *a = l->in[0];
    const bool alone = l != c->l;
    tensor *u = l->out[0], *s = l->out[1], *v = l->out[2];
    tensor *du = alone ? NULL : c->d[0], *ds = c->d[alone ? 0 : 1], *dv = alone ? NULL : c->d[2];
    const int64_t m = rows(a), n = columns(a);
    int64_t k;
    TRY(smaller(c, m, n, &k));
    if ((du && columns(u) != k) || (dv && rows(v) != k))
        return ctx_fail(
            c->g->ctx, SOL_ERR_UNSUPPORTED,
            "gradient of layer '%s' (SVD)%s%s: there is none of singular vectors beyond the singular values; "
            "use full_matrices=False",
            c->l->name, *c->l->where ? " at " : "", c->l->where);
    u = part(c, u, 1, 0, k);
    v = part(c, v, 2, 0, k);
    tensor *ut = turned(c, u), *vt = turned(c, v), *inner = diagonal_matrix(c, ds);
    tensor *along = beside(c, s, true), *down = beside(c, s, false), *da = NULL;
    if (du || dv) {
        tensor *e = with_ones(c, times(c, minus(c, along, down), plus(c, along, down)));
        inner = plus(c, inner, times(c, over(c, skew(c, product(c, ut, du)), e), along));
        inner = plus(c, inner, times(c, over(c, skew(c, product(c, v, turned(c, dv))), e), down));
    }
    if (inner) da = product(c, u, product(c, inner, v));
    if (du && m != k) {
        tensor *rest = over(c, minus(c, du, product(c, u, product(c, ut, du))), along);
        da = plus(c, da, product(c, rest, v));
    }
    if (dv && n != k) {
        tensor *rest = over(c, minus(c, dv, product(c, product(c, dv, vt), v)), down);
        da = plus(c, da, product(c, u, rest));
    }
    c->out_d[0] = da;
    return c->status;
}

/* -- functions of a matrix */

/* da = -p'dp p' + (1 - a p) dp'p p' + p'p dp'(1 - p a), the rank being constant (Golub, Pereyra 1973) */
static sol_status rule_pinv(struct rule_call *c)
{
    tensor *a = c->l->in[0], *p = c->l->out[0], *dp = c->d[0];
    tensor *pt = turned(c, p), *dpt = turned(c, dp);
    tensor *left = product(c, dpt, product(c, p, pt)), *right = product(c, product(c, pt, p), dpt);
    tensor *da = negative(c, product(c, pt, product(c, dp, pt)));
    da = plus(c, da, minus(c, left, product(c, a, product(c, p, left))));
    c->out_d[0] = plus(c, da, minus(c, right, product(c, product(c, right, p), a)));
    return c->status;
}

/* The corner of exp([a' dy; 0 a']). */
static sol_status rule_matrix_exp(struct rule_call *c)
{
    tensor *at = turned(c, c->l->in[0]), *dy = c->d[0];
    if (!at) return c->status;
    const int64_t n = columns(at);
    tensor *zero = minus(c, at, at); /* propagates NaN and infinities */
    tensor *all = joined(c, joined(c, at, dy, 1), joined(c, zero, at, 1), 2);
    c->out_d[0] = part(c, part(c, one(c, "MatrixExp", all, 0, NULL), 2, 0, n), 1, n, size_mul(2, n));
    return c->status;
}

const struct rule grad_linear_rules[] = {
    {"Solve", 3, 1, rule_solve},
    {"Inverse", 1, 1, rule_inverse},
    {"Det", 1, 1, rule_det},
    {"SlogDet", 1, 3, rule_slogdet},
    {"LU", 1, 1, rule_lu},
    {"LUSolve", 5, 1, rule_lu_solve},
    {"SolveTriangular", 3, 1, rule_triangular},
    {"Cholesky", 1, 1, rule_cholesky},
    {"QR", 1, 3, rule_qr},
    {"HouseholderProduct", 3, 1, rule_householder},
    {"Eigh", 1, 3, rule_eigh},
    {"SVD", 1, 7, rule_svd},
    {"Pinv", 1, 1, rule_pinv},
    {"MatrixExp", 1, 1, rule_matrix_exp},
    {0},
};
