/* Names in generated code: tensors by role and position, index variables as in the loops. A kernel's text contains no
 * layer, so equal kernels of different layers are one text. Names that end in "_" belong to the printers. */
#include <inttypes.h>
#include <string.h>

#include "print/print.h"

#define SAY(p, ...) arena_printf((p)->out->arena, __VA_ARGS__)

/* x0 is operand 0, which is read, y1 operand 1, which is written; t0 a temporary. Tables are declared outside of
 * functions: `table` is what their names begin with. */
static const struct loops *named(struct arena *a, const struct loops *loops, const char *table)
{
    const char *const role[] = {[LOOPS_INPUT] = "x", [LOOPS_OUTPUT] = "y", [LOOPS_TEMP] = "t", [LOOPS_TABLE] = table};
    struct loops *own = loops_copy(a, loops);
    int operands = 0, temps = 0, tables = 0;
    for (int i = 0; i < loops->tensors.n; i++) {
        struct loops_tensor t = loops->tensors.at[i];
        int *number = t.role == LOOPS_TEMP ? &temps : t.role == LOOPS_TABLE ? &tables : &operands;
        t.name = arena_printf(a, "%s%d", role[t.role], (*number)++);
        loops_set_tensor(own, i, t);
    }
    return own;
}

const char *kernel_what(struct arena *a, const struct loops *loops)
{
    const struct loops *own = named(a, loops, "table");
    struct text t = text_new(a);
    for (int i = 0; i < own->stmts.n; i++) {
        if (i) text_put(&t, "\n");
        stmt_print(own, &own->stmts.at[i], &t);
    }
    return t.at;
}

sol_status solver_emit(const struct solver *s, const struct solver_context *sc, const struct cluster *c,
                       const struct variant *v, struct kernel *out)
{
    const struct cluster own = {named(sc->arena, c->loops, "@table"), c->memory, c->anchor};
    TRY(s->emit(sc, &own, v, out));
    out->cost = v->cost;
    out->solver = s->name;
    out->variant = v->text;
    for (int i = 0; i < out->npack; i++) out->pack[i].loops = named(sc->arena, out->pack[i].loops, "table");
    int operands = out->nwork;
    for (int i = 0; i < own.loops->tensors.n; i++)
        operands += own.loops->tensors.at[i].role != LOOPS_TEMP && own.loops->tensors.at[i].role != LOOPS_TABLE;
    struct arena *a = sc->scratch ? sc->scratch : sc->arena;
    kernel_launch(a, sc->target, operands, out);
    return kernel_sizes(a, cluster_varies(c), out);
}

bool cluster_varies(const struct cluster *c)
{
    if (loops_vary(c->loops)) return true;
    for (int i = 0; i < c->loops->tensors.n; i++)
        for (int d = 0; d < c->loops->tensors.at[i].ndim; d++)
            if (size_varies(c->memory[i].stride[d])) return true;
    return false;
}

void print_comment(struct text *out, const struct loops *loops, const struct loops_stmt *s)
{
    struct text t = text_new(out->arena);
    stmt_print(loops, s, &t);
    text_line(out, "/* %s */", t.at);
}

/* The name of an index variable, without what is added to it. */
const char *expr_ivar_base(struct print_expr *p, int ivar)
{
    const struct print_ivar *known = p->ivars && p->ivars[ivar].known ? &p->ivars[ivar] : NULL;
    const char *name = known ? known->base : p->ivar ? p->ivar(p->user, ivar) : NULL;
    if (!name) name = p->loops->ivars.at[ivar].name;
    return p->lane && ivar == p->vector_ivar ? SAY(p, "(%s + %s)", name, p->lane) : name;
}

const char *expr_ivar(struct print_expr *p, int ivar)
{
    const struct print_ivar *known = p->ivars && p->ivars[ivar].known ? &p->ivars[ivar] : NULL;
    const char *name = p->ivar ? p->ivar(p->user, ivar) : NULL;
    if (known)
        name = known->base;
    else if (!name)
        name = p->loops->ivars.at[ivar].name;
    if (known && !name) return SAY(p, "%" PRId64, known->plus);
    if (known && known->plus) name = SAY(p, "(%s + %" PRId64 ")", name, known->plus);
    if (p->lane && ivar == p->vector_ivar) return SAY(p, "(%s + %s)", name, p->lane);
    return name;
}
