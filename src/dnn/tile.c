/* One micro-kernel: R rows x C columns of pixels by V vectors of output channels, in registers. Every pixel's address
 * is the same pointer plus a constant, so the loop over K keeps only the accumulators, V weights and one broadcast in
 * registers. Each piece of K is summed from 0 and then added to the sum of the pieces before, which lies in memory:
 * several short sums lose less to rounding than one long sum. After the last piece, a function that all micro-kernels
 * of the kernel share takes each vector of sums through the epilogue to memory. */
#include "dnn/blocking.h"
#include "dnn/epilogue.h"

#include <string.h>

#define INLINE_WEIGHT 24 /* epilogues up to this weight are called for each register, heavier ones in a loop */
#define MOST_STREAMS 4

#define SAY(...) arena_printf(t->b->p->arena, __VA_ARGS__)

struct tile {
    const struct blocking *b;
    struct text *out;
    const char *name; /* "1_5", "1_5_last" */
    int rows, cols, vectors;
    int last;   /* lanes in use of the last vector; EPILOGUE_PART: the tile is told */
    int stream; /* the one that is printed; 0: the first, or all there is */
    const char *type;
    const struct tile_finish *finish;
    /* the position that is printed: numbers, or names of variables in a loop */
    const char *row, *col, *vec;
    struct tile_finish noted; /* while the epilogue's function is printed: what it takes */
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
    offset_add(&o, t->vec, size_mul(s[t->b->p->vector], t->b->lanes));
    return offset_text(&o);
}

static bool axis_is(const struct axis *x, int ivar)
{
    return x->n == 1 && x->ivar[0] == ivar;
}

static const char *ivar_value(void *user, int ivar)
{
    struct tile *t = user;
    const struct blocking *b = t->b;
    const bool col = axis_is(&b->m.at[b->m.n - 1], ivar), vec = ivar == b->p->vector;
    const bool row = b->m.n > 1 && axis_is(&b->m.at[b->m.n - 2], ivar);
    t->noted.value = true;
    t->noted.row |= row;
    t->noted.col |= col;
    t->noted.vec |= vec;
    if (vec) return SAY("(value[%d] + vec * %d)", ivar, b->lanes);
    return row || col ? SAY("(value[%d] + %s)", ivar, row ? "row" : "col") : SAY("value[%d]", ivar);
}

static void head(const struct tile *t)
{
    const struct blocking *b = t->b;
    text_put(t->out, "@NOINLINE void @tile_%s(%sconst @real *x, const @real *w", t->name, problem_frame(b->p));
    if (b->runs_vary)
        text_put(t->out, ", const int64_t *run_a%s", b->options.source == B_IN_PLACE ? ", const int64_t *run_b" : "");
    if (b->nchunk != 1) text_put(t->out, ", @real *sums, int64_t chunk");
    if (tile_fetch_lines(b, 1)) text_put(t->out, ", const char *next%s", tile_fetch_varies(b) ? ", int64_t fetch" : "");
    if (tile_reads_ahead(b)) text_put(t->out, ", int64_t ahead");
    if (t->finish->value) text_put(t->out, ", const int64_t *value");
    for (int i = 0; i < b->p->nview; i++)
        if (t->finish->view[i]) text_put(t->out, ", %se%d", epilogue_pointer(b->p, i), i);
    text_put(t->out, t->last == EPILOGUE_PART ? ", int64_t valid)\n{\n" : ")\n{\n");
    t->out->indent++;
    problem_open_sizes(b->p, t->out);
}

/* The offset of a pixel of a tile. */
static int64_t pixel_offset(const struct blocking *b, const int64_t *stride, int r, int c)
{
    return size_add(size_mul(r, row_stride(b, stride)), size_mul(c, col_stride(b, stride)));
}

static const char *acc(const struct tile *t, int r, int c, int v)
{
    return SAY("%c%d_%d", 'a' + t->stream, r * t->cols + c, v);
}

/* One pixel needs each weight once, so its tile waits for memory. Read at several places at once, weights come faster:
 * K is divided into this many streams with sums of their own. */
static int streams(const struct tile *t)
{
    const struct blocking *b = t->b;
    if (t->rows * t->cols > 1 || b->options.source != B_PACKED || b->shared) return 1;
    return MAX(1, MIN(MOST_STREAMS, (b->target->registers - 2) / t->vectors));
}

/* The pointers of a stream into the input and the weights. */
static const char *stream_x(const struct tile *t)
{
    return t->stream ? SAY("x%c", 'a' + t->stream) : "xk";
}
static const char *stream_w(const struct tile *t)
{
    return t->stream ? SAY("w%c", 'a' + t->stream) : "wk";
}
static const char *step_name(const struct tile *t)
{
    return SAY(t->stream ? "@step_%s_%c" : "@step_%s", t->name, 'a' + t->stream);
}

/* Where the sums of one register lie between chunks, as an address. */
static const char *partial(const struct tile *t, int r, int c, int v)
{
    const struct blocking *b = t->b;
    int64_t at;
    if (b->partial < 0)
        at = ((int64_t)(r * t->cols + c) * b->vectors + v) * b->lanes;
    else
        at = size_add(pixel_offset(b, b->p->view[b->partial].s, r, c), v * b->lanes);
    return at ? SAY("(sums + %lld)", (long long)at) : "sums";
}

/* Where the sums of earlier pieces lie, as a vector. */
static const char *earlier_sums(const struct tile *t, int r, int c, int v)
{
    if (t->b->nchunk != 1) return SAY("*(%s *)%s", t->type, partial(t, r, c, v));
    return SAY("total[%d]", (r * t->cols + c) * t->vectors + v);
}

static bool is_part(const struct tile *t, int v)
{
    return v == t->vectors - 1 && t->last < t->b->lanes && t->b->partial >= 0 && t->b->nchunk != 1;
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
    EACH(t, r, c, v) text_put(t->out, "%s%s%s", r + c + v ? ", " : "", acc(t, r, c, v), has_pieces(b) ? "" : " = {0}");
    text_put(t->out, ";\n");
    if (has_pieces(b) && b->nchunk == 1)
        text_line(t->out, "volatile %s total[%d]; /* in memory: registers are for the sums */", t->type,
                  t->rows * t->cols * t->vectors);
    if (has_pieces(b)) text_line(t->out, "int64_t begun = %s;", b->nchunk != 1 ? "chunk" : "0");
}

static void clear(const struct tile *t)
{
    text_put(t->out, "%*s", t->out->indent * 4, "");
    EACH(t, r, c, v) text_put(t->out, "%s = ", acc(t, r, c, v));
    text_put(t->out, "(%s){0};\n", t->type);
}

/* " + 16"; nothing for 0. */
static const char *plus(const struct tile *t, int64_t n)
{
    return n ? SAY(" + %lld", (long long)n) : "";
}

static const char *times(const struct tile *t, const char *x, int64_t n)
{
    return text_times(t->b->p->arena, x, n);
}

/* Defines the macro of one step of K, which is `u` steps after the pointers. It is a macro because it adds to
 * registers of the function. */
static void step_macro(const struct tile *t, int64_t pitch)
{
    const struct blocking *b = t->b;
    const int64_t ks = axis_stride(&b->k.at[b->k.n - 1], b->a_stride);
    struct lines lines = {t->out, " \\", 1, 0};
    text_put(t->out, "#define %s(u) { /* products of one element of K */ \\\n", step_name(t));
    for (int v = 0; v < t->vectors; v++)
        lines_add(&lines, SAY("const %s w%d = *(const %s *)(%s + u * %lld%s);", t->type, v, t->type, stream_w(t),
                              (long long)pitch, plus(t, v * b->lanes)));
    lines_end(&lines);
    for (int i = 0; i < t->rows * t->cols; i++) {
        const int r = i / t->cols, c = i % t->cols;
        const int64_t at = pixel_offset(b, b->a_stride, r, c);
        const char *one = SAY("{ const @real s = %s[%s%s];", stream_x(t), times(t, "u", ks), plus(t, at));
        for (int v = 0; v < t->vectors; v++) one = SAY("%s %s += s * w%d;", one, acc(t, r, c, v), v);
        lines_add(&lines, SAY("%s }", one));
    }
    lines_end(&lines);
    text_put(t->out, "}\n");
}

static void step_macros(const struct tile *t, int64_t pitch)
{
    for (struct tile one = *t; one.stream < streams(t); one.stream++) step_macro(&one, pitch);
}

/* Prints a run over a group's channels: each pixel's vector is loaded once, and channel u of every group is spread over
 * that group's lanes. */
static void group_run(const struct tile *t)
{
    const struct blocking *b = t->b;
    const int n = b->shared;
    for (int u = 0; u < n; u++)
        text_line(t->out, "const %s w%d = *(const %s *)(wk + %d);", t->type, u, t->type, u * b->width);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) {
            const int64_t at = pixel_offset(b, b->a_stride, r, c);
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
    if (b->shared) return b->shared;
    return !size_varies(b->len) && b->len < 64 && b->len % TILE_UNROLL && b->len % 3 == 0 ? 3 : TILE_UNROLL;
}

/* May calls have blocks of different sizes? */
static bool block_varies(const struct blocking *b)
{
    bool varies = b->options.counted;
    for (int i = 0; i < b->m.n; i++) varies |= size_varies(b->m.at[i].size);
    return varies;
}

int tile_fetch_lines(const struct blocking *b, int64_t tiles)
{
    const bool packed = b->options.source == B_PACKED;
    const int64_t bytes = packed ? b->panel_elements * b->p->bytes : b->options.fetch;
    const bool alone = packed && b->rows * b->cols == 1 && b->about_tiles == 1 && !block_varies(b);
    if (!bytes || alone) return 0;
    const int64_t lines = 64 * tiles * b->nrun * b->len; /* one for each step of K */
    return (int)((bytes * tile_unroll(b) + lines - 1) / lines);
}

bool tile_fetch_varies(const struct blocking *b)
{
    return block_varies(b) && tile_fetch_lines(b, 1) > 1;
}

bool tile_reads_ahead(const struct blocking *b)
{
    const int64_t pitch = axis_stride(&b->k.at[b->k.n - 1], b->p->b.view.s);
    return b->options.source == B_IN_PLACE && b->panels != 1 && (size_varies(pitch) || pitch > b->width);
}

/* Prints the prefetches of the next panel in one unrolled step: `ahead` elements behind each vector of this one. */
static void fetch_rows(const struct tile *t, int64_t pitch)
{
    if (!tile_reads_ahead(t->b)) return;
    const int line = MAX(1, 64 / (t->b->lanes * (int)t->b->p->bytes)); /* vectors in a cache line */
    text_open(t->out, "if (ahead) {");
    for (int u = 0; u < tile_unroll(t->b); u++)
        for (int v = 0; v < t->vectors; v += line)
            text_line(t->out, "__builtin_prefetch(wk + %s%s + ahead, 0, 2);", times(t, SAY("%d", u), pitch),
                      plus(t, v * t->b->lanes));
    text_close(t->out, "}");
}

/* Prints the prefetches of one unrolled step. */
static void fetch_lines(const struct tile *t)
{
    const int lines = tile_fetch_lines(t->b, t->b->about_tiles);
    if (tile_fetch_varies(t->b)) {
        text_line(t->out, "for (int64_t i = 0; i < fetch; i++) __builtin_prefetch(next + 64 * i, 0, 2);");
        text_line(t->out, "next += 64 * fetch;");
        return;
    }
    for (int i = 0; i < lines; i++) text_line(t->out, "__builtin_prefetch(next%s, 0, 2);", plus(t, 64 * i));
    if (lines) text_line(t->out, "next += %d;", 64 * lines);
}

static const char *unrolled_steps(const struct tile *t)
{
    const char *all = "";
    for (int u = 0; u < tile_unroll(t->b); u++) all = SAY("%s%s%s(%d)", all, u ? " " : "", step_name(t), u);
    return all;
}

/* Prints the loop over k in several streams, each with the same number of steps. What is left follows behind the last
 * one. */
static void stream_steps(const struct tile *t, int64_t ks, int64_t pitch)
{
    const int n = streams(t), unroll = tile_unroll(t->b);
    const char *sums = "", *move = "", *add = "";
    if (n == 1 || (!size_varies(t->b->len) && t->b->len < n * unroll)) return;
    text_open(t->out, "if (k >= %d) {", n * unroll);
    text_line(t->out, "const int64_t part = k / %d * %d;", n * unroll, unroll);
    struct tile one = *t;
    for (one.stream = 1; one.stream < n; one.stream++) {
        text_line(t->out, "const @real *%s = xk + %s, *%s = wk + %s;", stream_x(&one),
                  times(t, "part", size_mul(one.stream, ks)), stream_w(&one),
                  times(t, "part", size_mul(one.stream, pitch)));
        for (int v = 0; v < t->vectors; v++) {
            sums = SAY("%s%s%s = {0}", sums, *sums ? ", " : "", acc(&one, 0, 0, v));
            add = SAY("%s%s%s += %s;", add, *add ? " " : "", acc(t, 0, 0, v), acc(&one, 0, 0, v));
        }
        move = SAY("%s, %s += %lld, %s += %lld", move, stream_x(&one), (long long)size_mul(unroll, ks), stream_w(&one),
                   (long long)size_mul(unroll, pitch));
    }
    text_line(t->out, "%s %s;", t->type, sums);
    text_open(t->out, "for (int64_t i = part; i > 0; i -= %d, xk += %lld, wk += %lld%s) {", unroll,
              (long long)size_mul(unroll, ks), (long long)size_mul(unroll, pitch), move);
    for (one.stream = 0; one.stream < n; one.stream++) {
        fetch_lines(t);
        text_line(t->out, "%s", unrolled_steps(&one));
    }
    text_close(t->out, "}");
    one.stream = n - 1;
    text_line(t->out, "%s", add);
    text_line(t->out, "k -= %d * part;", n);
    text_line(t->out, "xk = %s;", stream_x(&one));
    text_line(t->out, "wk = %s;", stream_w(&one));
    text_close(t->out, "}");
}

/* Prints the loop over k. Its length is b->len, or `last` in the last chunk. */
static void steps(const struct tile *t, int64_t pitch, int64_t last)
{
    const struct blocking *b = t->b;
    const long long ks = axis_stride(&b->k.at[b->k.n - 1], b->a_stride), width = pitch;
    const int unroll = tile_unroll(b);
    stream_steps(t, ks, pitch);
    text_open(t->out, "for (; k >= %d; k -= %d, xk += %lld, wk += %lld) {", unroll, unroll,
              (long long)size_mul(unroll, ks), (long long)size_mul(unroll, width));
    fetch_lines(t);
    fetch_rows(t, pitch);
    if (b->shared)
        group_run(t);
    else
        text_line(t->out, "%s", unrolled_steps(t));
    text_close(t->out, "}");
    if (size_varies(b->len) || size_varies(last) || b->len % unroll || last % unroll)
        text_line(t->out, "for (; k > 0; k--, xk += %lld, wk += %lld) @step_%s(0)", ks, width, t->name);
}

/* The part of K that a chunk has; the last chunk may have less. */
struct extent {
    const char *len, *nrun; /* as C text */
    int64_t pitch, last;    /* of weights; a number of steps that occurs beside b->len, a size */
};

static struct extent extent_of(const struct tile *t)
{
    const struct blocking *b = t->b;
    const struct axis *run = &b->k.at[b->k.n - 1];
    const bool inner = b->chunk_axis == b->k.n - 1;
    const int64_t size = b->chunk_axis < 0 ? b->chunk : b->k.at[b->chunk_axis].size;
    const int64_t left = size_varies(size) ? size : size - (b->nchunk - 1) * b->chunk;
    struct extent e = {SAY("%lld", (long long)b->len), SAY("%lld", (long long)b->nrun), b->width, b->len};
    if (b->options.source == B_IN_PLACE) e.pitch = axis_stride(run, b->p->b.view.s);
    if (left == b->chunk || b->chunk_axis < 0) return e;
    if (size_varies(size)) {
        const char *part =
            SAY("@sol_min_i64(%lld, %lld - chunk * %lld)", (long long)b->chunk, (long long)size, (long long)b->chunk);
        if (inner)
            e.len = part, e.last = size;
        else
            e.nrun = SAY("%lld * %s", (long long)(b->nrun / b->chunk), part);
        return e;
    }
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
    text_line(t->out, "%sxk = x%s;", declare, b->nrun == 1 ? "" : b->runs_vary ? " + run_a[i]" : " + @run_a[i]");
    if (b->nrun == 1) return;
    if (b->options.source == B_IN_PLACE) text_line(t->out, "wk = w + %srun_b[i];", b->runs_vary ? "" : "@");
    if (b->options.source == B_PACKED) text_line(t->out, "wk = w + i * %lld;", (long long)(b->len * b->width));
}

/* Adds the sums of the pieces before this one. */
static void add_earlier_sums(const struct tile *t, const char *condition)
{
    text_open(t->out, "if (%s) {", condition);
    struct lines lines = {t->out, "", t->out->indent, 0};
    EACH(t, r, c, v)
    {
        if (is_part(t, v))
            lines_add(&lines,
                      SAY("{ %s s = {0}; %s %s += s; }", t->type,
                          epilogue_copy(t->b->p, "&s", partial(t, r, c, v), t->last, t->b->p->bytes), acc(t, r, c, v)));
        else
            lines_add(&lines, SAY("%s += %s;", acc(t, r, c, v), earlier_sums(t, r, c, v)));
    }
    lines_end(&lines);
    text_close(t->out, "}");
}

static void leave(const struct tile *t)
{
    struct lines lines = {t->out, "", t->out->indent, 0};
    EACH(t, r, c, v)
    {
        if (is_part(t, v))
            lines_add(&lines, epilogue_copy(t->b->p, partial(t, r, c, v), SAY("&%s", acc(t, r, c, v)), t->last,
                                            t->b->p->bytes));
        else
            lines_add(&lines, SAY("%s = %s;", earlier_sums(t, r, c, v), acc(t, r, c, v)));
    }
    lines_end(&lines);
}

/* Ends the loop over pieces. */
static void end_piece(const struct tile *t, const char *done)
{
    const struct blocking *b = t->b;
    add_earlier_sums(t, "begun");
    if (b->nchunk != 1)
        text_line(t->out, "if (%s && chunk == %lld) break;", done, (long long)size_sub(b->nchunk, 1));
    else
        text_line(t->out, "if (%s) break;", done);
    leave(t);
    if (b->nchunk != 1) text_line(t->out, "if (%s) return;", done);
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
    if (b->nrun > 1) text_open(t->out, "for (int64_t i = 0; i < %s; i++) {", e->nrun);
    begin_run(t, "const @real *");
    text_line(t->out, "int64_t k = %s;", e->len);
    steps(t, e->pitch, e->last);
    if (b->nrun > 1) text_close(t->out, "}");
    if (b->nchunk == 1) return;
    add_earlier_sums(t, "chunk");
    text_open(t->out, "if (chunk < %lld) {", (long long)size_sub(b->nchunk, 1));
    leave(t);
    text_line(t->out, "return;");
    text_close(t->out, "}");
}

static void sum(const struct tile *t, const struct extent *e)
{
    text_line(t->out, "const @real *wk = w;");
    if (t->b->sum_len)
        sum_lengths(t, e);
    else if (t->b->sum_runs)
        sum_runs(t, e);
    else
        sum_chunk(t, e);
}

/* -- the epilogue */

/* Is the view the same for all pixels of a tile? Then it is loaded once for each vector. */
static bool is_held(const struct blocking *b, int view)
{
    const int64_t *s = b->p->view[view].s;
    return b->p->view[view].node && !row_stride(b, s) && !col_stride(b, s);
}

static const char *here(void *user, struct text *out, int view)
{
    (void)user, (void)out, (void)view;
    return "0";
}

static struct epilogue epilogue_of(struct tile *t)
{
    return (struct epilogue){
        .p = t->b->p, .target = t->b->target, .lanes = t->b->lanes, .place = place, .ivar = ivar_value, .user = t};
}

/* The function for vectors of which `valid` lanes are in use. */
static void finish_function(const struct blocking *b, struct text *out, int valid, struct tile_finish *f)
{
    struct tile t = {.b = b, .out = out};
    struct text body = text_new(b->p->arena);
    struct epilogue e = epilogue_of(&t);
    e.place = here;
    body.indent = 1;
    for (int i = 0; i < b->p->nview; i++)
        if (is_held(b, i)) e.held[i] = arena_printf(b->p->arena, "h%d", i);
    epilogue_print(&e, &body, "sum", valid);
    *f = t.noted;
    memcpy(f->view, e.used, sizeof f->view);
    text_put(out, "/* The epilogue of one vector of sums%s */\n", valid < b->lanes ? ", the last of a row" : "");
    text_put(out, "@INLINE void @finish%s(%sconst %s sum", valid < b->lanes ? "_last" : "", problem_frame(b->p),
             epilogue_type(&e));
    for (int i = 0; i < b->p->nview; i++) {
        if (!f->view[i]) continue;
        if (is_held(b, i))
            text_put(out, ", const %s h%d", epilogue_view_type(&e, i), i);
        else
            text_put(out, ", %se%d", epilogue_pointer(b->p, i), i);
    }
    if (f->value) text_put(out, ", const int64_t *value");
    text_put(out, "%s%s%s%s", f->row ? ", int64_t row" : "", f->col ? ", int64_t col" : "",
             f->vec ? ", int64_t vec" : "", valid == EPILOGUE_PART ? ", int64_t valid" : "");
    text_put(out, ")\n{\n");
    out->indent++;
    problem_open_sizes(b->p, out);
    out->indent--;
    text_put(out, "%s}\n\n", body.at);
}

void tile_print_finish(const struct blocking *b, struct text *out, struct tile_finish *f)
{
    const int last = blocking_last(b), rest = b->ragged ? EPILOGUE_PART : last % b->lanes;
    if (b->ragged) epilogue_copy_functions(b->p, b->lanes, out);
    if (b->panels != 1 || last >= b->lanes) finish_function(b, out, b->lanes, f);
    if (rest) finish_function(b, out, rest, f);
}

/* Declares vectors of what is the same for all pixels. */
static void hold(struct tile *t, struct epilogue *e, int valid)
{
    t->row = t->col = "0";
    for (int i = 0; i < t->b->p->nview; i++)
        if (is_held(t->b, i) && t->finish->view[i]) e->held[i] = epilogue_hold(e, t->out, i, valid);
}

/* The call for the sums at t's position. */
static const char *call(struct tile *t, const struct epilogue *e, const char *sum, int valid)
{
    const char *text = SAY("@finish%s(%s%s", valid < t->b->lanes ? "_last" : "", problem_frame_argument(t->b->p), sum);
    for (int i = 0; i < t->b->p->nview; i++) {
        if (!t->finish->view[i]) continue;
        const char *at = e->held[i] ? "" : place(t, t->out, i);
        if (e->held[i])
            text = SAY("%s, %s", text, e->held[i]);
        else
            text = SAY(strcmp(at, "0") ? "%s, e%d + %s" : "%s, e%d", text, i, at);
    }
    if (t->finish->value) text = SAY("%s, value", text);
    if (t->finish->row) text = SAY("%s, %s", text, t->row);
    if (t->finish->col) text = SAY("%s, %s", text, t->col);
    if (t->finish->vec) text = SAY("%s, %s", text, t->vec);
    return SAY(valid == EPILOGUE_PART ? "%s, valid);" : "%s);", text);
}

static void finish_inline(struct tile *t, struct epilogue *e)
{
    struct lines lines = {t->out, "", t->out->indent, 0};
    for (int v = 0; v < t->vectors; v++) {
        const int valid = v == t->vectors - 1 ? t->last : t->b->lanes;
        t->vec = SAY("%d", v);
        hold(t, e, valid);
        for (int i = 0; i < t->rows * t->cols; i++) {
            t->row = SAY("%d", i / t->cols);
            t->col = SAY("%d", i % t->cols);
            lines_add(&lines, call(t, e, acc(t, i / t->cols, i % t->cols, v), valid));
        }
        lines_end(&lines);
    }
}

/* With the sums in an array: [vector][row][column]. */
static void finish_loop(struct tile *t, struct epilogue *e)
{
    text_put(t->out, "%*sconst %s all[] = {", t->out->indent * 4, "", t->type);
    for (int v = 0; v < t->vectors; v++)
        for (int r = 0; r < t->rows; r++)
            for (int c = 0; c < t->cols; c++) text_put(t->out, "%s%s", r + c + v ? ", " : "", acc(t, r, c, v));
    text_put(t->out, "};\n");
    const char *row = t->rows == 1 ? "v" : SAY("(v * %d + r)", t->rows);
    const char *sum = SAY("all[%s + c]", times(t, row, t->cols));
    for (int part = 0; part < 2; part++) { /* full vectors, then the last if it is partial */
        const bool odd = t->last < t->b->lanes;
        const int from = part ? t->vectors - 1 : 0, to = part || !odd ? t->vectors : t->vectors - 1;
        if (from >= to || (part && !odd)) continue;
        text_open(t->out, "for (int64_t v = %d; v < %d; v++) {", from, to);
        t->vec = "v";
        hold(t, e, part ? t->last : t->b->lanes);
        t->row = "r";
        t->col = "c";
        text_line(t->out, "for (int64_t r = 0; r < %d; r++)", t->rows);
        text_line(t->out, "    for (int64_t c = 0; c < %d; c++)", t->cols);
        text_line(t->out, "        %s", call(t, e, sum, part ? t->last : t->b->lanes));
        text_close(t->out, "}");
    }
}

void tile_print(const struct blocking *b, struct text *out, const struct tile_finish *f, const struct tile_size *size)
{
    const bool part = size->last && b->ragged;
    const int lanes = part ? b->lanes : size->last ? blocking_last(b) : b->width;
    struct tile t = {.b = b,
                     .out = out,
                     .rows = size->rows,
                     .cols = size->cols,
                     .vectors = (lanes + b->lanes - 1) / b->lanes,
                     .finish = f};
    struct epilogue e = epilogue_of(&t);
    t.name = arena_printf(b->p->arena, "%d_%d%s", t.rows, t.cols, size->last ? "_last" : "");
    t.last = part ? EPILOGUE_PART : lanes - (t.vectors - 1) * b->lanes;
    t.type = epilogue_type(&e);
    const struct extent extent = extent_of(&t);
    text_put(out, "/* %d x %d pixels by %d vectors%s */\n", t.rows, t.cols, t.vectors, size->last ? ", the last" : "");
    if (!b->shared && !b->p->varies) step_macros(&t, extent.pitch);
    head(&t);
    if (!b->shared && b->p->varies) step_macros(&t, extent.pitch); /* sizes are declared in the function */
    start(&t);
    sum(&t, &extent);
    if (b->p->weight <= INLINE_WEIGHT && !part)
        finish_inline(&t, &e);
    else
        finish_loop(&t, &e);
    out->indent--;
    text_put(out, "}\n\n");
}
