/* Solved terms as layers of kind Row: the text of a row with the sizes as numbers, which then goes through the parser
 * like any other row. */
#include <string.h>

#include "grad/grad.h"

/* -- bounds that reads can take over: `sum[K | 0<=e<n] dy[e]*w[K]` is `sum[K] dy[e]:0*w[K]` */

struct guarding {
    struct adjoint *a;
    const struct bound *b;
    bool zero;   /* a factor is 0 outside */
    bool leaves; /* a read without a value outside may leave its tensor */
};

static bool inside(const struct loops *w, const struct ex *read)
{
    int d = 0;
    for (int32_t i = read->a; i; i = w->ex.at[i].next, d++) {
        int64_t low, high;
        if (!ex_range(w, i, &low, &high) || low < 0 || high >= w->tensors.at[read->tensor].shape[d]) return false;
    }
    return true;
}

static void find_leaving(void *user, int32_t node)
{
    struct guarding *g = user;
    const struct ex *e = &g->a->w->ex.at[node];
    if (e->kind == EX_READ && !e->b && !inside(g->a->w, e)) g->leaves = true;
}

/* Is the read's index the bounded expression, along a dimension of that size? */
static bool reads_at(const struct loops *w, const struct ex *e, const struct bound *b)
{
    int d = 0;
    for (int32_t i = e->a; i; i = w->ex.at[i].next, d++)
        if (w->tensors.at[e->tensor].shape[d] == b->size && ex_equal(w, i, b->e)) return true;
    return false;
}

/* A product whose factors read at the bounded place: these get the value 0 outside. 0: not of this form. */
static int32_t factors(struct guarding *g, int32_t node)
{
    struct loops *w = g->a->w;
    struct ex e = w->ex.at[node];
    if (e.kind == EX_MUL) {
        int32_t x = factors(g, e.a);
        return ex_binary(w, EX_MUL, x, factors(g, e.b));
    }
    if (e.kind == EX_NEG) return ex_neg(w, factors(g, e.a));
    if (e.kind != EX_READ || !reads_at(w, &e, g->b)) return node;
    if (e.b && !(w->ex.at[e.b].kind == EX_INT && w->ex.at[e.b].u.i == 0)) return node;
    g->zero = true;
    if (e.b) return node;
    int32_t index[SOL_MAX_DIMS];
    int n = 0;
    for (int32_t i = e.a; i; i = w->ex.at[i].next) index[n++] = i;
    return ex_read(w, e.tensor, ex_list(w, n, index), ex_int(w, 0));
}

static void take_bounds(struct adjoint *a, struct term *t)
{
    int32_t value = t->value;
    bool zero = true;
    for (int i = 0; i < t->nbound; i++) {
        struct guarding g = {.a = a, .b = &t->bound[i]};
        value = factors(&g, value);
        zero &= g.zero;
    }
    struct guarding g = {.a = a};
    ex_walk(a->w, value, find_leaving, &g);
    for (int i = 0; i < t->nguard; i++) ex_walk(a->w, t->guard[i], find_leaving, &g);
    if (!zero || g.leaves) return;
    t->value = value;
    t->nbound = 0;
}

/* A letter that only ever goes backwards through what is read with a value outside runs the other way: then a gradient
 * of a convolution is a convolution. */
struct direction {
    const struct loops *w;
    int letter;
    bool backwards, forwards;
};

static void find_direction(void *user, int32_t node)
{
    struct direction *r = user;
    const struct ex *e = &r->w->ex.at[node];
    if (e->kind != EX_READ || !e->b) return;
    for (int32_t i = e->a; i; i = r->w->ex.at[i].next) {
        struct affine f;
        if (!ex_affine(r->w, i, &f)) continue;
        for (int k = 0; k < f.n; k++)
            if (f.letter[k] == r->letter) *(f.coef[k] < 0 ? &r->backwards : &r->forwards) = true;
    }
}

static void turn_letters(struct adjoint *a, struct term *t)
{
    struct loops *w = a->w;
    for (int i = 0, n = w->letters.n; i < n; i++) {
        struct direction r = {.w = w, .letter = i};
        if (!(t->ctx >> i & 1) || t->nguard || t->nbound) continue;
        ex_walk(w, t->value, find_direction, &r);
        if (!r.backwards || r.forwards) continue;
        uint64_t ctx = t->ctx;
        term_replace(a, t, i, ex_binary(w, EX_SUB, ex_int(w, w->letters.at[i].size - 1), ex_letter(w, i)));
        t->ctx = ctx;
    }
}

/* -- factors in front of a sum that its letters are not in */

static void flatten(struct loops *w, int32_t node, bool under, struct product *p)
{
    const struct ex *e = &w->ex.at[node];
    if ((e->kind == EX_MUL || e->kind == EX_DIV) && p->n < COUNT_OF(p->factor) - 2) {
        flatten(w, e->a, under, p);
        flatten(w, e->b, e->kind == EX_DIV ? !under : under, p);
    } else if (e->kind == EX_NEG && p->n < COUNT_OF(p->factor) - 2) {
        flatten(w, e->a, under, p);
        p->factor[p->n] = ex_int(w, -1);
        p->under[p->n++] = false;
    } else {
        p->factor[p->n] = node;
        p->under[p->n++] = under;
    }
}

void grad_factors(struct loops *w, int32_t node, struct product *p)
{
    flatten(w, node, false, p);
}

int32_t grad_times(struct loops *w, int32_t x, int32_t factor, bool under)
{
    if (!x) return under ? ex_binary(w, EX_DIV, ex_real(w, 1), factor) : factor;
    return ex_binary(w, under ? EX_DIV : EX_MUL, x, factor);
}

/* Splits the term's value: what depends on the letters of the sum stays, and what may be read under its guards alone;
 * the rest is *out_front (0: nothing). */
static void split_front(struct adjoint *a, struct term *t, int32_t *out_front)
{
    struct loops *w = a->w;
    struct product p = {0};
    int32_t inner = 0;
    *out_front = 0;
    if (!t->ctx) return;
    grad_factors(w, t->value, &p);
    for (int i = 0; i < p.n; i++) {
        struct guarding g = {.a = a};
        ex_walk(w, p.factor[i], find_leaving, &g);
        bool in = g.leaves || (ex_letters(w, p.factor[i]) & t->ctx);
        int32_t *to = in ? &inner : out_front;
        *to = grad_times(w, *to, p.factor[i], p.under[i]);
    }
    if (!inner || !*out_front) {
        *out_front = 0;
        return;
    }
    t->value = inner;
}

/* -- text */

enum { MOST_OUTPUTS = 32, MOST_STATEMENTS = 300, MOST_TENSORS = 1024 };

struct written { /* an output or a temp of the row */
    const char *name;
    struct loops_tensor like;
    const struct sol_tensor *purposes; /* NULL: none */
    bool temp;
    char head[SOL_MAX_DIMS][16]; /* letters of its dimensions */
};
struct line {
    int nout, out[3];
    int32_t index[SOL_MAX_DIMS], value;
};
struct writer {
    struct adjoint *a;
    struct text text;
    int nout, nline;
    struct written out[MOST_OUTPUTS];
    struct line *line;
    bool own[MOST_TENSORS];  /* tensors of w that the row itself writes */
    bool used[MOST_TENSORS]; /* tensors of w that are read */
    uint64_t letters;
    int nname; /* head letters: one for each purpose and size */
    char name[64][16], purpose[64];
    int64_t size[64];
};

static struct writer *writer(struct adjoint *a)
{
    struct writer *wr = NEW(a->w->arena, struct writer);
    wr->a = a;
    wr->text = text_new(a->w->arena);
    wr->line = NEW_ARRAY(a->w->arena, struct line, MOST_STATEMENTS);
    return wr;
}

static void find_used(void *user, int32_t node)
{
    struct writer *wr = user;
    const struct ex *e = &wr->a->w->ex.at[node];
    if (e->kind == EX_READ && e->tensor < MOST_TENSORS) wr->used[e->tensor] = true;
    if (e->kind == EX_LETTER) wr->letters |= UINT64_C(1) << e->tensor;
    if (e->kind == EX_RED) wr->letters |= e->u.bound;
}

static char purpose_letter(const struct sol_tensor *t, int d)
{
    char p = t ? t->dim[d].purpose : 0;
    return p == 'C' || p == 'P' || p == 'N' ? p : 'A';
}

static bool name_taken(const struct loops *w, const char *name)
{
    for (int i = 0; i < w->letters.n; i++)
        if (!strcmp(w->letters.at[i].name, name)) return true;
    return false;
}

static const char *head_letter(struct writer *wr, char purpose, int64_t size)
{
    for (int i = 0; i < wr->nname; i++)
        if (wr->purpose[i] == purpose && wr->size[i] == size) return wr->name[i];
    if (wr->nname == COUNT_OF(wr->size)) return "A"; /* the row then does not parse, and says so */
    int i = wr->nname++, number = i;
    wr->purpose[i] = purpose;
    wr->size[i] = size;
    do {
        const char *name = arena_printf(wr->text.arena, "%c%d", purpose, number);
        memcpy(wr->name[i], name, strlen(name) + 1);
        number += 64;
    } while (name_taken(wr->a->w, wr->name[i]));
    return wr->name[i];
}

/* " x:f32[N1 C2]" */
static void put_tensor(struct writer *wr, const char *name, const struct loops_tensor *t, const struct sol_tensor *user,
                       char (*head)[16])
{
    text_put(&wr->text, " %s:%s[", name, dtype_def(t->dtype)->name);
    for (int d = 0; d < t->ndim; d++) {
        const char *letter = head_letter(wr, purpose_letter(user, d), t->shape[d]);
        if (head) memcpy(head[d], letter, strlen(letter) + 1);
        text_put(&wr->text, d ? " %s" : "%s", letter);
    }
    text_put(&wr->text, "]");
}

/* An index must not hold blanks, which would end it. */
static void put_index(struct writer *wr, const struct written *o, const struct line *l)
{
    for (int d = 0; d < o->like.ndim; d++) {
        if (d) text_put(&wr->text, " ");
        if (o->like.shape[d] == 1) {
            text_put(&wr->text, "%s", o->head[d]);
            continue;
        }
        struct text index = text_new(wr->text.arena);
        ex_print(wr->a->w, l->index[d], &index);
        for (size_t i = 0; i < index.n; i++)
            if (index.at[i] != ' ') text_add(&wr->text, &index.at[i], 1);
    }
}

static void put_line(struct writer *wr, const struct line *l)
{
    if (l->nout > 1) text_put(&wr->text, "(");
    for (int o = 0; o < l->nout; o++) text_put(&wr->text, o ? ",%s" : "%s", wr->out[l->out[o]].name);
    text_put(&wr->text, l->nout > 1 ? ")[" : "[");
    put_index(wr, &wr->out[l->out[0]], l);
    text_put(&wr->text, "] = ");
    ex_print(wr->a->w, l->value, &wr->text);
}

static const struct formula *formula_of(const struct adjoint *a, int tensor)
{
    for (int i = 0; i < a->formulas.n; i++)
        if (a->formulas.at[i].tensor == tensor) return &a->formulas.at[i];
    return NULL;
}

/* The tensors that are read: tables of the layer become constants of the graph. */
static sol_status put_inputs(struct writer *wr, struct sol_tensor **in, int room, int *out_nin)
{
    struct loops *w = wr->a->w;
    *out_nin = 0;
    for (int i = 0; i < w->tensors.n && i < MOST_TENSORS; i++) {
        const struct loops_tensor *t = &w->tensors.at[i];
        if (!wr->used[i] || wr->own[i] || formula_of(wr->a, i)) continue;
        if (t->role == LOOPS_TABLE && !t->user) {
            struct sol_tensor *made;
            TRY(sol_graph_const(wr->a->g, t->dtype, t->ndim, t->shape, t->table, &made));
            loops_set_user(w, i, made);
        }
        if (!t->user || *out_nin == room)
            return ctx_fail(wr->a->g->ctx, SOL_ERR_INTERNAL, "gradient of layer '%s' (%s): '%s' cannot be read",
                            wr->a->layer->name, wr->a->layer->def->name, t->name);
        in[(*out_nin)++] = t->user;
        put_tensor(wr, t->name, t, t->user, NULL);
    }
    return SOL_OK;
}

static void put_outputs(struct writer *wr)
{
    bool temps = false;
    text_put(&wr->text, " ->");
    for (int o = 0; o < wr->nout; o++) {
        if (wr->out[o].temp && !temps) text_put(&wr->text, " ->");
        temps |= wr->out[o].temp;
        put_tensor(wr, wr->out[o].name, &wr->out[o].like, wr->out[o].purposes, wr->out[o].head);
    }
}

static void put_sizes(struct writer *wr)
{
    const struct loops *w = wr->a->w;
    const char *between = "";
    text_put(&wr->text, " | ");
    for (int i = 0; i < wr->nname; i++, between = "; ")
        text_put(&wr->text, "%s#%s=%lld", between, wr->name[i], (long long)wr->size[i]);
    for (int i = 0; i < w->letters.n; i++) {
        if (!(wr->letters >> i & 1)) continue;
        text_put(&wr->text, "%s#%s=%lld", between, w->letters.at[i].name, (long long)w->letters.at[i].size);
        between = "; ";
    }
    text_put(&wr->text, " | ");
    between = "";
    for (int i = 0; i < wr->a->formulas.n; i++) {
        const struct formula *f = &wr->a->formulas.at[i];
        if (!wr->used[f->tensor]) continue;
        text_put(&wr->text, "%s%s[%s] = ", between, w->tensors.at[f->tensor].name, w->letters.at[f->letter].name);
        ex_print(w, f->value, &wr->text);
        between = "; ";
    }
    text_put(&wr->text, " | ");
}

/* Adds the layer that all of this describes, in front of `before`. */
static sol_status write_row(struct writer *wr, struct sol_layer *before, const char *name, struct sol_layer **out_l)
{
    struct adjoint *a = wr->a;
    struct sol_tensor *in[256];
    int nin;
    for (int i = 0; i < wr->nline; i++) {
        const struct written *o = &wr->out[wr->line[i].out[0]];
        for (int d = 0; d < o->like.ndim; d++) ex_walk(a->w, wr->line[i].index[d], find_used, wr);
        ex_walk(a->w, wr->line[i].value, find_used, wr);
    }
    for (int i = 0; i < a->formulas.n; i++)
        if (wr->used[a->formulas.at[i].tensor]) wr->letters |= UINT64_C(1) << a->formulas.at[i].letter;
    TRY(put_inputs(wr, in, COUNT_OF(in), &nin));
    put_outputs(wr);
    put_sizes(wr);
    for (int i = 0; i < wr->nline; i++) {
        if (i) text_put(&wr->text, "; ");
        put_line(wr, &wr->line[i]);
    }
    TRY(ctx_check(a->g->ctx));
    struct row_attr attr = {.name = "text", .kind = ATTR_TEXT, .n = -1, .text = wr->text.at};
    return graph_add(a->g, before, "Row", name, a->layer->where, nin, in, &(struct attrs){1, &attr}, out_l);
}

/* A name that no tensor of w has. */
static const char *free_name(const struct loops *w, const char *wanted)
{
    for (int i = 0; i < w->tensors.n; i++)
        if (!strcmp(w->tensors.at[i].name, wanted)) return free_name(w, arena_printf(w->arena, "%s_", wanted));
    return wanted;
}

/* All results are called the same and a sum by itself has no purposes, so that equal rows have equal texts, which a
 * pass makes one layer of. */
static struct written written(struct adjoint *a, int tensor, bool part)
{
    const struct loops_tensor *t = &a->w->tensors.at[tensor];
    return (struct written){.name = free_name(a->w, "d"), .like = *t, .purposes = part ? NULL : t->user};
}

int32_t term_written(struct adjoint *a, struct term *t)
{
    take_bounds(a, t);
    turn_letters(a, t);
    return term_sum(a, t);
}

sol_status write_terms(struct adjoint *a, const struct term *terms, int n, struct sol_tensor **out_d)
{
    struct loops *w = a->w;
    const struct loops_tensor to = w->tensors.at[terms[0].tensor];
    const char *layer_name = arena_printf(w->arena, "%s'%s", a->layer->name, to.name);
    struct writer *wr = writer(a);
    struct sol_layer *l;
    int32_t front = 0;
    if (n > MOST_STATEMENTS) return grad_refuse(a, "it falls into too many pieces");
    for (int i = 0; i < n; i++) {
        struct term t = terms[i];
        struct line *line = &wr->line[wr->nline++];
        if (n == 1) split_front(a, &t, &front);
        line->nout = 1;
        line->value = term_written(a, &t);
        memcpy(line->index, t.index, sizeof line->index);
    }
    wr->out[wr->nout++] = written(a, terms[0].tensor, front);
    TRY(write_row(wr, NULL, layer_name, &l));
    *out_d = l->out[0];
    if (!front) return SOL_OK;
    int core = loops_tensor(w, "s", LOOPS_INPUT, to.dtype, to.ndim, to.shape);
    loops_set_user(w, core, *out_d);
    struct writer *outer = writer(a);
    struct line *line = &outer->line[outer->nline++];
    *line = wr->line[0];
    int32_t read = ex_read(w, core, to.ndim ? ex_list(w, to.ndim, line->index) : 0, 0);
    line->value = ex_binary(w, EX_MUL, read, front);
    outer->out[outer->nout++] = written(a, terms[0].tensor, false);
    TRY(write_row(outer, NULL, layer_name, &l));
    *out_d = l->out[0];
    return SOL_OK;
}

sol_status write_lines(struct adjoint *a, const struct grad_line *from, int n)
{
    struct loops *w = a->w;
    struct writer *wr = writer(a);
    struct sol_layer *l;
    int number[MOST_OUTPUTS], outputs = 0;
    if (n > MOST_OUTPUTS) return grad_refuse(a, "it has too many parts");
    for (int pass = 0; pass < 2; pass++) /* outputs, temps */
        for (int i = 0; i < n; i++) {
            const struct loops_tensor *t = &w->tensors.at[from[i].tensor];
            if (from[i].output != !pass) continue;
            if (!pass) outputs++;
            number[i] = wr->nout;
            wr->own[from[i].tensor] = true;
            wr->out[wr->nout++] = (struct written){.name = t->name, .like = *t, .temp = pass};
        }
    for (int i = 0; i < n; i++) {
        struct line *line = &wr->line[wr->nline++];
        *line = (struct line){.nout = 1, .out = {number[i]}, .value = from[i].value};
        memcpy(line->index, from[i].index, sizeof line->index);
    }
    TRY(write_row(wr, NULL, arena_printf(w->arena, "%s'", a->layer->name), &l));
    for (int i = 0; i < n; i++) loops_set_user(w, from[i].tensor, number[i] < outputs ? l->out[number[i]] : NULL);
    return SOL_OK;
}

/* -- a statement of the forward layer by itself */

sol_status write_again(struct sol_graph *g, struct sol_layer *before, struct sol_tensor *t, int stmt,
                       struct sol_tensor *const *user, struct sol_tensor **out_t)
{
    struct adjoint a = {.g = g, .layer = t->from, .w = loops_copy(g->arena, t->from->loops)};
    struct loops *w = a.w;
    const struct loops_stmt *s = &w->stmts.at[stmt];
    struct writer *wr = writer(&a);
    struct line *line = &wr->line[wr->nline++];
    struct sol_layer *l;
    int d = 0;
    for (int i = 0; i < w->tensors.n; i++) loops_set_user(w, i, user[i]);
    const struct loops_tensor *y = &w->tensors.at[s->out[0]];
    wr->own[s->out[0]] = true;
    wr->out[wr->nout++] = (struct written){.name = y->name, .like = *y, .purposes = t};
    *line = (struct line){.nout = 1, .value = s->value};
    for (int32_t i = s->index; i; i = w->ex.at[i].next) line->index[d++] = i;
    TRY(write_row(wr, before, arena_printf(g->arena, "%s again", t->from->name), &l));
    for (int k = 0; k < t->ndim; k++) l->out[0]->dim[k].purpose = t->dim[k].purpose;
    *out_t = l->out[0];
    return SOL_OK;
}

/* -- the forward layer with temps as outputs */

/* Marks what has to be written: outputs that somebody reads, exposed temps, and what these are made of. */
static void find_needed(struct adjoint *a, bool *needed)
{
    struct loops *w = a->w;
    const struct loops *l = a->layer->loops;
    for (int i = 0; i < l->tensors.n; i++) {
        const struct sol_tensor *t = w->tensors.at[i].user;
        needed[i] = a->exposed[i] || (w->tensors.at[i].role == LOOPS_OUTPUT && (t->readers.n || t->output));
    }
    for (int i = l->stmts.n - 1; i >= 0; i--) {
        const struct loops_stmt *s = &w->stmts.at[i];
        struct writer reads = {.a = a};
        bool any = false, more = false;
        for (int o = 0; o < s->nout; o++) any |= needed[s->out[o]];
        if (!any) continue;
        ex_walk(w, s->value, find_used, &reads);
        for (int o = 0; o < s->nout; o++) reads.used[s->out[o]] = true;
        for (int k = 0; k < l->tensors.n && k < MOST_TENSORS; k++) {
            more |= reads.used[k] && !needed[k];
            needed[k] |= reads.used[k];
        }
        if (more && s->scan_step) i = l->stmts.n; /* a step needs the one before it, so any statement another */
    }
}

static void describe(struct writer *wr, const int *number, const bool *needed)
{
    const struct loops *w = wr->a->w;
    for (int i = 0; i < wr->a->layer->loops->stmts.n; i++) {
        const struct loops_stmt *s = &w->stmts.at[i];
        if (!needed[s->out[0]]) continue;
        struct line *l = &wr->line[wr->nline++];
        int d = 0;
        l->nout = s->nout;
        for (int o = 0; o < s->nout; o++) l->out[o] = number[s->out[o]];
        for (int32_t k = s->index; k; k = w->ex.at[k].next) l->index[d++] = k;
        l->value = s->value;
    }
}

/* The smallest type that holds the positions of a maxat or minat; otherwise the tensor's own. */
static enum sol_dtype smallest_type(const struct adjoint *a, int tensor)
{
    const struct loops *w = a->w;
    for (int i = 0; i < a->layer->loops->stmts.n; i++) {
        const struct loops_stmt *s = &w->stmts.at[i];
        const struct ex *e = &w->ex.at[s->value];
        if (s->nout < 2 || s->out[1] != tensor || e->kind != EX_RED || (e->op != RED_MAXAT && e->op != RED_MINAT))
            continue;
        const int64_t n = letters_points(w, e->u.bound);
        return n <= 256 ? SOL_U8 : n <= 65536 ? SOL_U16 : SOL_I64;
    }
    return (enum sol_dtype)w->tensors.at[tensor].dtype;
}

sol_status write_exposed(struct adjoint *a)
{
    struct loops *w = a->w;
    struct sol_layer *old = a->layer, *l;
    int n = old->loops->tensors.n, *number = NEW_ARRAY(w->arena, int, n + 1), any = 0;
    bool *needed = NEW_ARRAY(w->arena, bool, n + 1);
    struct writer *wr = writer(a);
    for (int i = 0; i < n; i++) any |= a->exposed[i];
    if (!any) return ctx_check(a->g->ctx);
    find_needed(a, needed);
    for (int pass = 0; pass < 3; pass++) /* outputs, exposed temps, other temps */
        for (int i = 0; i < n; i++) {
            struct loops_tensor t = w->tensors.at[i];
            const struct sol_tensor *user = t.user;
            bool output = t.role == LOOPS_OUTPUT && (user->readers.n || user->output);
            if (t.role == LOOPS_INPUT || t.role == LOOPS_TABLE || !needed[i]) continue;
            if ((output ? 0 : a->exposed[i] ? 1 : 2) != pass) continue;
            if (wr->nout == MOST_OUTPUTS || old->loops->stmts.n > MOST_STATEMENTS)
                return grad_refuse(a, "it has too many parts");
            if (pass) t.dtype = (uint8_t)smallest_type(a, i);
            loops_set_tensor(w, i, t);
            number[i] = wr->nout;
            wr->own[i] = true;
            wr->out[wr->nout++] = (struct written){.name = t.name, .like = t, .purposes = user, .temp = pass == 2};
        }
    describe(wr, number, needed);
    TRY(write_row(wr, old, old->name, &l));
    for (int i = 0; i < n; i++) {
        if (!wr->own[i] || number[i] >= l->nout) continue;
        struct sol_tensor *was = w->tensors.at[i].user;
        loops_set_user(w, i, l->out[number[i]]);
        if (!was) continue;
        for (int d = 0; d < was->ndim; d++) l->out[number[i]]->dim[d].purpose = was->dim[d].purpose;
        graph_replace(a->g, was, l->out[number[i]]);
    }
    graph_remove(a->g, old);
    return ctx_check(a->g->ctx);
}
