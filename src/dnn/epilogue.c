/* Prints an epilogue through print/expr.c. The `read` hook replaces reads of the contraction's result by registers
 * and all other reads by loads at the tile's position. Lanes past the end are neither read nor written. */
#include "dnn/epilogue.h"

#include <string.h>

#define SAY(e, ...) arena_printf((e)->p->arena, __VA_ARGS__)

struct printing {
    struct epilogue *e;
    int stmt, valid;
    int nmade;
    struct {
        int tensor;
        const char *name;
    } made[40];
};

static const char *short_type(enum sol_dtype t)
{
    return t == SOL_F64 ? "f64" : dtype_def(t)->is_float ? "f32" : "i64";
}

static const char *vector_type(const struct epilogue *e, enum sol_dtype t)
{
    if (e->lanes == 1) return t == SOL_F64 ? "double" : dtype_def(t)->is_float ? "float" : "int64_t";
    return SAY(e, "@%sx%d", short_type(t), e->lanes);
}

const char *epilogue_type(const struct epilogue *e)
{
    return vector_type(e, e->p->dtype);
}

const char *epilogue_view_type(const struct epilogue *e, int view)
{
    return vector_type(e, e->p->loops->tensors.at[e->p->view[view].tensor].dtype);
}

const char *epilogue_pointer(const struct problem *p, int view)
{
    const struct dtype_def *d = dtype_def(p->loops->tensors.at[p->view[view].tensor].dtype);
    return arena_printf(p->arena, "%s%s *", p->view[view].node ? "const " : "", d->c_name);
}

static bool is_register_type(enum sol_dtype t)
{
    return t == SOL_F32 || t == SOL_F64;
}

/* The view of a read. The read may be a copy, because composite functions are expanded with copies of their
 * arguments. */
static int find_view(const struct problem *p, int stmt, int32_t node)
{
    for (int i = 0; i < p->nview; i++)
        if (p->view[i].stmt == stmt && p->view[i].node && ex_equal(p->loops, p->view[i].node, node)) return i;
    return -1;
}

static int64_t vector_stride(const struct epilogue *e, int view)
{
    return e->lanes == 1 ? 0 : e->p->view[view].s[e->p->vector];
}

/* The address of a view's first lane: "e1", "(e1 + 16)". */
static const char *address(struct epilogue *e, struct text *out, int view)
{
    const char *at = e->place(e->user, out, view);
    const char *base = e->named ? e->p->loops->tensors.at[e->p->view[view].tensor].name : SAY(e, "e%d", view);
    return strcmp(at, "0") ? SAY(e, "(%s + %s)", base, at) : base;
}

static void copy_function(int lanes, int bytes, struct text *out)
{
    text_put(out, "/* Copies elements of a vector, each of %d bytes. */\n", bytes);
    text_put(out, "@HELPER void @copy_part%d(void *to, const void *from, int64_t n)\n{\n", bytes);
    out->indent++;
    text_line(out, "char *t = to;");
    text_line(out, "const char *s = from;");
    for (int n = lanes; n; n /= 2) {
        text_open(out, "if (n & %d) {", n);
        text_line(out, "__builtin_memcpy(t, s, %d);", n * bytes);
        if (n > 1) text_line(out, "t += %d, s += %d;", n * bytes, n * bytes);
        text_close(out, "}");
    }
    out->indent--;
    text_put(out, "}\n\n");
}

void epilogue_copy_functions(const struct problem *p, int lanes, struct text *out)
{
    bool wide = p->bytes == 8, narrow = p->bytes == 4;
    for (int i = 0; i < p->nview; i++) {
        const enum sol_dtype t = p->loops->tensors.at[p->view[i].tensor].dtype;
        wide |= t == SOL_F64;
        narrow |= t == SOL_F32;
    }
    if (narrow) copy_function(lanes, 4, out);
    if (wide) copy_function(lanes, 8, out);
}

const char *epilogue_copy(const struct problem *p, const char *to, const char *from, int valid, int bytes)
{
    if (valid == EPILOGUE_PART) return arena_printf(p->arena, "@copy_part%d(%s, %s, valid);", bytes, to, from);
    return arena_printf(p->arena, "__builtin_memcpy(%s, %s, %d);", to, from, valid * bytes);
}

/* How many lanes are in use, as C text. */
static const char *lanes_in_use(const struct epilogue *e, int valid)
{
    return valid == EPILOGUE_PART ? "valid" : SAY(e, "%d", valid);
}

/* A load of `valid` lanes, as the text of a vector. */
static const char *load(struct epilogue *e, struct text *out, int view, int valid)
{
    const enum sol_dtype t = e->p->loops->tensors.at[e->p->view[view].tensor].dtype;
    const int64_t step = vector_stride(e, view);
    const char *type = vector_type(e, t), *at = address(e, out, view);
    if (!step) return SAY(e, "@sol_splat_%sx%d(*%s)", short_type(t), e->lanes, at);
    if (step == 1 && valid == e->lanes && is_register_type(t)) return SAY(e, "*(const %s *)%s", type, at);
    const char *name = SAY(e, "x%d_", e->temps++);
    text_line(out, "%s %s = {0};", type, name);
    if (step == 1 && is_register_type(t))
        text_line(out, "%s", epilogue_copy(e->p, SAY(e, "&%s", name), at, valid, dtype_def(t)->bytes));
    else
        text_line(out, "for (int l = 0; l < %s; l++) %s[l] = %s[l * %lld];", lanes_in_use(e, valid), name, at,
                  (long long)step);
    return name;
}

const char *epilogue_hold(struct epilogue *e, struct text *out, int view, int valid)
{
    const enum sol_dtype t = e->p->loops->tensors.at[e->p->view[view].tensor].dtype;
    const char *value = load(e, out, view, valid), *name = SAY(e, "h%d_", e->temps++);
    text_line(out, "const %s %s = %s;", vector_type(e, t), name, value);
    return name;
}

static void store(struct epilogue *e, struct text *out, int view, const char *value, int valid)
{
    const struct dtype_def *d = dtype_def(e->p->loops->tensors.at[e->p->view[view].tensor].dtype);
    const enum sol_dtype t = e->p->loops->tensors.at[e->p->view[view].tensor].dtype;
    const int64_t step = vector_stride(e, view);
    e->used[view] = true;
    if (e->keep) {
        e->keep(e->user, out, view, SAY(e, "(%s)%s", d->c_name, value));
        return;
    }
    const char *at = address(e, out, view);
    if (e->lanes == 1) {
        text_line(out, "*%s = (%s)%s;", at, d->c_name, value);
        return;
    }
    if (step == 1 && is_register_type(t)) {
        if (valid == e->lanes)
            text_line(out, "*(%s *)%s = %s;", vector_type(e, t), at, value);
        else
            text_line(out, "%s", epilogue_copy(e->p, at, SAY(e, "&%s", value), valid, d->bytes));
        return;
    }
    text_line(out, "for (int l = 0; l < %s; l++) %s[l * %lld] = (%s)%s[l];", lanes_in_use(e, valid), at,
              (long long)step, d->c_name, value);
}

static const char *read_hook(void *user, struct print_expr *pe, int32_t node)
{
    struct printing *w = user;
    struct epilogue *e = w->e;
    const struct ex *x = &e->p->loops->ex.at[node];
    for (int i = 0; i < w->nmade; i++)
        if (w->made[i].tensor == x->tensor)
            return pe->lanes == 1 && pe->lane ? SAY(e, "%s[%s]", w->made[i].name, pe->lane) : w->made[i].name;
    const int view = find_view(e->p, w->stmt, node);
    if (view < 0) return NULL;
    e->used[view] = true;
    if (pe->lanes > 1) return e->held[view] ? e->held[view] : load(e, pe->out, view, w->valid);
    const int64_t step = vector_stride(e, view);
    const char *lane = pe->lane && step ? pe->lane : "0";
    if (w->valid < e->lanes && *lane != '0') /* lanes past the end read what the first lane reads */
        lane = SAY(e, "(%s < %s ? %s : 0)", lane, lanes_in_use(e, w->valid), lane);
    if (e->held[view]) return SAY(e, "%s[%s]", e->held[view], lane);
    return SAY(e, step == 1 || *lane == '0' ? "%s[%s]" : "%s[%s * %lld]", address(e, pe->out, view), lane,
               (long long)step);
}

static const char *ivar_hook(void *user, int ivar)
{
    struct printing *w = user;
    const struct affine *m = &w->e->p->map[w->stmt][ivar];
    return m->n == 1 ? w->e->ivar(w->e->user, m->ivar[0]) : NULL;
}

/* The index variable of a statement along which the vectors run. */
static int vector_ivar(const struct problem *p, int stmt)
{
    for (int i = 0; i < p->loops->ivars.n; i++)
        for (int k = 0; k < p->map[stmt][i].n; k++)
            if (p->map[stmt][i].ivar[k] == p->vector) return i;
    return -1;
}

static int stored_view(const struct problem *p, int stmt)
{
    for (int i = 0; i < p->nview; i++)
        if (!p->view[i].node && p->view[i].stmt == stmt) return i;
    return -1;
}

void epilogue_print(struct epilogue *e, struct text *out, const char *sum, int valid)
{
    const struct problem *p = e->p;
    struct printing w = {.e = e, .valid = valid, .nmade = 1, .made = {{p->sum, sum}}};
    for (int s = p->c->anchor; s < p->loops->stmts.n; s++) {
        const struct loops_stmt *st = &p->loops->stmts.at[s];
        const enum sol_dtype t = p->loops->tensors.at[st->out[0]].dtype;
        struct print_expr pe = {.out = out,
                                .loops = p->loops,
                                .memory = p->c->memory,
                                .target = e->target,
                                .lanes = e->lanes,
                                .vector_ivar = vector_ivar(p, s),
                                .read = read_hook,
                                .ivar = ivar_hook,
                                .user = &w,
                                .temps = e->temps};
        w.stmt = s;
        const char *value = print_value(&pe, st->value, t);
        e->temps = MAX(e->temps, pe.temps); /* numbering of temporaries continues behind the loads */
        const char *name = SAY(e, "y%d_", e->temps++);
        text_line(out, "const %s %s = %s;", vector_type(e, t), name, text_bare(p->arena, value));
        w.made[w.nmade].tensor = st->out[0];
        w.made[w.nmade++].name = name;
        const int view = stored_view(p, s);
        if (view >= 0) store(e, out, view, name, valid);
    }
}

void epilogue_parameters(const struct problem *p, struct text *out)
{
    for (int i = 0; i < p->nview; i++) text_put(out, ", %se%d", epilogue_pointer(p, i), i);
}

void epilogue_parameters_used(const struct problem *p, struct text *out)
{
    for (int i = 0; i < p->nview; i++) text_put(out, "%s(void)e%d", i ? ", " : "    ", i);
    if (p->nview) text_put(out, ";\n");
}
