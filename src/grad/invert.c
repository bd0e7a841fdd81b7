/* Inverts an integer function that no rule solves by tabulating it: for every Q, the list of index variables that lead
 * there. The tables are constants of the graph: begin[Q], and the value of each index variable at begin[Q]+J. */
#include <string.h>

#include "grad/grad.h"

enum { MOST = 1 << 24 };

sol_status grad_tabulate(struct adjoint *a, int32_t f, int n, const int *ivar, void *values)
{
    struct loops *w = a->w, *m = loops_create(w->arena, "Inverse");
    int32_t map[LOOPS_MAX_IVARS] = {0}, index[LOOPS_MAX_IVARS];
    int64_t shape[SOL_MAX_DIMS];
    int *tensor = NEW_ARRAY(w->arena, int, w->tensors.n + 1);
    for (int i = 0; i < n; i++) {
        const struct loops_ivar l = w->ivars.at[ivar[i]];
        shape[i] = l.size;
        index[i] = map[ivar[i]] = ex_ivar(m, loops_ivar(m, l.name, l.size));
    }
    for (int i = 0; i < w->tensors.n; i++) {
        const struct loops_tensor *t = &w->tensors.at[i];
        if (t->role != LOOPS_TABLE) continue;
        tensor[i] = loops_table(m, t->name, t->dtype, t->ndim, t->shape, t->table);
    }
    int y = loops_tensor(m, "f", LOOPS_OUTPUT, ex_is_int(w, f) ? SOL_I64 : SOL_F64, n, shape);
    struct loops_stmt s = {.nout = 1, .out = {(uint16_t)y}};
    s.index = ex_list(m, n, index);
    s.value = ex_copy(m, w, f, map, tensor);
    loops_stmt(m, s);
    void **data = NEW_ARRAY(w->arena, void *, m->tensors.n + 1);
    data[y] = values;
    return loops_interpret(a->g->ctx, m, data);
}

static sol_status table(struct adjoint *a, const char *name, int64_t n, const int64_t *values, int *out_tensor)
{
    struct sol_tensor *t;
    TRY(sol_graph_const(a->g, SOL_I64, 1, &n, values, &t));
    *out_tensor = loops_tensor(a->w, name, LOOPS_INPUT, SOL_I64, 1, &n);
    loops_set_user(a->w, *out_tensor, t);
    return SOL_OK;
}

static int32_t at(struct adjoint *a, int tensor, int32_t index)
{
    return ex_read(a->w, tensor, ex_list(a->w, 1, &index), 0);
}

bool invert_pin(struct adjoint *a, struct term *t, int d, int32_t q)
{
    struct loops *w = a->w;
    int32_t f = t->pin[d].f;
    int64_t all = 1, size = t->pin[d].size, most = 0;
    int n = 0, ivar[LOOPS_MAX_IVARS];
    if (term_varies(a, t, d)) return false;
    if (t->pin[d].q) { /* pinned to an expression, whose range is that of the function */
        int64_t low;
        if (!ex_range(w, q, &low, &size)) return false;
        size++;
    }
    if (ex_reads_data(w, f)) return false;
    for (int i = 0; i < w->ivars.n; i++) {
        if (!(ex_ivars(w, f) >> i & 1)) continue;
        if (!(t->ctx >> i & 1) || n == SOL_MAX_DIMS) return false;
        ivar[n++] = i;
        all *= MIN(w->ivars.at[i].size, (int64_t)MOST);
        if (all > MOST) return false;
    }
    int64_t *values = NEW_ARRAY(w->arena, int64_t, all + 1), *begin = NEW_ARRAY(w->arena, int64_t, size + 2);
    if (grad_tabulate(a, f, n, ivar, values)) return false;
    for (int64_t i = 0; i < all; i++)
        if (values[i] >= 0 && values[i] < size) begin[values[i] + 1]++;
    for (int64_t i = 0; i < size; i++) {
        most = MAX(most, begin[i + 1]);
        begin[i + 1] += begin[i];
    }
    int64_t *place = NEW_ARRAY(w->arena, int64_t, size + 1), *list = NEW_ARRAY(w->arena, int64_t, begin[size] + 1);
    memcpy(place, begin, (size_t)size * sizeof *place);
    for (int64_t i = 0; i < all; i++)
        if (values[i] >= 0 && values[i] < size) list[place[values[i]]++] = i;
    if (w->ivars.n >= LOOPS_MAX_IVARS || t->nguard == COUNT_OF(t->guard)) return false;
    int tensor, J = loops_ivar(w, "J", MAX(most, 1));
    if (table(a, "begin", size + 1, begin, &tensor)) return false;
    int32_t first = at(a, tensor, q), next = at(a, tensor, ex_binary(w, EX_ADD, q, ex_int(w, 1)));
    int32_t where = ex_binary(w, EX_ADD, first, ex_ivar(w, J));
    t->ctx |= UINT64_C(1) << J;
    t->pin[d].f = 0;
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        int64_t by = w->ivars.at[ivar[i]].size, *value = NEW_ARRAY(w->arena, int64_t, begin[size] + 1);
        for (int64_t k = 0; k < begin[size]; k++) value[k] = list[k] / stride % by;
        stride *= by;
        const char *name = arena_printf(w->arena, "at_%c", *w->ivars.at[ivar[i]].name + 'a' - 'A');
        if (table(a, name, begin[size] + 1, value, &tensor)) return false;
        term_replace(a, t, ivar[i], at(a, tensor, where));
    }
    /* first, because the reads of later guards rely on it */
    memmove(t->guard + 1, t->guard, (size_t)t->nguard * sizeof *t->guard);
    t->guard[0] = ex_cmp(w, CMP_LT, ex_ivar(w, J), ex_binary(w, EX_SUB, next, first));
    t->nguard++;
    return true;
}
