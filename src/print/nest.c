/* The plain nest: the reference solver, in scalar C. It computes every cluster: one loop per index variable, guards as
 * bounds, serial reductions with states in double, temporaries where groups.c places them. */
#include <string.h>

#include "print/print.h"

#define NEST_RATE 1.0     /* operations per ns of one core */
#define NEST_TASK 10000.0 /* operations that justify a task */

static bool supported(const struct cluster *c, const char **out_why)
{
    for (int i = 0; i < c->loops->tensors.n; i++) {
        const int t = c->loops->tensors.at[i].dtype;
        if (t == SOL_F16 || t == SOL_BF16) {
            *out_why = "16-bit floats are not computed";
            return false;
        }
    }
    return true;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    (void)sc;
    return supported(c, out_why);
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    const bool was = size_costs(true); /* nothing of it depends on the point that it is made for */
    const struct print_plan *pl = groups_make(sc, c, 1);
    size_costs(was);
    /* a card computes a task by one of its work items, while the others of a core have nothing to do */
    const double rate = NEST_RATE * (target_is_card(sc->target) ? 1.0 / 64 : 1);
    *out = (struct variant){.text = "scalar"};
    out->cost = pl->ops / (rate * sc->target->cores) + pl->bytes / sc->target->dram_rate + 1000.0 * pl->ngroup +
                target_step_ns(sc->target) - KERNEL_STEP_NS;
    return 1;
}

/* Prints the loops over a statement's own index variables, and its body. */
static void statement(struct print_expr *p, const struct print_plan *pl, const struct loops_stmt *s, uint64_t open)
{
    struct loops *loops = pl->loops;
    print_comment(p->out, loops, s);
    struct print_loops own = {0};
    for (int i = 0; i < loops->ivars.n; i++)
        if ((stmt_ivars(loops, s) & ~open) >> i & 1) own.ivar[own.n++] = (uint8_t)i;
    const int32_t target = ex_read(loops, s->out[0], s->index, 0);
    nest_order(p, &own, target);
    nest_open(p, &own);
    const enum compute k = compute_of(loops->tensors.at[s->out[0]].dtype);
    if (s->nout == 1) {
        const char *next = running_next(p, s, 0);
        print_store(p, s->out[0], s->index, next ? next : print_value(p, s->value, loops->tensors.at[s->out[0]].dtype));
    } else {
        const char *value[4];
        print_reduction_all(p, s->value, k, value);
        for (int o = 0; o < s->nout; o++) {
            const enum compute to = compute_of(loops->tensors.at[s->out[o]].dtype);
            print_store(p, s->out[o], s->index, expr_convert(p, value[o], reduction_type(p, s->value, o, k), to));
        }
    }
    nest_close(p, &own);
}

/* Opens the loop over the index variable of a scan, in the scan's direction. */
void nest_scan(struct print_expr *p, const struct loops_stmt *s)
{
    const char *x = expr_ivar(p, s->scan_ivar);
    const int64_t size = p->loops->ivars.at[s->scan_ivar].size;
    if (s->scan_step > 0)
        text_open(p->out, "for (int64_t %s = 0; %s < %lld; %s++) {", x, x, (long long)size, x);
    else
        text_open(p->out, "for (int64_t %s = %lld; %s >= 0; %s--) {", x, (long long)size_sub(size, 1), x, x);
}

static void group(struct print_expr *p, const struct print_plan *pl, int i, struct kernel *out)
{
    const struct loops *loops = pl->cluster.loops;
    const struct print_group *g = &pl->group[i];
    struct print_tasks t;
    tasks_make(pl, g, &(struct print_division){.ops = g->ops, .least = NEST_TASK, .last = -1}, &t);
    kernel_open(p->out, i);
    text_line(p->out, "(void)f, (void)worker;");
    print_pointers(p->out, pl, g);
    tasks_open(p, &t);
    int opened = 1;
    for (int j = 0; j < t.n; j++) opened += tasks_loop(p, &t, j);
    print_locals(p->out, pl, g);
    for (int s = g->first, n; s < g->first + g->n; s += n) {
        n = groups_scan(loops, s);
        const struct loops_stmt *st = &loops->stmts.at[s];
        uint64_t open = g->shared;
        if (st->scan_step) {
            open |= UINT64_C(1) << st->scan_ivar;
            for (int j = 0; j < n; j++) running_begin(p, st + j, open, 0);
            nest_scan(p, st);
        }
        for (int j = 0; j < n; j++) statement(p, pl, st + j, open);
        if (st->scan_step) text_close(p->out, "}");
        running_end(p);
    }
    while (opened--) text_close(p->out, "}");
    kernel_close(p->out);
    out->step[i].tasks = t.tasks;
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    (void)v; /* there is only one */
    struct print_plan *pl = groups_make(sc, c, 1);
    struct text text = solver_text(sc);
    print_tables(&text, pl->cluster.loops);
    struct print_expr p = {.out = &text,
                           .loops = pl->loops,
                           .memory = pl->cluster.memory,
                           .target = sc->target,
                           .lanes = 1,
                           .vector_ivar = -1};
    *out = (struct kernel){.nstep = pl->ngroup};
    for (int i = 0; i < pl->ngroup; i++) group(&p, pl, i, out);
    out->source = text.at;
    out->scratch_bytes = pl->scratch_bytes;
    out->nwork = pl->work_bytes > 0;
    out->work_bytes[0] = pl->work_bytes;
    return SOL_OK;
}

const struct solver nest_solver = {.name = "nest",
                                   .reference = true,
                                   .lanes = FOR_ANY,
                                   .dynamic = true,
                                   .applicable = applicable,
                                   .variants = variants,
                                   .emit = emit};
