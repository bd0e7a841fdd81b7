/* A read whose position is data (a sampled grid, for example) has no inverse, and one whose step is a quotient of sizes
 * that vary (a resize to another input's size) has one of any length. Its gradient is computed for every point of its
 * loops, together with its position, and IndexPut adds it up there. Dimensions with index variables of their own
 * (channels) are not part of the position: whole rows of them are added. For small tensors, each position is searched
 * for instead. */
#include <string.h>

#include "grad/grad.h"

enum { SEARCHED = 1 << 18 };

/* A quotient over an index variable of a size that varies, whose step varies, too. */
static bool steps_vary(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    struct affine f;
    bool many = false, vary = false;
    if (e->kind != EX_FLOOR || !ex_affine(loops, e->a, &f)) return false;
    for (int i = 0; i < f.n; i++) {
        many |= size_varies(loops->ivars.at[f.ivar[i]].size);
        vary |= size_varies(f.coef[i]);
    }
    return many && (vary || (loops->ex.at[e->b].kind == EX_INT && size_varies(loops->ex.at[e->b].u.i)));
}

bool term_scatters(const struct adjoint *a, const struct term *t)
{
    for (int d = 0; d < t->npin; d++)
        if (t->pin[d].f && term_is_odd(a, t, d) && ex_any(a->w, t->pin[d].f, steps_vary)) return true;
    const struct loops_tensor *to = &a->w->tensors.at[t->tensor];
    double work = (double)ivars_points(a->w, t->ctx);
    bool data = false;
    for (int i = 0; i < t->npin; i++) data |= ex_reads_data(a->w, t->pin[i].f);
    for (int d = 0; d < to->ndim; d++) work *= (double)size_hint(to->shape[d]);
    return data && work > SEARCHED && __builtin_popcountll(t->ctx) <= SOL_MAX_DIMS;
}

struct places {
    uint64_t row;            /* index variables of dimensions of their own */
    int n, of[SOL_MAX_DIMS]; /* the other index variables, then those of the row */
    int nplace;              /* the number of others */
    /* the tensor's dimensions that belong to the position, then the others: by index variable */
    int nat, at[SOL_MAX_DIMS];
    int64_t size; /* the number of positions */
};

static uint64_t ivars_but(const struct adjoint *a, const struct term *t, int pin)
{
    uint64_t ivars = 0;
    for (int i = 0; i < t->npin; i++)
        if (i != pin) ivars |= ex_ivars(a->w, t->pin[i].f);
    return ivars;
}

static void find_places(const struct adjoint *a, const struct term *t, struct places *p)
{
    const struct loops *w = a->w;
    int ivar[SOL_MAX_DIMS] = {0};
    *p = (struct places){.size = 1};
    for (int d = 0; d < t->npin; d++) {
        const struct ex *e = &w->ex.at[t->pin[d].f];
        const uint64_t own = e->kind == EX_IVAR ? UINT64_C(1) << e->tensor : 0;
        if (!(own & t->ctx) || own & ivars_but(a, t, d) || w->ivars.at[e->tensor].size != t->pin[d].size) continue;
        ivar[d] = e->tensor + 1;
        p->row |= own;
    }
    for (int i = 0; i < w->ivars.n; i++)
        if ((t->ctx & ~p->row) >> i & 1) p->of[p->n++] = i;
    p->nplace = p->n;
    for (int side = 0; side < 2; side++)
        for (int d = 0; d < t->npin; d++) {
            if (!ivar[d] != !side) continue;
            p->at[p->nat++] = d;
            if (ivar[d]) p->of[p->n++] = ivar[d] - 1;
            if (!ivar[d]) p->size = size_mul(p->size, t->pin[d].size);
        }
}

/* One statement over n index variables. */
static struct grad_line line_over(struct adjoint *a, const struct places *p, int n, const char *name, int dtype,
                                  int32_t value)
{
    struct loops *w = a->w;
    int64_t shape[SOL_MAX_DIMS];
    struct grad_line line = {.value = value, .output = true};
    for (int i = 0; i < n; i++) {
        line.index[i] = ex_ivar(w, p->of[i]);
        shape[i] = w->ivars.at[p->of[i]].size;
    }
    line.tensor = loops_tensor(w, name, LOOPS_OUTPUT, (enum sol_dtype)dtype, n, shape);
    return line;
}

/* Adds rows [.. row] to zeros of [position row], and reshapes the result to the tensor. */
static sol_status add_up(struct adjoint *a, const struct places *p, int tensor, struct sol_tensor *value,
                         struct sol_tensor *place, struct sol_tensor **out_d)
{
    const struct loops_tensor to = a->w->tensors.at[tensor];
    const struct sol_tensor *user = to.user;
    const int n = p->n - p->nplace;
    int64_t *rows = NEW_ARRAY(a->g->arena, int64_t, SOL_MAX_DIMS + 1), shape[SOL_MAX_DIMS + 1], perm[SOL_MAX_DIMS + 1];
    int64_t axis = 0;
    struct sol_tensor *in[3] = {NULL, value, place};
    struct sol_layer *l;
    struct opdef_attr at[2] = {{.name = "dims", .kind = ATTR_INT, .n = 1, .ints = &axis},
                               {.name = "mode", .kind = ATTR_TEXT, .n = -1, .text = "add"}};
    rows[0] = p->size;
    for (int i = 0; i < n; i++) rows[i + 1] = a->w->ivars.at[p->of[p->nplace + i]].size;
    TRY(grad_zeros(a->g, a->layer->name, (enum sol_dtype)to.dtype, n + 1, rows, &in[0]));
    TRY(graph_add(a->g, NULL,
                  &(struct new_layer){"IndexPut", 3, in, &(struct attrs){2, at}, a->layer->name, a->layer->where}, &l));
    for (int d = 0; d < to.ndim; d++) {
        shape[d] = to.shape[p->at[d]];
        perm[p->at[d]] = d;
    }
    TRY(grad_reshape(a->g, a->layer, l->out[0], to.ndim, shape, out_d));
    at[0] = (struct opdef_attr){.name = "perm", .kind = ATTR_INT, .n = to.ndim, .ints = perm};
    if (n) {
        in[0] = *out_d;
        TRY(graph_add(a->g, NULL,
                      &(struct new_layer){"Permute", 1, in, &(struct attrs){1, at}, a->layer->name, a->layer->where},
                      &l));
        *out_d = l->out[0];
    }
    for (int d = 0; user && d < to.ndim; d++) (*out_d)->dim[d].purpose = user->dim[d].purpose;
    return SOL_OK;
}

/* The position of a point, and its conditions, do not depend on the index within its row. */
static void leave_row(const struct adjoint *a, struct term *t, const struct places *p)
{
    int bounds = 0, guards = 0;
    for (int i = 0; i < t->nbound; i++)
        if (!(ex_ivars(a->w, t->bound[i].e) & p->row)) t->bound[bounds++] = t->bound[i];
    for (int i = 0; i < t->nguard; i++)
        if (!(ex_ivars(a->w, t->guard[i]) & p->row)) t->guard[guards++] = t->guard[i];
    t->nbound = bounds;
    t->nguard = guards;
}

sol_status write_scattered(struct adjoint *a, const struct term *term, struct sol_tensor **out_d)
{
    struct loops *w = a->w;
    struct term t = *term;
    struct places p;
    struct grad_line line[2];
    int32_t place = ex_int(w, 0);
    find_places(a, &t, &p);
    for (int i = 0; i < t.npin - (p.n - p.nplace); i++) {
        const struct pin *pin = &t.pin[p.at[i]];
        if (t.nbound == COUNT_OF(t.bound)) return grad_reject(a, "it has too many bounds");
        t.bound[t.nbound++] = (struct bound){pin->f, pin->size};
        place = ex_binary(w, EX_ADD, ex_binary(w, EX_MUL, place, ex_int(w, pin->size)), pin->f);
    }
    t.ctx = 0; /* a point by itself; outside it is 0, at position 0 */
    line[0] = line_over(a, &p, p.n, "points", w->tensors.at[t.tensor].dtype, term_sum(a, &t));
    leave_row(a, &t, &p);
    t.value = place;
    line[1] = line_over(a, &p, p.nplace, "places", SOL_I64, term_sum(a, &t));
    TRY(a->rejected);
    TRY(write_lines(a, line, 2));
    return add_up(a, &p, t.tensor, w->tensors.at[line[0].tensor].user, w->tensors.at[line[1].tensor].user, out_d);
}
