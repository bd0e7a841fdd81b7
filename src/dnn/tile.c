/* One micro-kernel: R rows x C columns of pixels by V vectors of output channels, in registers. Every pixel's address
 * is the same pointer plus a constant, so the loop over K keeps only the accumulators, V weights and one broadcast in
 * registers. Each chunk of K is summed from 0 and then added to the sum of the chunks before: several short sums lose
 * less to rounding than one long sum. The last chunk runs the epilogue. */
#include "dnn/blocking.h"
#include "dnn/epilogue.h"

#define INLINE_WEIGHT 24 /* epilogues up to this weight are printed once per register, heavier ones as a loop */

#define SAY(...) arena_printf(t->b->p->arena, __VA_ARGS__)

struct tile {
    const struct blocking *b;
    struct text *out;
    int rows, cols, vectors, last; /* last: lanes in use of the last vector */
    const char *type;
    /* the position that is printed: numbers, or names of variables in a loop */
    const char *row, *col, *vec;
};

static int64_t row_stride(const struct blocking *b, const int64_t *stride)
{
    return b->m.n > 1 ? axis_stride(&b->m.at[b->m.n - 2], stride) : 0;
}
static int64_t col_stride(const struct blocking *b, const int64_t *stride)
{
    return axis_stride(&b->m.at[b->m.n - 1], stride);
}

static const char *place(void *user, struct text *out, int view)
{
    const struct tile *t = user;
    const int64_t *s = t->b->p->view[view].s;
    (void)out;
    struct offset o = {.arena = t->b->p->arena};
    offset_add(&o, t->row, row_stride(t->b, s));
    offset_add(&o, t->col, col_stride(t->b, s));
    offset_add(&o, t->vec, s[t->b->p->vector] * t->b->lanes);
    return offset_text(&o);
}

static bool axis_is(const struct axis *x, int ivar)
{
    return x->n == 1 && x->ivar[0] == ivar;
}

static const char *ivar_value(void *user, int ivar)
{
    const struct tile *t = user;
    const struct blocking *b = t->b;
    const char *more = "0";
    if (axis_is(&b->m.at[b->m.n - 1], ivar)) more = t->col;
    if (b->m.n > 1 && axis_is(&b->m.at[b->m.n - 2], ivar)) more = t->row;
    if (ivar == b->p->vector) more = arena_printf(b->p->arena, "%s * %d", t->vec, b->lanes);
    return arena_printf(b->p->arena, "(value[%d] + %s)", ivar, more);
}

static void head(const struct tile *t, bool last_panel)
{
    const struct blocking *b = t->b;
    text_put(t->out, "/* %d x %d pixels by %d vectors%s */\n", t->rows, t->cols, t->vectors,
             last_panel ? ", the last" : "");
    text_put(t->out,
             "static __attribute__((noinline)) void @tile_%d_%d%s(const @real *x, const @real *w, @real *sums, int64_t "
             "chunk, "
             "const char *next, const int64_t *value",
             t->rows, t->cols, last_panel ? "_last" : "");
    epilogue_parameters(b->p, t->out);
    text_put(t->out, ")\n{\n");
    t->out->indent++;
}

static const char *acc(const struct tile *t, int r, int c, int v)
{
    return arena_printf(t->b->p->arena, "a%d_%d", r * t->cols + c, v);
}

static const char *total(const struct tile *t, int r, int c, int v)
{
    return arena_printf(t->b->p->arena, "total[%d]", (r * t->cols + c) * t->vectors + v);
}

/* Where the partial sums of one register lie between chunks. */
static const char *partial(const struct tile *t, int r, int c, int v)
{
    const struct blocking *b = t->b;
    int64_t at;
    if (b->partial < 0)
        at = ((int64_t)(r * t->cols + c) * b->vectors + v) * b->lanes;
    else {
        const int64_t *s = b->p->view[b->partial].s;
        at = r * row_stride(b, s) + c * col_stride(b, s) + v * b->lanes;
    }
    return arena_printf(b->p->arena, "sums + %lld", (long long)at);
}

static bool is_part(const struct tile *t, int v)
{
    return v == t->vectors - 1 && t->last < t->b->lanes && t->b->partial >= 0;
}

#define EACH(t, r, c, v)                    \
    for (int r = 0; r < (t)->rows; r++)     \
        for (int c = 0; c < (t)->cols; c++) \
            for (int v = 0; v < (t)->vectors; v++)

static void start(const struct tile *t)
{
    const struct blocking *b = t->b;
    EACH(t, r, c, v) text_line(t->out, "%s %s = {0};", t->type, acc(t, r, c, v));
    if (b->sum_len || b->sum_runs)
        text_line(t->out, "volatile %s total[%d] = {{0}}; /* in memory: registers are for the sums */", t->type,
                  t->rows * t->cols * t->vectors);
}

/* Prints one step of K, `u` steps after the pointers. */
static void step(const struct tile *t, int u, int64_t pitch)
{
    const struct blocking *b = t->b;
    const int64_t ks = axis_stride(&b->k.at[b->k.n - 1], b->a_stride);
    text_open(t->out, "{");
    for (int v = 0; v < t->vectors; v++)
        text_line(t->out, "const %s w%d = *(const %s *)(wk + %lld);", t->type, v, t->type,
                  (long long)(u * pitch + v * b->lanes));
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) {
            const int64_t at = r * row_stride(b, b->a_stride) + c * col_stride(b, b->a_stride) + u * ks;
            text_put(t->out, "%*s{ const @real s = xk[%lld];", t->out->indent * 4, "", (long long)at);
            for (int v = 0; v < t->vectors; v++) text_put(t->out, " %s += s * w%d;", acc(t, r, c, v), v);
            text_put(t->out, " }\n");
        }
    text_close(t->out, "}");
}

/* Prints a run over a group's channels: each pixel's vector is loaded once, and channel u of every group is spread over
 * that group's lanes. */
static void group_run(const struct tile *t)
{
    const struct blocking *b = t->b;
    const int n = b->group_size;
    for (int u = 0; u < n; u++)
        text_line(t->out, "const %s w%d = *(const %s *)(wk + %d);", t->type, u, t->type, u * b->width);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) {
            const int64_t at = r * row_stride(b, b->a_stride) + c * col_stride(b, b->a_stride);
            text_open(t->out, "{");
            text_line(t->out, "const %s v = *(const %s *)(xk + %lld);", t->type, t->type, (long long)at);
            for (int u = 0; u < n; u++) {
                text_put(t->out, "%*s%s += __builtin_shufflevector(v, v", t->out->indent * 4, "", acc(t, r, c, 0));
                for (int l = 0; l < b->lanes; l++) text_put(t->out, ", %d", l / n * n + u);
                text_put(t->out, ") * w%d;\n", u);
            }
            text_close(t->out, "}");
        }
}

/* Short runs of a multiple of three are unrolled by three, so that no remainder is left. */
int tile_unroll(const struct blocking *b)
{
    if (b->group >= 0) return b->group_size;
    return b->len < 64 && b->len % TILE_UNROLL && b->len % 3 == 0 ? 3 : TILE_UNROLL;
}

int tile_fetch_lines(const struct blocking *b)
{
    const int64_t bytes = b->options.source == B_PACKED ? b->panel_elements * b->p->bytes : b->options.fetch;
    const int64_t lines = 64 * b->block_tiles * b->nrun * b->len; /* one for each step of K */
    return (int)((bytes * tile_unroll(b) + lines - 1) / lines);
}

/* Prints the loop over k. Its length is b->len, or `last` in the last chunk. */
static void steps(const struct tile *t, int64_t pitch, int64_t last)
{
    const struct blocking *b = t->b;
    const int64_t ks = axis_stride(&b->k.at[b->k.n - 1], b->a_stride);
    const int unroll = tile_unroll(b);
    text_open(t->out, "for (; k >= %d; k -= %d) {", unroll, unroll);
    for (int i = 0; i < tile_fetch_lines(b); i++) text_line(t->out, "__builtin_prefetch(next + %d, 0, 2);", 64 * i);
    if (tile_fetch_lines(b)) text_line(t->out, "next += %d;", 64 * tile_fetch_lines(b));
    if (b->group >= 0) group_run(t);
    for (int u = 0; u < unroll && b->group < 0; u++) step(t, u, pitch);
    text_line(t->out, "xk += %lld;", (long long)(unroll * ks));
    text_line(t->out, "wk += %lld;", (long long)(unroll * pitch));
    text_close(t->out, "}");
    if (b->len % unroll || last % unroll) {
        text_open(t->out, "for (; k > 0; k--) {");
        step(t, 0, pitch);
        text_line(t->out, "xk += %lld;", (long long)ks);
        text_line(t->out, "wk += %lld;", (long long)pitch);
        text_close(t->out, "}");
    }
}

/* Adds the sums of this block to the totals and starts the next block from 0. */
static void end_sum(const struct tile *t)
{
    EACH(t, r, c, v)
    {
        const char *a = acc(t, r, c, v);
        text_line(t->out, "%s += %s, %s = (%s){0};", total(t, r, c, v), a, a, t->type);
    }
}

static void sum(const struct tile *t)
{
    const struct blocking *b = t->b;
    const struct axis *run = &b->k.at[b->k.n - 1];
    const int64_t pitch = b->options.source == B_IN_PLACE ? axis_stride(run, b->p->b.view.s) : b->width;
    const bool inner = b->chunk_axis == b->k.n - 1, outer = b->chunk_axis >= 0 && !inner;
    const int64_t left = b->chunk_axis < 0 ? 0 : b->k.at[b->chunk_axis].size - (b->nchunk - 1) * b->chunk;
    const bool uneven = b->chunk_axis >= 0 && left != b->chunk;
    text_line(t->out, "const @real *wk = w;");
    const char *len = arena_printf(b->p->arena, "%lld", (long long)b->len),
               *nrun = arena_printf(b->p->arena, "%lld", (long long)b->nrun);
    if (uneven && inner)
        len = arena_printf(b->p->arena, "(chunk == %lld ? %lld : %lld)", (long long)b->nchunk - 1, (long long)left,
                           (long long)b->len);
    if (uneven && outer)
        nrun = arena_printf(b->p->arena, "(chunk == %lld ? %lld : %lld)", (long long)b->nchunk - 1,
                            (long long)(b->nrun / b->chunk * left), (long long)b->nrun);
    if (b->nrun > 1) {
        text_open(t->out, "for (int64_t i = 0; i < %s; i++) {", nrun);
        text_line(t->out, "const @real *xk = x + @run_a[i];");
        if (b->options.source == B_IN_PLACE) text_line(t->out, "wk = w + @run_b[i];");
        if (b->options.source == B_PACKED) text_line(t->out, "wk = w + i * %lld;", (long long)(b->len * b->width));
    } else {
        text_open(t->out, "{");
        text_line(t->out, "const @real *xk = x;");
    }
    if (b->sum_len) text_open(t->out, "for (int64_t left = %s; left > 0; left -= %lld) {", len, (long long)b->sum_len);
    text_line(t->out, "int64_t k = %s;", b->sum_len ? SAY("@sol_min_i64(left, %lld)", (long long)b->sum_len) : len);
    steps(t, pitch, uneven && inner ? left : b->len);
    if (b->sum_len) {
        text_line(t->out, "if (left <= %lld) break;", (long long)b->sum_len);
        end_sum(t);
        text_close(t->out, "}");
    }
    if (b->sum_runs) {
        text_open(t->out, "if (i %% %lld == %lld) {", (long long)b->sum_runs, (long long)b->sum_runs - 1);
        end_sum(t);
        text_close(t->out, "}");
    }
    text_close(t->out, "}");
    if (b->sum_len || b->sum_runs) EACH(t, r, c, v) text_line(t->out, "%s += %s;", acc(t, r, c, v), total(t, r, c, v));
}

/* Adds the partial sums of the chunks before this one. */
static void add_partials(const struct tile *t)
{
    text_open(t->out, "if (chunk) {");
    EACH(t, r, c, v)
    {
        if (is_part(t, v))
            text_line(t->out, "{ %s s = {0}; __builtin_memcpy(&s, %s, %d); %s += s; }", t->type, partial(t, r, c, v),
                      t->last * t->b->p->bytes, acc(t, r, c, v));
        else
            text_line(t->out, "%s += *(const %s *)(%s);", acc(t, r, c, v), t->type, partial(t, r, c, v));
    }
    text_close(t->out, "}");
}

static void leave(const struct tile *t)
{
    const struct blocking *b = t->b;
    text_open(t->out, "if (chunk < %lld) {", (long long)b->nchunk - 1);
    EACH(t, r, c, v)
    {
        if (is_part(t, v))
            text_line(t->out, "__builtin_memcpy(%s, &%s, %d);", partial(t, r, c, v), acc(t, r, c, v),
                      t->last * b->p->bytes);
        else
            text_line(t->out, "*(%s *)(%s) = %s;", t->type, partial(t, r, c, v), acc(t, r, c, v));
    }
    text_line(t->out, "return;");
    text_close(t->out, "}");
}

/* Loads operands that are equal for all pixels of the tile, once per vector. */
static void hold(struct tile *t, struct epilogue *e, int valid)
{
    const struct problem *p = t->b->p;
    t->row = t->col = "0";
    for (int i = 0; i < p->nview; i++) {
        const int64_t *s = p->view[i].s;
        e->held[i] = NULL;
        if (p->view[i].node && !row_stride(t->b, s) && !col_stride(t->b, s))
            e->held[i] = epilogue_hold(e, t->out, i, valid);
    }
}

static void finish_inline(struct tile *t, struct epilogue *e)
{
    for (int v = 0; v < t->vectors; v++) {
        const int valid = v == t->vectors - 1 ? t->last : t->b->lanes;
        text_open(t->out, "{");
        t->vec = arena_printf(t->b->p->arena, "%d", v);
        hold(t, e, valid);
        for (int r = 0; r < t->rows; r++)
            for (int c = 0; c < t->cols; c++) {
                t->row = arena_printf(t->b->p->arena, "%d", r);
                t->col = arena_printf(t->b->p->arena, "%d", c);
                text_open(t->out, "{");
                epilogue_print(e, t->out, acc(t, r, c, v), valid);
                text_close(t->out, "}");
            }
        text_close(t->out, "}");
    }
}

/* The epilogue as a loop, with the sums in an array: [vector][row][column]. */
static void finish_loop(struct tile *t, struct epilogue *e)
{
    text_put(t->out, "%*sconst %s all[] = {", t->out->indent * 4, "", t->type);
    for (int v = 0; v < t->vectors; v++)
        for (int r = 0; r < t->rows; r++)
            for (int c = 0; c < t->cols; c++) text_put(t->out, "%s%s", r + c + v ? ", " : "", acc(t, r, c, v));
    text_put(t->out, "};\n");
    for (int part = 0; part < 2; part++) { /* full vectors, then the last if it is partial */
        const bool odd = t->last < t->b->lanes;
        const int from = part ? t->vectors - 1 : 0, to = part || !odd ? t->vectors : t->vectors - 1;
        if (from >= to || (part && !odd)) continue;
        text_open(t->out, "for (int64_t v = %d; v < %d; v++) {", from, to);
        t->vec = "v";
        hold(t, e, part ? t->last : t->b->lanes);
        text_line(t->out, "for (int64_t r = 0; r < %d; r++)", t->rows);
        text_open(t->out, "for (int64_t c = 0; c < %d; c++) {", t->cols);
        t->row = "r";
        t->col = "c";
        text_line(t->out, "const %s sum = all[(v * %d + r) * %d + c];", t->type, t->rows, t->cols);
        epilogue_print(e, t->out, "sum", part ? t->last : t->b->lanes);
        text_close(t->out, "}");
        text_close(t->out, "}");
    }
}

void tile_print(const struct blocking *b, struct text *out, int rows, int cols, bool last_panel)
{
    const int lanes = last_panel ? blocking_last(b) : b->width;
    struct tile t = {.b = b, .out = out, .rows = rows, .cols = cols, .vectors = (lanes + b->lanes - 1) / b->lanes};
    struct epilogue e = {
        .p = b->p, .target = b->target, .lanes = b->lanes, .place = place, .ivar = ivar_value, .user = &t};
    t.last = lanes - (t.vectors - 1) * b->lanes;
    t.type = epilogue_type(&e);
    head(&t, last_panel);
    start(&t);
    sum(&t);
    if (b->nchunk > 1) {
        add_partials(&t);
        leave(&t);
    }
    if (b->p->weight <= INLINE_WEIGHT)
        finish_inline(&t, &e);
    else
        finish_loop(&t, &e);
    text_line(out, "(void)sums, (void)chunk, (void)value, (void)next;");
    epilogue_parameters_used(b->p, out);
    out->indent--;
    text_put(out, "}\n\n");
}
