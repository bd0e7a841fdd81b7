/* A read whose place is data (a sampled grid, say) has no inverse: what it hands back is computed for every point of
 * its loops, beside the place that it goes to, and added up there by ScatterElements. Searching all points for every
 * place is left to what is small. */
#include <string.h>

#include "grad/grad.h"

enum { SEARCHED = 1 << 18 };

bool term_scatters(const struct adjoint *a, const struct term *t)
{
    const struct loops_tensor *to = &a->w->tensors.at[t->tensor];
    double work = (double)letters_points(a->w, t->ctx);
    bool data = false;
    for (int i = 0; i < t->npin; i++) data |= ex_reads_data(a->w, t->pin[i].f);
    for (int d = 0; d < to->ndim; d++) work *= (double)to->shape[d];
    return data && work > SEARCHED && __builtin_popcountll(t->ctx) <= SOL_MAX_DIMS;
}

/* One statement over all letters of the term. */
static void describe(struct adjoint *a, const struct term *t, const char *name, int dtype, int32_t value,
                     struct grad_line *line)
{
    struct loops *w = a->w;
    int64_t shape[SOL_MAX_DIMS];
    int n = 0;
    *line = (struct grad_line){.value = value, .output = true};
    for (int i = 0; i < w->letters.n; i++) {
        if (!(t->ctx >> i & 1)) continue;
        line->index[n] = ex_letter(w, i);
        shape[n++] = w->letters.at[i].size;
    }
    line->tensor = loops_tensor(w, name, LOOPS_OUTPUT, (enum sol_dtype)dtype, n, shape);
}

static sol_status add_up(struct adjoint *a, int tensor, struct sol_tensor *value, struct sol_tensor *place,
                         struct sol_tensor **out_d)
{
    const struct loops_tensor to = a->w->tensors.at[tensor];
    const struct sol_tensor *user = to.user;
    int64_t shape[SOL_MAX_DIMS + 1] = {0}, all[2] = {1}, points[2] = {tensor_elements(value)};
    for (int d = 0; d < to.ndim; d++) all[0] *= shape[d] = to.shape[d];
    struct sol_tensor *in[3];
    struct sol_layer *l;
    struct row_attr mode = {.name = "mode", .kind = ATTR_TEXT, .n = -1, .text = "add"};
    TRY(grad_zeros(a->g, a->layer->name, (enum sol_dtype)to.dtype, 1, all, &in[0]));
    TRY(grad_reshape(a->g, a->layer, place, 1, points, &in[1]));
    TRY(grad_reshape(a->g, a->layer, value, 1, points, &in[2]));
    TRY(graph_add(a->g, NULL, "ScatterElements", a->layer->name, a->layer->where, 3, in, &(struct attrs){1, &mode},
                  &l));
    TRY(grad_reshape(a->g, a->layer, l->out[0], to.ndim, shape, out_d));
    for (int d = 0; user && d < to.ndim; d++) (*out_d)->dim[d].purpose = user->dim[d].purpose;
    return SOL_OK;
}

sol_status write_scattered(struct adjoint *a, const struct term *term, struct sol_tensor **out_d)
{
    struct loops *w = a->w;
    struct term t = *term;
    struct grad_line line[2];
    int32_t place = ex_int(w, 0);
    for (int i = 0; i < t.npin; i++) {
        if (t.nbound == COUNT_OF(t.bound)) return grad_refuse(a, "it has too many bounds");
        t.bound[t.nbound++] = (struct bound){t.pin[i].f, t.pin[i].size};
        place = ex_binary(w, EX_ADD, ex_binary(w, EX_MUL, place, ex_int(w, t.pin[i].size)), t.pin[i].f);
    }
    struct term here = t;
    here.ctx = 0; /* a point by itself: 0, and at place 0, if it is outside */
    describe(a, &t, "points", w->tensors.at[t.tensor].dtype, term_sum(a, &here), &line[0]);
    here.value = place;
    describe(a, &t, "places", SOL_I64, term_sum(a, &here), &line[1]);
    TRY(a->refused);
    TRY(write_lines(a, line, 2));
    return add_up(a, t.tensor, w->tensors.at[line[0].tensor].user, w->tensors.at[line[1].tensor].user, out_d);
}
