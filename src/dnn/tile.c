/* One micro-kernel: R rows x C columns of pixels by V vectors of output channels, in registers. Every pixel's address
 * is the same pointer plus a constant, so the loop over K keeps only the accumulators, V weights and one broadcast in
 * registers. Each piece of K is summed from 0 and then added to the sum of the pieces before, which lies in memory:
 * several short sums lose less to rounding than one long sum. The last piece runs the epilogue. */
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
             "@NOINLINE void @tile_%d_%d%s(const @real *x, const @real *w, @real *sums, int64_t "
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

/* Where the sums of one register lie between chunks, as an address. */
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

/* Where the sums of earlier pieces lie, as a vector. */
static const char *earlier_sums(const struct tile *t, int r, int c, int v)
{
    if (t->b->nchunk > 1) return SAY("*(%s *)(%s)", t->type, partial(t, r, c, v));
    return SAY("total[%d]", (r * t->cols + c) * t->vectors + v);
}

static bool is_part(const struct tile *t, int v)
{
    return v == t->vectors - 1 && t->last < t->b->lanes && t->b->partial >= 0 && t->b->nchunk > 1;
}

#define EACH(t, r, c, v)                    \
    for (int r = 0; r < (t)->rows; r++)     \
        for (int c = 0; c < (t)->cols; c++) \
            for (int v = 0; v < (t)->vectors; v++)

/* Does a chunk have several pieces? */
static bool has_pieces(const struct blocking *b)
{
    return b->sum_len || b->sum_runs;
}

static void start(const struct tile *t)
{
    const struct blocking *b = t->b;
    text_put(t->out, "%*s%s ", t->out->indent * 4, "", t->type);
    EACH(t, r, c, v) text_put(t->out, "%s%s", r + c + v ? ", " : "", acc(t, r, c, v));
    text_put(t->out, ";\n");
    if (has_pieces(b) && b->nchunk == 1)
        text_line(t->out, "volatile %s total[%d]; /* in memory: registers are for the sums */", t->type,
                  t->rows * t->cols * t->vectors);
    if (has_pieces(b)) text_line(t->out, "int64_t begun = %s;", b->nchunk > 1 ? "chunk" : "0");
}

static void clear(const struct tile *t)
{
    text_put(t->out, "%*s", t->out->indent * 4, "");
    EACH(t, r, c, v) text_put(t->out, "%s = ", acc(t, r, c, v));
    text_put(t->out, "(%s){0};\n", t->type);
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

/* The part of K that a chunk has; the last chunk may have less. */
struct extent {
    const char *len, *nrun; /* as C text */
    int64_t pitch, last;    /* of weights; a number of steps that occurs beside b->len */
};

static struct extent extent_of(const struct tile *t)
{
    const struct blocking *b = t->b;
    const struct axis *run = &b->k.at[b->k.n - 1];
    const bool inner = b->chunk_axis == b->k.n - 1;
    const int64_t left = b->chunk_axis < 0 ? b->chunk : b->k.at[b->chunk_axis].size - (b->nchunk - 1) * b->chunk;
    struct extent e = {SAY("%lld", (long long)b->len), SAY("%lld", (long long)b->nrun), b->width, b->len};
    if (b->options.source == B_IN_PLACE) e.pitch = axis_stride(run, b->p->b.view.s);
    if (left == b->chunk) return e;
    const char *is_last = SAY("chunk == %lld", (long long)b->nchunk - 1);
    if (inner) {
        e.len = SAY("(%s ? %lld : %lld)", is_last, (long long)left, (long long)b->len);
        e.last = left;
    } else {
        e.nrun = SAY("(%s ? %lld : %lld)", is_last, (long long)(b->nrun / b->chunk * left), (long long)b->nrun);
    }
    return e;
}

/* Sets the pointers to the beginning of run i. */
static void begin_run(const struct tile *t, const char *declare)
{
    const struct blocking *b = t->b;
    text_line(t->out, "%sxk = x%s;", declare, b->nrun > 1 ? " + @run_a[i]" : "");
    if (b->nrun == 1) return;
    if (b->options.source == B_IN_PLACE) text_line(t->out, "wk = w + @run_b[i];");
    if (b->options.source == B_PACKED) text_line(t->out, "wk = w + i * %lld;", (long long)(b->len * b->width));
}

/* Adds the sums of the pieces before this one. */
static void add_earlier_sums(const struct tile *t, const char *condition)
{
    text_open(t->out, "if (%s) {", condition);
    EACH(t, r, c, v)
    {
        if (is_part(t, v))
            text_line(t->out, "{ %s s = {0}; __builtin_memcpy(&s, %s, %d); %s += s; }", t->type, partial(t, r, c, v),
                      t->last * t->b->p->bytes, acc(t, r, c, v));
        else
            text_line(t->out, "%s += %s;", acc(t, r, c, v), earlier_sums(t, r, c, v));
    }
    text_close(t->out, "}");
}

static void leave(const struct tile *t)
{
    EACH(t, r, c, v)
    {
        if (is_part(t, v))
            text_line(t->out, "__builtin_memcpy(%s, &%s, %d);", partial(t, r, c, v), acc(t, r, c, v),
                      t->last * t->b->p->bytes);
        else
            text_line(t->out, "%s = %s;", earlier_sums(t, r, c, v), acc(t, r, c, v));
    }
}

/* Ends the loop over pieces. */
static void end_piece(const struct tile *t, const char *done)
{
    const struct blocking *b = t->b;
    add_earlier_sums(t, "begun");
    if (b->nchunk > 1)
        text_line(t->out, "if (%s && chunk == %lld) break;", done, (long long)b->nchunk - 1);
    else
        text_line(t->out, "if (%s) break;", done);
    leave(t);
    if (b->nchunk > 1) text_line(t->out, "if (%s) return;", done);
    text_line(t->out, "begun = 1;");
    text_close(t->out, "}");
}

/* Prints the loops where a piece is a part of a run. */
static void sum_lengths(const struct tile *t, const struct extent *e)
{
    const struct blocking *b = t->b;
    text_line(t->out, "int64_t %sleft = %s;", b->nrun > 1 ? "i = 0, " : "", e->len);
    begin_run(t, "const @real *");
    text_open(t->out, "for (;;) {");
    clear(t);
    text_line(t->out, "int64_t k = @sol_min_i64(left, %lld);", (long long)b->sum_len);
    steps(t, e->pitch, e->last);
    text_line(t->out, "left -= %lld;", (long long)b->sum_len);
    if (b->nrun > 1) {
        text_open(t->out, "if (left <= 0 && ++i < %s) {", e->nrun);
        text_line(t->out, "left = %s;", e->len);
        begin_run(t, "");
        text_close(t->out, "}");
    }
    end_piece(t, "left <= 0");
}

/* Prints the loops where a piece is several runs. */
static void sum_runs(const struct tile *t, const struct extent *e)
{
    const struct blocking *b = t->b;
    text_open(t->out, "for (int64_t i = 0;;) {");
    clear(t);
    text_open(t->out, "for (const int64_t end = @sol_min_i64(i + %lld, %s); i < end; i++) {", (long long)b->sum_runs,
              e->nrun);
    begin_run(t, "const @real *");
    text_line(t->out, "int64_t k = %s;", e->len);
    steps(t, e->pitch, e->last);
    text_close(t->out, "}");
    end_piece(t, SAY("i >= %s", e->nrun));
}

/* Prints the loops where a chunk is one piece. */
static void sum_chunk(const struct tile *t, const struct extent *e)
{
    const struct blocking *b = t->b;
    clear(t);
    if (b->nrun > 1)
        text_open(t->out, "for (int64_t i = 0; i < %s; i++) {", e->nrun);
    else
        text_open(t->out, "{");
    begin_run(t, "const @real *");
    text_line(t->out, "int64_t k = %s;", e->len);
    steps(t, e->pitch, e->last);
    text_close(t->out, "}");
    if (b->nchunk == 1) return;
    add_earlier_sums(t, "chunk");
    text_open(t->out, "if (chunk < %lld) {", (long long)b->nchunk - 1);
    leave(t);
    text_line(t->out, "return;");
    text_close(t->out, "}");
}

static void sum(const struct tile *t)
{
    const struct extent e = extent_of(t);
    text_line(t->out, "const @real *wk = w;");
    if (t->b->sum_len)
        sum_lengths(t, &e);
    else if (t->b->sum_runs)
        sum_runs(t, &e);
    else
        sum_chunk(t, &e);
}

/* Loads operands that are the same for all pixels of the tile, once for each vector. */
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

/* Prints the epilogue as a loop, with the sums in an array: [vector][row][column]. */
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
    if (b->p->weight <= INLINE_WEIGHT)
        finish_inline(&t, &e);
    else
        finish_loop(&t, &e);
    text_line(out, "(void)sums, (void)chunk, (void)value, (void)next;");
    epilogue_parameters_used(b->p, out);
    out->indent--;
    text_put(out, "}\n\n");
}
