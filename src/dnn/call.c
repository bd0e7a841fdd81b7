/* The functions of a call's steps: one item for each result. That of the second step reads the results from a work
 * buffer and applies the epilogue. */
#include "dnn/call.h"

#include "print/print.h"

enum { ITEMS = 256 };

bool call_only_stores(const struct problem *p)
{
    const struct loops_stmt *s = &p->loops->stmts.at[p->c->anchor];
    const struct ex *e = &p->loops->ex.at[s->value];
    const struct view *v = &p->view[0];
    return p->loops->stmts.n == 1 && p->nview == 1 && !v->node && e->kind == EX_READ && e->tensor == p->sum &&
           p->loops->tensors.at[v->tensor].dtype == p->dtype;
}

double call_second_ns(const struct call *c)
{
    const double bytes = c->p->bytes * (double)axes_size(&c->axes);
    return c->direct ? 0 : target_step_ns(c->target) + 2 * bytes / c->target->dram_rate;
}

const char *call_index(const struct call *c, int i)
{
    return arena_printf(c->p->arena, "i%d_", i);
}

static const char *place(void *user, struct text *out, int view)
{
    const struct call *c = user;
    const struct view *v = &c->p->view[view];
    struct offset o = {.arena = c->p->arena, .constant = v->c};
    (void)out;
    for (int i = 0; i < c->axes.n; i++) offset_add(&o, call_index(c, i), axis_stride(&c->axes.at[i], v->s));
    return offset_text(&o);
}

static const char *ivar_value(void *user, int ivar)
{
    const struct call *c = user;
    int i = 0;
    while (c->axes.at[i].ivar[0] != ivar) i++;
    return call_index(c, i);
}

static void put_pointers(const struct call *c, struct text *out)
{
    const struct loops *loops = c->p->was;
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        const char *type = dtype_def(t->dtype)->c_name;
        if (t->role != LOOPS_INPUT && t->role != LOOPS_OUTPUT) continue;
        if (t->role == LOOPS_INPUT) type = arena_printf(c->p->arena, "const %s", type);
        print_operand(out, c->target, t->name, type, problem_operand(c->p, i));
    }
    if (!c->direct) print_operand(out, c->target, "sums_", dtype_def(c->p->dtype)->c_name, problem_work(c->p));
}

/* The function of a step up to an item's index in each axis. */
static void open_items(const struct call *c, struct text *out, int step)
{
    struct arena *a = c->p->arena;
    const int64_t elements = axes_size(&c->axes);
    const char *flat = elements < INT32_MAX ? "(uint32_t)at_" : "at_";
    kernel_open(out, step);
    text_line(out, "(void)f, (void)worker;");
    put_pointers(c, out);
    text_open(out, "for (int64_t task_ = task0; task_ < task1; task_++) {");
    text_line(out, "const int64_t at_ = task_ * %d + @ITEM;", ITEMS);
    text_line(out, "if (at_ >= %lld) continue;", (long long)elements);
    int64_t below = 1;
    for (int i = c->axes.n - 1; i >= 0; below *= c->axes.at[i--].size)
        text_line(out, "const int64_t %s = %s;", call_index(c, i),
                  text_modulo(a, text_over(a, flat, below), c->axes.at[i].size));
}

static void close_items(struct text *out)
{
    text_close(out, "}");
    kernel_close(out);
}

static void put_first(struct call *c, struct text *out)
{
    if (!c->compute) {
        kernel_open(out, 0);
        text_line(out, "(void)f, (void)worker;");
        kernel_close(out);
        return;
    }
    open_items(c, out, 0);
    const char *value = c->compute(c->user, out);
    const char *tensor = c->direct ? c->p->loops->tensors.at[c->p->view[0].tensor].name : "sums_";
    text_line(out, "%s[%s] = %s;", tensor, c->direct ? place(c, out, 0) : "at_", value);
    close_items(out);
}

static void put_second(struct call *c, struct text *out)
{
    struct epilogue e = {
        .p = c->p, .target = c->target, .lanes = 1, .named = true, .place = place, .ivar = ivar_value, .user = c};
    open_items(c, out, 1);
    text_line(out, "const %s result_ = sums_[at_];", dtype_def(c->p->dtype)->c_name);
    epilogue_print(&e, out, "result_", 1);
    close_items(out);
}

void call_emit(struct call *c, struct text *text, struct kernel *out)
{
    const int64_t elements = axes_size(&c->axes);
    put_first(c, text);
    out->nstep = 1;
    out->items = ITEMS;
    out->step[0].tasks = c->compute ? ceil_div(elements, ITEMS) : 1;
    if (!c->direct) {
        put_second(c, text);
        out->nstep = 2;
        out->step[1].tasks = ceil_div(elements, ITEMS);
        out->step[1].suffix = "epilogue";
        out->nwork = 1;
        out->work_bytes[0] = kernel_lines(elements * c->p->bytes);
    }
    out->source = text->at;
}
