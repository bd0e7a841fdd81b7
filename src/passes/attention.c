/* Finds attention that a model writes out, softmax(q k' ..) v, and makes one layer of it, whose weights need not lie in
 * memory as a whole. Between the product and the softmax scores may be scaled, masked by a condition, and added to. The
 * products are MatMul or Einsum layers, with their dimensions in any order, and scores may be transposed on the way, as
 * vmap of JAX does it. Masks of windows are applied to scores
 * whose leading dimensions are regrouped, [images * windows, ..] as [images, windows, ..], and back: the layer then has
 * these. */
#include "passes/passes.h"

#include <math.h>
#include <string.h>

/* A product of two tensors. A letter stands for a dimension: of both factors, and of the result. */
struct product {
    struct sol_layer *layer;
    const char *of[3];
};
/* What stands beside scores: a factor, a condition, what is added. */
struct beside {
    struct sol_tensor *t; /* NULL: nothing */
    bool regrouped;       /* beside scores with regrouped dimensions */
    int moves;            /* how many Permutes of the scores follow */
};
enum { MOST_ADDED = 4, MOST_MOVES = 4 };
struct written {
    struct product scores, values;
    int q, k, p, v; /* which factors of the products these are; p: the weights */
    /* Permutes of the scores, the last one first, and the letters of the scores behind each; the product has those of
     * order[nmoves]. */
    const struct sol_layer *move[MOST_MOVES];
    int nmoves;
    const char *order[MOST_MOVES + 1];
    const char *lead;       /* the letters order[0] but for the last two */
    const char *value_lead; /* the same in the letters of `values` */
    char t, s, d, value_t, value_s, e;
    double scale;
    struct beside by; /* a factor that keys do not have */
    struct beside added[MOST_ADDED];
    int nadded;
    struct beside cond; /* of a mask */
    bool keep;          /* scores stay where `cond` is this; the others are */
    double fill;
    bool safe; /* weights that are NaN become 0 */
    /* The layers that regroup the scores, and that undo it; NULL: there are none. While the scores are followed up from
     * the softmax, `split` is NULL in between. */
    struct sol_layer *split, *merge;
    int first, from, to; /* dimensions [first, first + from) of the scores are [first, first + to) of split's result */
};

static bool is_regrouped(const struct written *w)
{
    return w->merge && !w->split;
}

static bool has(const char *letters, char c)
{
    return c && strchr(letters, c);
}

/* Are these the letters of `lead`, or of its end, and the two others, in any order? */
static bool consists_of(const char *letters, const char *lead, char row, char column)
{
    size_t n = 0;
    for (const char *c = lead; *c; c++) n += has(letters, *c);
    return has(letters, row) && has(letters, column) && row != column && strlen(letters) == n + 2;
}

/* -- products */

static bool read_matmul(struct arena *a, const struct sol_layer *l, struct product *out)
{
    const int n = l->out[0]->ndim - 2;
    char lead[SOL_MAX_DIMS + 1] = "";
    if (l->in[0]->ndim < 2 || l->in[1]->ndim < 2) return false;
    for (int i = 0; i < n; i++) lead[i] = (char)('A' + i), lead[i + 1] = 0;
    out->of[0] = arena_printf(a, "%sxy", lead + n - (l->in[0]->ndim - 2));
    out->of[1] = arena_printf(a, "%syz", lead + n - (l->in[1]->ndim - 2));
    out->of[2] = arena_printf(a, "%sxz", lead);
    return true;
}

/* "abc,cd->abd": no letter twice in a tensor, no dots. */
static bool read_einsum(struct arena *a, const struct sol_layer *l, struct product *out)
{
    struct text part[3];
    int at = 0;
    for (int i = 0; i < 3; i++) part[i] = text_new(a);
    for (const char *c = attrs_text(&l->attrs, "eq", ""); *c; c++) {
        if (*c == ' ') continue;
        if (*c == ',' || *c == '-') {
            at++;
            c += *c == '-' && c[1] == '>';
            if (at > 2 || (*c == '>') != (at == 2)) return false;
        } else if (*c == '.' || (part[at].at && has(part[at].at, *c))) {
            return false;
        } else {
            text_put(&part[at], "%c", *c);
        }
    }
    for (int i = 0; i < 3; i++) out->of[i] = part[i].at ? part[i].at : "";
    return at == 2;
}

static bool read_product(struct arena *a, struct sol_layer *l, struct product *out)
{
    out->layer = l;
    if (is_kind(l, "MatMul")) return read_matmul(a, l, out);
    return is_kind(l, "Einsum") && l->nin == 2 && read_einsum(a, l, out);
}

/* -- the way from the weights up to the scores */

/* The layer that computes t, if nobody else reads t. */
static struct sol_layer *maker(const struct sol_tensor *t)
{
    return t->role == TENSOR_VALUE && tensor_uses(t) == 1 ? t->from : NULL;
}

static bool changes_nothing(const struct sol_layer *l)
{
    return is_kind(l, "Dropout") || (is_kind(l, "Cast") && l->in[0]->dtype == l->out[0]->dtype);
}

/* What was broadcast; `t` itself, if that has less than two dimensions. */
static struct sol_tensor *narrow(struct sol_tensor *t)
{
    struct sol_tensor *x = t;
    while (x->role == TENSOR_VALUE && is_kind(x->from, "Expand")) x = x->from->in[0];
    return x->ndim < 2 ? t : x;
}

static bool is_step(const struct sol_layer *l)
{
    static const char *const kinds[] = {"mul", "div", "add", "where", "Reshape", "Permute"};
    for (int i = 0; i < COUNT_OF(kinds); i++)
        if (is_kind(l, kinds[i])) return true;
    return changes_nothing(l);
}

enum { MOST_STEPS = 8 }; /* between the product and the softmax */

static bool reaches_product(const struct sol_tensor *t, int steps)
{
    const struct sol_layer *l = maker(t);
    if (!l || !steps) return false;
    if (is_kind(l, "MatMul") || is_kind(l, "Einsum")) return true;
    for (int i = 0; i < l->nin && is_step(l); i++)
        if (reaches_product(l->in[i], steps - 1)) return true;
    return false;
}

static bool see_factor(struct written *w, const struct sol_layer *l, int at, const bool *active)
{
    const bool divides = is_kind(l, "div");
    struct sol_tensor *by = l->in[1 - at];
    double v;
    if (divides && at) return false;
    if (known_scalar(by, &v)) {
        w->scale *= divides ? 1 / v : v;
        return true;
    }
    by = narrow(by);
    if (divides || w->by.t || by->dim[by->ndim - 1].size != 1 || (active && active[by->id])) return false;
    w->by = (struct beside){by, is_regrouped(w), w->nmoves};
    return true;
}

static bool see_sum(struct written *w, struct sol_layer *l, int at, const bool *active)
{
    struct sol_tensor *t = narrow(l->in[1 - at]);
    if (w->nadded == MOST_ADDED || w->scale != 1 || w->by.t || (active && active[t->id])) return false;
    w->added[w->nadded++] = (struct beside){t, is_regrouped(w), w->nmoves};
    return true;
}

/* where(cond, fill, scores) or where(cond, scores, fill) */
static bool see_choice(struct written *w, const struct sol_layer *l, struct sol_tensor **out_scores)
{
    const bool second = known_scalar(l->in[1], &w->fill);
    if (w->cond.t || w->scale != 1 || w->by.t || (!second && !known_scalar(l->in[2], &w->fill))) return false;
    struct sol_tensor *c = l->in[0];
    while (c->role == TENSOR_VALUE &&
           (is_kind(c->from, "Expand") ||
            (is_kind(c->from, "Cast") && c->dtype != SOL_BOOL && c->from->in[0]->dtype == SOL_BOOL)))
        if (c->from->in[0]->ndim < 2)
            break;
        else
            c = c->from->in[0];
    w->cond = (struct beside){c, is_regrouped(w), w->nmoves};
    w->keep = !second;
    *out_scores = l->in[second ? 2 : 1];
    return true;
}

/* A layer that regroups leading dimensions of the scores, or undoes it. */
static bool see_regrouping(struct written *w, struct sol_layer *l)
{
    const struct sol_tensor *x = l->in[0], *y = l->out[0];
    if (w->split || x->ndim < 2 || y->ndim < 2) return false;
    for (int d = 1; d <= 2; d++)
        if (x->dim[x->ndim - d].size != y->dim[y->ndim - d].size) return false;
    if (!w->merge) {
        w->merge = l;
        return true;
    }
    w->split = l;
    const int nx = x->ndim - 2, ny = y->ndim - 2, n = MIN(nx, ny);
    int same = 0; /* at the end */
    for (w->first = 0; w->first < n && x->dim[w->first].size == y->dim[w->first].size;) w->first++;
    while (same < n - w->first && x->dim[nx - 1 - same].size == y->dim[ny - 1 - same].size) same++;
    w->from = nx - w->first - same;
    w->to = ny - w->first - same;
    return same_shape(y, w->merge->in[0]);
}

static bool see_move(struct written *w, const struct sol_layer *l)
{
    if (w->nmoves == MOST_MOVES || w->merge) return false;
    w->move[w->nmoves++] = l;
    return true;
}

/* Follows `t`, the softmax's input, to a product. `active`: what a gradient is wanted of; NULL: there is none. */
static bool find_scores(struct arena *a, struct written *w, struct sol_tensor *t, const bool *active)
{
    w->scale = 1;
    for (struct sol_layer *l; (l = maker(t));) {
        if (read_product(a, l, &w->scores)) return !is_regrouped(w) && w->scale != 0 && isfinite(w->scale);
        if (changes_nothing(l) || (is_kind(l, "Reshape") && !w->nmoves && see_regrouping(w, l)) ||
            (is_kind(l, "Permute") && see_move(w, l))) {
            t = l->in[0];
        } else if (is_kind(l, "where")) {
            if (!see_choice(w, l, &t)) return false;
        } else if (is_kind(l, "mul") || is_kind(l, "div") || is_kind(l, "add")) {
            const int at = !reaches_product(l->in[0], MOST_STEPS);
            if (!(is_kind(l, "add") ? see_sum(w, l, at, active) : see_factor(w, l, at, active))) return false;
            t = l->in[at];
        } else {
            return false;
        }
    }
    return false;
}

/* -- the letters */

/* The letters of the result of Permute l, of those of its operand. */
static const char *moved_letters(struct arena *a, const struct sol_layer *l, const char *of)
{
    struct text t = text_new(a);
    for (int d = 0; d < l->out[0]->ndim; d++) text_put(&t, "%c", of[attrs_int(&l->attrs, "perm", d, 0)]);
    return t.at;
}

/* The size of the scores along a letter. */
static int64_t score_size(const struct written *w, char letter)
{
    const char *of = w->scores.of[2];
    return w->scores.layer->out[0]->dim[strchr(of, letter) - of].size;
}

/* Has x, the softmax's input, as many elements as the product? No: scores were broadcast. */
static bool are_scores(const struct written *w, const struct sol_tensor *x)
{
    const char *of = w->order[0];
    bool all = (int)strlen(of) == x->ndim;
    for (int d = 0; all && d < x->ndim; d++) all &= score_size(w, of[d]) == x->dim[d].size;
    return all;
}

/* Queries and keys among the factors of the scores. */
static bool sort_scores(struct arena *a, struct written *w, const struct sol_tensor *x)
{
    w->order[w->nmoves] = w->scores.of[2];
    for (int i = w->nmoves; i > 0; i--) w->order[i - 1] = moved_letters(a, w->move[i - 1], w->order[i]);
    const char *out = w->order[0];
    const size_t n = strlen(out);
    if (n < 2 || !are_scores(w, x)) return false;
    w->s = out[n - 1];
    w->t = out[n - 2];
    w->lead = arena_printf(a, "%.*s", (int)n - 2, out);
    w->k = has(w->scores.of[1], w->s);
    w->q = !w->k;
    const char *q = w->scores.of[w->q], *k = w->scores.of[w->k];
    w->d = 0;
    for (const char *c = q; *c; c++)
        if (!has(out, *c)) {
            if (w->d) return false;
            w->d = *c;
        }
    return consists_of(q, w->lead, w->t, w->d) && consists_of(k, w->lead, w->s, w->d);
}

/* The letters of the product behind the weights, whose dimensions are the softmax's in the order of `moved` (NULL: the
 * same). */
static bool sort_values(struct arena *a, struct written *w, const struct sol_layer *moved)
{
    const char *p = w->values.of[w->p], *v = w->values.of[w->v], *out = w->values.of[2];
    const int n = (int)strlen(w->lead) + 2;
    char of[SOL_MAX_DIMS + 1] = "";
    if ((int)strlen(p) != n) return false;
    for (int i = 0; i < n; i++) of[moved ? attrs_int(&moved->attrs, "perm", i, 0) : i] = p[i];
    w->value_lead = arena_printf(a, "%.*s", n - 2, of);
    w->value_t = of[n - 2];
    w->value_s = of[n - 1];
    w->e = 0;
    for (const char *c = v; *c; c++)
        if (!has(p, *c)) {
            if (w->e) return false;
            w->e = *c;
        }
    return consists_of(v, w->value_lead, w->value_s, w->e) && consists_of(out, w->value_lead, w->value_t, w->e) &&
           (int)strlen(out) == n;
}

/* Are the leading dimensions of a factor the last ones of all? The ones that MatMul broadcasts are the first. */
static bool ends_lead(const struct sol_tensor *t, const char *letters, const char *lead)
{
    int skip = (int)strlen(lead) - (t->ndim - 2);
    for (; *lead; lead++, skip--)
        if (has(letters, *lead) == (skip > 0)) return false;
    return true;
}

static bool is_weight_of_model(const struct sol_tensor *t)
{
    while (t->role == TENSOR_VALUE && is_kind(t->from, "Permute")) t = t->from->in[0];
    return t->role != TENSOR_VALUE && t->role != TENSOR_INPUT;
}

/* where(isnan(weights), 0, weights), as ONNX files have it for PyTorch's attention: the softmax that makes the weights.
 * NULL: `l` is something else. A row of a softmax is NaN as a whole, or not at all. */
static struct sol_layer *safe_softmax(const struct sol_layer *l)
{
    const struct sol_tensor *weights;
    double zero;
    if (!is_kind(l, "where") || !known_scalar(l->in[1], &zero) || zero != 0) return NULL;
    weights = l->in[2];
    const struct sol_layer *test = maker(l->in[0]);
    if (test && is_kind(test, "Cast")) test = maker(test->in[0]);
    if (!test || !is_kind(test, "isnan") || test->in[0] != weights || tensor_uses(weights) != 2) return NULL;
    return weights->role == TENSOR_VALUE && is_kind(weights->from, "Softmax") ? weights->from : NULL;
}

/* The softmax that makes weights t, past what changes nothing, what permutes its result (NULL: nothing), and whether
 * weights that are NaN become 0. */
static struct sol_layer *softmax_of(const struct sol_tensor *t, const struct sol_layer **out_moved, bool *out_safe)
{
    *out_moved = NULL;
    *out_safe = false;
    for (struct sol_layer *l; (l = maker(t)); t = l->in[0]) {
        struct sol_layer *safe = safe_softmax(l);
        *out_safe = safe != NULL;
        if (safe || is_kind(l, "Softmax")) return safe ? safe : l;
        if (is_kind(l, "Permute") && !*out_moved)
            *out_moved = l;
        else if (!changes_nothing(l))
            return NULL;
    }
    return NULL;
}

static bool right_types(const struct written *w, enum sol_dtype t)
{
    const struct sol_tensor *all[] = {w->scores.layer->in[0], w->scores.layer->in[1], w->values.layer->in[w->v]};
    for (int i = 0; i < COUNT_OF(all); i++)
        if (all[i]->dtype != t) return false;
    for (int i = 0; i < w->nadded; i++)
        if (w->added[i].t->dtype != t) return false;
    return t == SOL_F32 || t == SOL_F64;
}

/* Have the values no more leading elements than the scores? */
static bool share_lead(const struct written *w)
{
    const struct sol_tensor *y = w->values.layer->out[0];
    for (int i = 0; w->value_lead[i]; i++)
        if (y->dim[strchr(w->values.of[2], w->value_lead[i]) - w->values.of[2]].size != score_size(w, w->lead[i]))
            return false;
    return true;
}

/* The letters of what stands beside the scores: those of the last dimensions. */
static const char *letters_beside(const struct written *w, const struct beside *b)
{
    const char *of = w->order[b->moves];
    return of + strlen(of) - (size_t)b->t->ndim;
}

/* The leading sizes, in regrouped scores, of a tensor with letters `of`, of which `lead` are the leading ones. False:
 * it has some of the dimensions that are regrouped, but not all. */
static bool regrouped_lead(const struct written *w, const struct sol_tensor *t, const char *of, const char *lead,
                           int64_t *shape)
{
    const struct sol_tensor *x = w->split->in[0], *y = w->split->out[0];
    bool none = true, all = true;
    int n = 0;
    for (int i = 0; lead[i]; i++) {
        const int64_t size = has(of, lead[i]) ? t->dim[strchr(of, lead[i]) - of].size : 1;
        const bool inside = i >= w->first && i < w->first + w->from;
        if (inside) none &= size == 1, all &= size == x->dim[i].size;
        if (i == w->first) n += w->to;
        if (!inside) shape[n++] = size;
    }
    for (int i = w->first; i < w->first + w->to; i++) shape[i] = all ? y->dim[i].size : 1;
    return none || all;
}

static bool regroups_all(const struct written *w)
{
    int64_t shape[SOL_MAX_DIMS];
    if (!w->split) return true;
    struct sol_tensor *const *in = w->scores.layer->in, *const v = w->values.layer->in[w->v];
    bool fits = regrouped_lead(w, in[w->q], w->scores.of[w->q], w->lead, shape) &&
                regrouped_lead(w, in[w->k], w->scores.of[w->k], w->lead, shape) &&
                regrouped_lead(w, v, w->values.of[w->v], w->value_lead, shape);
    struct beside all[MOST_ADDED + 2] = {w->by, w->cond};
    memcpy(all + 2, w->added, sizeof w->added);
    for (int i = 0; i < COUNT_OF(all); i++)
        fits &=
            !all[i].t || all[i].regrouped || regrouped_lead(w, all[i].t, letters_beside(w, &all[i]), w->lead, shape);
    return fits;
}

/* Is `l` a product of weights, its factor p, and values? */
static bool find(struct arena *a, struct sol_layer *l, int p, const bool *active, struct written *w)
{
    const struct sol_layer *moved;
    bool safe;
    const struct sol_layer *softmax = softmax_of(l->in[p], &moved, &safe);
    *w = (struct written){.p = p, .v = !p, .safe = safe};
    /* through the softmax behind weights that are NaN, gradients are NaN */
    if (!softmax || (safe && active) || !read_product(a, l, &w->values)) return false;
    struct sol_tensor *x = softmax->in[0];
    if (x->ndim < 2 || attrs_int(&softmax->attrs, "axis", 0, 0) != x->ndim - 1) return false;
    if (!find_scores(a, w, x, active)) return false;
    if (!sort_scores(a, w, x) || !sort_values(a, w, moved) || !share_lead(w)) return false;
    if (w->by.t && !has(letters_beside(w, &w->by) + w->by.t->ndim - 1, w->s)) return false;
    const struct sol_tensor *q = w->scores.layer->in[w->q], *k = w->scores.layer->in[w->k], *v = l->in[w->v];
    /* Both together are a mask that is added, through which gradients of rows without a key would go. */
    if (w->nadded && w->cond.t && (w->fill != -INFINITY || active)) return false;
    return right_types(w, (enum sol_dtype)x->dtype) && ends_lead(q, w->scores.of[w->q], w->lead) &&
           ends_lead(k, w->scores.of[w->k], w->lead) && ends_lead(v, w->values.of[w->v], w->value_lead) &&
           !is_weight_of_model(k) && !is_weight_of_model(v) && regroups_all(w);
}

/* -- the layer */

struct making {
    struct sol_graph *g;
    struct sol_layer *before; /* new layers stand in front of it, and have its names */
};

static sol_status make(const struct making *m, const char *kind, int nin, struct sol_tensor *const *in,
                       struct opdef_attr *attr, struct sol_tensor **out_t)
{
    const struct attrs attrs = {attr != NULL, attr};
    const struct new_layer n = {.kind = kind, .nin = nin, .in = in, .attrs = &attrs};
    return pass_add(m->g, m->before, m->before, &n, out_t);
}

/* x, whose dimensions have the letters `of`, with those of `wanted` (which may have more) in order. */
static sol_status permute(const struct making *m, struct sol_tensor *x, const char *of, const char *wanted,
                          struct sol_tensor **out_t)
{
    int64_t *perm = NEW_ARRAY(m->g->arena, int64_t, SOL_MAX_DIMS);
    int n = 0;
    bool same = true;
    for (const char *c = wanted; *c; c++) {
        if (!has(of, *c)) continue;
        perm[n] = strchr(of, *c) - of;
        same &= perm[n] == n;
        n++;
    }
    *out_t = x;
    if (same) return SOL_OK;
    return make(m, "Permute", 1, &x, &(struct opdef_attr){.name = "perm", .kind = ATTR_INT, .n = n, .ints = perm},
                out_t);
}

static sol_status reshape(const struct making *m, struct sol_tensor *x, int n, const int64_t *shape,
                          struct sol_tensor **out_t)
{
    int64_t *ints = arena_memdup(m->g->arena, shape, (size_t)n * sizeof *shape);
    return make(m, "Reshape", 1, &x, &(struct opdef_attr){.name = "shape", .kind = ATTR_INT, .n = n, .ints = ints},
                out_t);
}

/* x, with letters `of`, to regrouped dimensions, if scores have them. Its last two dimensions stay. */
static sol_status regroup(const struct making *m, const struct written *w, struct sol_tensor *x, const char *of,
                          const char *lead, struct sol_tensor **out_t)
{
    int64_t shape[SOL_MAX_DIMS];
    *out_t = x;
    if (!w->split) return SOL_OK;
    const int n = (int)strlen(lead) - w->from + w->to;
    regrouped_lead(w, x, of, lead, shape);
    for (int d = 0; d < 2; d++) shape[n + d] = x->dim[x->ndim - 2 + d].size;
    return reshape(m, x, n + 2, shape, out_t);
}

/* What stands beside scores, with dimensions in the order of the softmax. */
static sol_status move_beside(const struct making *m, const struct written *w, const struct beside *b,
                              struct sol_tensor **out_t)
{
    struct sol_tensor *x = b->t;
    const int n = (int)strlen(w->order[0]), missing = n - x->ndim;
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < n; d++) shape[d] = d < missing ? 1 : x->dim[d - missing].size;
    if (missing) TRY(reshape(m, x, n, shape, &x));
    return permute(m, x, w->order[b->moves], w->order[0], out_t);
}

/* The same with the dimensions that the layer has. */
static sol_status layer_beside(const struct making *m, const struct written *w, const struct beside *b,
                               struct sol_tensor **out_t)
{
    *out_t = b->t;
    if (b->regrouped) return SOL_OK;
    return b->moves ? move_beside(m, w, b, out_t) : regroup(m, w, b->t, letters_beside(w, b), w->lead, out_t);
}

/* A factor of a product, and the order of its dimensions in the layer: those of `lead` that it has, row, column. */
struct ordered {
    struct sol_tensor *t;
    const char *of, *lead;
    char row, column;
};

static sol_status factor(const struct making *m, const struct written *w, const struct ordered *f,
                         struct sol_tensor **out_t)
{
    struct text order = text_new(m->g->arena);
    struct sol_tensor *x;
    for (const char *c = f->lead; *c; c++)
        if (has(f->of, *c)) text_put(&order, "%c", *c);
    text_put(&order, "%c%c", f->row, f->column);
    TRY(permute(m, f->t, f->of, order.at, &x));
    return regroup(m, w, x, order.at, f->lead, out_t);
}

/* The mask of the layer: a bool tensor, true for what stays, or what is added; NULL: none. */
static sol_status mask_of(const struct making *m, const struct written *w, struct sol_tensor **out_t)
{
    struct sol_tensor *c = NULL, *added = NULL, *fill, *x;
    for (int i = w->nadded - 1; i >= 0; i--) { /* in the model's order */
        TRY(layer_beside(m, w, &w->added[i], &x));
        if (added) TRY(make(m, "add", 2, (struct sol_tensor *[]){added, x}, NULL, &x));
        added = x;
    }
    *out_t = added;
    if (!w->cond.t) return SOL_OK;
    TRY(layer_beside(m, w, &w->cond, &c));
    if (added) {
        TRY(graph_number(m->g, -INFINITY, (enum sol_dtype)added->dtype, &fill));
        struct sol_tensor *in[] = {c, w->keep ? added : fill, w->keep ? fill : added};
        return make(m, "where", 3, in, NULL, out_t);
    }
    if (!w->keep) return make(m, "logical_not", 1, &c, NULL, out_t);
    *out_t = c;
    if (c->dtype == SOL_BOOL) return SOL_OK;
    return make(m, "Cast", 1, &c, &(struct opdef_attr){.name = "to", .kind = ATTR_TEXT, .n = -1, .text = "bool"},
                out_t);
}

/* The result of the layer, with the dimensions of the model's product. */
static sol_status undo(const struct making *m, const struct written *w, struct sol_tensor *y, struct sol_tensor **out_t)
{
    struct sol_tensor *const scores = w->scores.layer->out[0];
    if (w->split) {
        int64_t shape[SOL_MAX_DIMS];
        const int n = scores->ndim - 2;
        for (int d = 0; d < n; d++) shape[d] = scores->dim[d].size;
        for (int d = 0; d < 2; d++) shape[n + d] = y->dim[y->ndim - 2 + d].size;
        TRY(reshape(m, y, n + 2, shape, &y));
    }
    return permute(m, y, arena_printf(m->g->arena, "%s%c%c", w->value_lead, w->value_t, w->e), w->values.of[2], out_t);
}

static sol_status join(struct sol_graph *g, const struct written *w)
{
    struct sol_layer *scores = w->scores.layer, *values = w->values.layer;
    const struct making m = {g, values};
    struct sol_tensor *in[4] = {0}, *by, *y;
    const struct ordered factors[] = {
        {scores->in[w->q], w->scores.of[w->q], w->lead, w->t, w->d},
        {scores->in[w->k], w->scores.of[w->k], w->lead, w->s, w->d},
        {values->in[w->v], w->values.of[w->v], w->value_lead, w->value_s, w->e},
    };
    for (int i = 0; i < COUNT_OF(factors); i++) TRY(factor(&m, w, &factors[i], &in[i]));
    TRY(mask_of(&m, w, &in[3]));
    if (w->by.t) {
        TRY(layer_beside(&m, w, &w->by, &by));
        TRY(make(&m, "mul", 2, (struct sol_tensor *[]){in[0], by}, NULL, &in[0]));
    }
    double *reals = NEW_ARRAY(g->arena, double, 2);
    if (!reals) return ctx_check(g->ctx);
    reals[0] = w->scale;
    reals[1] = w->cond.t && !w->nadded ? w->fill : -INFINITY;
    struct opdef_attr attr[] = {{.name = "scale", .kind = ATTR_REAL, .n = -1, .reals = reals},
                                {.name = "empty", .kind = ATTR_TEXT, .n = -1, .text = w->safe ? "safe" : "nan"},
                                {.name = "fill", .kind = ATTR_REAL, .n = -1, .reals = reals + 1}};
    const struct new_layer n = {
        .kind = "Attention", .nin = 3 + (in[3] != NULL), .in = in, .attrs = &(struct attrs){3, attr}};
    TRY(pass_add(g, values, values, &n, &y));
    TRY(undo(&m, w, y, &y));
    for (int d = 0; d < y->ndim; d++) y->dim[d].purpose = values->out[0]->dim[d].purpose;
    graph_replace(g, values->out[0], y);
    graph_remove(g, values);
    return SOL_OK;
}

/* A gradient computes the weights again, which is one product more. Those of a head that fit L1 had better be kept. */
static bool pays_again(const struct written *w)
{
    enum { L1 = 32 << 10 };
    const int bytes = dtype_def((enum sol_dtype)w->scores.layer->out[0]->dtype)->bytes;
    return (double)size_hint(score_size(w, w->t)) * (double)size_hint(score_size(w, w->s)) * bytes > L1;
}

sol_status attention_join(struct sol_graph *g, const bool *active)
{
    VECTOR(struct written) found = {0};
    graph_count_uses(g);
    for (struct sol_layer *l = g->first; l; l = l->next) {
        struct written w;
        if (!(is_kind(l, "MatMul") || is_kind(l, "Einsum")) || l->nin != 2 || (active && !active[l->out[0]->id]))
            continue;
        if (!find(g->arena, l, 0, active, &w) && !find(g->arena, l, 1, active, &w)) continue;
        if (!active || pays_again(&w)) PUSH(g->arena, found, w);
    }
    for (int i = 0; i < found.n; i++) TRY(join(g, &found.at[i]));
    return ctx_check(g->ctx);
}

sol_status pass_attention(struct sol_graph *g)
{
    return attention_join(g, NULL);
}
