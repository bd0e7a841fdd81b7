/* Prints the code of a blocked contraction around its micro-kernels: constants, the block function, the step's
 * function. */
#include "dnn/blocking.h"
#include "dnn/epilogue.h"

#include <string.h>

#define SAY(...) arena_printf(b->p->arena, __VA_ARGS__)

static const char *c_type(const struct problem *p)
{
    return dtype_def(p->dtype)->c_name;
}

/* The offset of a view at the tile's outer index, pixel and panel; and vector, if it is one of the last panel. */
static const char *view_offset(const struct blocking *b, const struct view *v, bool part)
{
    struct offset o = {.arena = b->p->arena, .constant = v->c};
    for (int i = 0; i < b->outer.n; i++) offset_add(&o, SAY("g%d", i), axis_stride(&b->outer.at[i], v->s));
    for (int i = 0; i < b->m.n; i++) offset_add(&o, SAY("m%d", i), axis_stride(&b->m.at[i], v->s));
    offset_add(&o, "n", size_mul(v->s[b->p->vector], b->width));
    if (part) offset_add(&o, "v", v->s[b->p->vector]);
    return offset_text(&o);
}

/* -- tables of the offsets of runs: in a, and in b where it is read in place, over all K axes but the last */

static int64_t runs_extent(const struct blocking *b, int axis)
{
    return axis == b->chunk_axis ? b->chunk : b->k.at[axis].size;
}

/* The same, computed where the function begins. */
static void run_array(const struct blocking *b, struct text *out, const char *name, const int64_t *stride)
{
    struct offset o = {.arena = b->p->arena};
    int64_t below = 1;
    for (int i = b->k.n - 2; i >= 0; i--) {
        const int64_t n = runs_extent(b, i);
        offset_add(&o, SAY("(r / %lld %% %lld)", (long long)below, (long long)n), axis_stride(&b->k.at[i], stride));
        below *= n;
    }
    text_line(out, "int64_t %s[%lld];", name, (long long)b->nrun);
    text_line(out, "for (int64_t r = 0; r < %lld; r++) %s[r] = %s;", (long long)b->nrun, name, offset_text(&o));
}

static void run_arrays(const struct blocking *b, struct text *out)
{
    if (!b->runs_vary) return;
    run_array(b, out, "run_a", b->a_stride);
    if (b->options.source != B_PACKED) run_array(b, out, "run_b", b->p->b.view.s);
}

static void run_table(const struct blocking *b, struct text *out, const char *name, const int64_t *stride)
{
    text_put(out, "@TABLE int64_t %s[%lld] = {", name, (long long)b->nrun);
    for (int64_t r = 0; r < b->nrun; r++) {
        int64_t rest = r, at = 0;
        for (int i = b->k.n - 2; i >= 0; i--) {
            const int64_t n = runs_extent(b, i);
            at += rest % n * axis_stride(&b->k.at[i], stride);
            rest /= n;
        }
        text_put(out, "%s%lld", r ? ", " : "", (long long)at);
    }
    text_put(out, "};\n");
}

/* -- the block function */

static void outer_digits(const struct blocking *b, struct text *out)
{
    for (int i = 0; i < b->outer.n; i++) {
        int64_t below = 1;
        for (int k = i + 1; k < b->outer.n; k++) below = size_mul(below, b->outer.at[k].size);
        const char *at = text_over(b->p->arena, "g", below);
        text_line(out, i ? "const int64_t g%d = %s %% %lld;" : "const int64_t g%d = %s;", i, at,
                  (long long)b->outer.at[i].size);
    }
}

static void box_ranges(const struct blocking *b, struct text *out)
{
    for (int i = 0; i < b->m.n; i++) {
        const long long n = b->nbox[i], size = b->m.at[i].size;
        int64_t below = 1;
        for (int k = i + 1; k < b->m.n; k++) below = size_mul(below, b->nbox[k]);
        if (b->options.counted && i == b->m.n - 1)
            text_line(out, "const int64_t l%d = 0, h%d = count;", i, i);
        else if (n == 1)
            text_line(out, "const int64_t l%d = 0, h%d = %lld;", i, i, size);
        else
            text_line(out, "const int64_t c%d = %s %% %lld, l%d = c%d * %lld / %lld, h%d = (c%d + 1) * %lld / %lld;", i,
                      text_over(b->p->arena, "block", below), n, i, i, size, n, i, i, size, n);
    }
}

/* The tiles of a kernel: which sizes occur. One size needs no table, and tiles of one height or width need no
 * division. */
struct sizes {
    bool one, row[BLOCKING_MAX_PIXELS + 1], col[BLOCKING_MAX_PIXELS + 1];
    int rows, cols; /* how many */
    struct tile_size first;
};

static struct sizes sizes_of(const struct blocking *b)
{
    struct sizes s = {0};
    int n = 0;
    for (int last = 0; last < 2; last++)
        for (int r = 1; r <= b->rows; r++)
            for (int c = 1; c <= b->cols; c++) {
                if (!b->used[last][r][c]) continue;
                if (!n++) s.first = (struct tile_size){r, c, last};
                s.rows += !s.row[r];
                s.cols += !s.col[c];
                s.row[r] = s.col[c] = true;
            }
    s.one = n == 1;
    return s;
}

/* The pixels of a tile along an axis of M, at most. */
static int tile_step(const struct blocking *b, const struct sizes *sizes, int axis)
{
    const int last = b->m.n - 1;
    if (axis == last) return sizes->cols == 1 ? sizes->first.cols : b->cols;
    if (axis == last - 1) return sizes->rows == 1 ? sizes->first.rows : b->rows;
    return 1;
}

/* Prints how many lines of the next panel a tile of this block prefetches in an unrolled step. A pixel that is alone
 * has no time for it: it waits for the weights of this panel. */
static void fetch_of_block(const struct blocking *b, const struct sizes *sizes, struct text *out)
{
    const char *tiles = "", *pixels = "";
    if (!tile_fetch_varies(b)) return;
    for (int i = 0; i < b->m.n; i++) {
        const int step = tile_step(b, sizes, i);
        const char *many = SAY("(h%d - l%d)", i, i), *times = i ? " * " : "";
        pixels = SAY("%s%s%s", pixels, times, many);
        tiles = SAY("%s%s%s", tiles, times, step == 1 ? many : SAY("((h%d - l%d + %d) / %d)", i, i, step - 1, step));
    }
    text_line(out, "const int64_t in_block = %s, fetch = %s > 1 ? (%d + in_block - 1) / in_block : 0;", tiles, pixels,
              tile_fetch_lines(b, 1));
}

/* Prints the loops over the tiles of a block. */
static void tile_loops(const struct blocking *b, const struct sizes *sizes, struct text *out)
{
    const int last = b->m.n - 1;
    for (int i = 0; i < last - 1; i++) text_open(out, "for (int64_t m%d = l%d; m%d < h%d; m%d++) {", i, i, i, i, i);
    for (int i = MAX(0, last - 1); i <= last; i++) {
        const int step = i == last ? b->cols : b->rows;
        const char *what = i == last ? "cols" : "rows";
        if ((i == last ? sizes->cols : sizes->rows) == 1) {
            const int only = i == last ? sizes->first.cols : sizes->first.rows;
            text_open(out,
                      only > 1 ? "for (int64_t m%d = l%d; m%d < h%d; m%d += %d) {"
                               : "for (int64_t m%d = l%d; m%d < h%d; m%d++) {",
                      i, i, i, i, i, only);
            continue;
        }
        text_line(out, "const int64_t n%s = (h%d - l%d + %d) / %d;", what, i, i, step - 1, step);
        text_open(out, "for (int64_t i%d = 0; i%d < n%s; i%d++) {", i, i, what, i);
        text_line(out, "const int64_t m%d = l%d + (h%d - l%d) * i%d / n%s;", i, i, i, i, i, what);
        text_line(out, "const int64_t %s = l%d + (h%d - l%d) * (i%d + 1) / n%s - m%d;", what, i, i, i, i, what, i);
    }
}

static void close_tile_loops(const struct blocking *b, struct text *out)
{
    for (int i = 0; i < b->m.n; i++) text_close(out, "}");
}

static const char *a_position(const struct blocking *b)
{
    const struct problem *p = b->p;
    struct offset o = {.arena = p->arena, .constant = b->gather ? 0 : p->a.view.c};
    for (int i = 0; i < b->m.n; i++)
        offset_add(&o, b->gather ? SAY("(m%d - l%d)", i, i) : SAY("m%d", i), axis_stride(&b->m.at[i], b->a_stride));
    if (b->shared)
        offset_add(&o, "n", b->width);
    else if (b->group >= 0)
        offset_add(&o, text_over(p->arena, "n", p->loops->ivars.at[p->vector].size / b->width), b->a_stride[b->group]);
    if (!b->gather) {
        for (int i = 0; i < b->outer.n; i++) offset_add(&o, SAY("g%d", i), axis_stride(&b->outer.at[i], p->a.view.s));
        if (b->chunk_axis >= 0)
            offset_add(&o, "q", size_mul(b->chunk, axis_stride(&b->k.at[b->chunk_axis], b->a_stride)));
        return offset_from(&o, "a");
    }
    for (int i = 0; i < b->k.n; i++) { /* an index variable with a negative stride starts at its end */
        const struct axis *x = &b->k.at[i];
        for (int k = 0; k < x->n; k++) {
            const int64_t s = b->a_stride[x->ivar[k]];
            const int64_t n = i == b->chunk_axis ? b->chunk : p->loops->ivars.at[x->ivar[k]].size;
            if (s < 0) o.constant = size_sub(o.constant, size_mul(s, size_sub(n, 1)));
        }
    }
    return offset_from(&o, "block_a");
}

static const char *b_panel(const struct blocking *b, const char *g, const char *q, const char *n)
{
    const struct problem *p = b->p;
    if (b->options.source == B_CALLER) return "b";
    if (b->options.source == B_PACKED) {
        struct offset packed = {.arena = p->arena};
        if (b->nouter != 1) offset_add(&packed, g, b->nchunk * b->panels * b->panel_elements);
        if (b->nchunk > 1) offset_add(&packed, q, b->panels * b->panel_elements);
        offset_add(&packed, n, b->panel_elements);
        return offset_from(&packed, "b");
    }
    struct offset o = {.arena = p->arena, .constant = p->b.view.c};
    for (int i = 0; i < b->outer.n; i++) offset_add(&o, SAY("g%d", i), axis_stride(&b->outer.at[i], p->b.view.s));
    if (b->chunk_axis >= 0) offset_add(&o, q, size_mul(b->chunk, axis_stride(&b->k.at[b->chunk_axis], p->b.view.s)));
    offset_add(&o, n, size_mul(b->width, axis_stride(&b->n, p->b.view.s)));
    return offset_from(&o, "b");
}

/* Prints a transpose of a square of `lanes` rows of b, from contiguous along k to contiguous along n: log2(lanes)
 * rounds, each of which exchanges halves. Rows past the end repeat the last one; their results are never stored. */
static void flip_function(const struct blocking *b, struct text *out)
{
    const int n = b->lanes;
    const char *type = SAY("@%sx%d", b->p->dtype == SOL_F64 ? "f64" : "f32", n);
    text_put(out, "@HELPER void @flip(const @real *from, int64_t stride, int64_t rows, @real *to)\n{\n");
    out->indent++;
    for (int i = 0; i < n; i++)
        text_line(out, "%s r%d = *(const %s *)(from + @sol_min_i64(%d, rows - 1) * stride), t%d;", type, i, type, i, i);
    for (int h = 1; h < n; h *= 2)
        for (int i = 0; i < n; i++) {
            if (i & h) continue;
            text_put(out, "%*st%d = __builtin_shufflevector(r%d, r%d", out->indent * 4, "", i, i, i + h);
            for (int l = 0; l < n; l++) text_put(out, ", %d", l & h ? n + l - h : l);
            text_put(out, ");\n%*st%d = __builtin_shufflevector(r%d, r%d", out->indent * 4, "", i + h, i, i + h);
            for (int l = 0; l < n; l++) text_put(out, ", %d", l & h ? n + l : l + h);
            text_put(out, ");\n%*sr%d = t%d, r%d = t%d;\n", out->indent * 4, "", i, i, i + h, i + h);
        }
    for (int i = 0; i < n; i++)
        text_line(out, "*(%s *)(%s) = r%d;", type, text_plus(b->p->arena, "to", i * b->width), i);
    out->indent--;
    text_put(out, "}\n\n");
}

/* Is the innermost run of K contiguous in b, and n not? */
static bool flips(const struct blocking *b)
{
    const int64_t *s = b->p->b.view.s;
    return b->options.source == B_SCRATCH && axis_stride(&b->n, s) != 1 && axis_stride(&b->k.at[b->k.n - 1], s) == 1;
}

static void flip_loops(const struct blocking *b, struct text *out)
{
    const long long width = b->width, sn = axis_stride(&b->n, b->p->b.view.s);
    text_open(out, "for (int64_t j = 0; j < lanes; j += %d) {", b->lanes);
    text_line(out, "int64_t k = 0;");
    text_line(out, "for (; k + %d <= len; k += %d) @flip(f + j * %lld + k, %lld, lanes - j, to + k * %lld + j);",
              b->lanes, b->lanes, sn, sn, width);
    text_line(out, "for (; k < len; k++)");
    text_line(
        out,
        "    for (int64_t l = 0; l < %d; l++) to[k * %lld + j + l] = f[@sol_min_i64(j + l, lanes - 1) * %lld + k];",
        b->lanes, width, sn);
    text_close(out, "}");
}

/* Prints the loops that pack a panel of b into scratch: [k..][width]. Lanes past the end get arbitrary values. */
static void panel_loops(const struct blocking *b, struct text *out)
{
    const struct problem *p = b->p;
    const int run = b->k.n - 1;
    const long long width = b->width, sn = axis_stride(&b->n, p->b.view.s),
                    sk = axis_stride(&b->k.at[run], p->b.view.s);
    const long long chunk = b->chunk;
    text_open(out, "{ /* pack the panel of b */");
    text_line(out, "const @real *from = %s;", b_panel(b, "g", "q", "n"));
    if (b->ragged)
        text_line(out, "const int64_t lanes = @sol_min_i64(%lld, %lld - n * %lld);", width, (long long)b->n.size,
                  width);
    else if (blocking_last(b) == b->width)
        text_line(out, "const int64_t lanes = %lld;", width);
    else
        text_line(out, "const int64_t lanes = n == %lld ? %d : %lld;", (long long)b->panels - 1, blocking_last(b),
                  width);
    text_line(out, "@real *to = panel_b;");
    const char *left = b->chunk_axis < 0 ? ""
                                         : SAY("@sol_min_i64(%lld, %lld - q * %lld)", chunk,
                                               (long long)b->k.at[b->chunk_axis].size, chunk);
    text_line(out, "const int64_t len = %s;", b->chunk_axis == run ? left : SAY("%lld", (long long)b->len));
    text_line(out, "const int64_t nrun = %lld%s;", (long long)b->nrun,
              b->chunk_axis >= 0 && b->chunk_axis != run ? SAY(" / %lld * %s", chunk, left) : "");
    text_open(out, "for (int64_t i = 0; i < nrun; i++) {");
    text_line(out, "const @real *f = from%s;", b->nrun == 1 ? "" : b->runs_vary ? " + run_b[i]" : " + @run_b[i]");
    if (flips(b))
        flip_loops(b, out);
    else {
        text_line(out, "for (int64_t k = 0; k < len; k++)");
        text_line(out, "    for (int64_t j = 0; j < lanes; j++) to[k * %lld + j] = f[%s + %s];", width,
                  text_times(p->arena, "k", sk), text_times(p->arena, "j", sn));
    }
    text_line(out, "to += len * %lld;", width);
    text_close(out, "}");
    text_close(out, "}");
}

/* Prints the address of the weights that are needed after this panel, for prefetching: those of the next panel, the
 * next chunk, or the next outer index or block. */
static void next_panel(const struct blocking *b, struct text *out)
{
    if (b->options.source != B_PACKED || !tile_fetch_lines(b, 1)) return; /* or a caller passes that address */
    const char *g = b->nblock == 1 && b->nouter != 1 ? SAY("(g + 1 < %lld ? g + 1 : 0)", (long long)b->nouter) : "g";
    const char *next = SAY("%s", b_panel(b, g, "0", "lo"));
    if (b->nchunk != 1)
        next = SAY("q < %lld ? %s : %s", (long long)b->nchunk - 1, b_panel(b, "g", "(q + 1)", "lo"), next);
    text_line(out, "const char *next = (const char *)(n + 1 < hi ? %s : %s);", b_panel(b, "g", "q", "(n + 1)"), next);
}

/* The tile's function at the loops' position. */
static const char *tile_name(const struct blocking *b, const struct sizes *sizes, bool part)
{
    const bool odd = blocking_odd(b);
    const struct tile_size *first = &sizes->first;
    if (sizes->one) return SAY("@tile_%d_%d%s", first->rows, first->cols, first->last ? "_last" : "");
    const char *row = sizes->rows > 1 ? "rows" : SAY("%d", first->rows);
    const char *col = sizes->cols > 1 ? "cols" : SAY("%d", first->cols);
    const char *at = SAY("[%s][%s]", row, col);
    if (b->ragged) return SAY("%s%s", part ? "@tiles_last" : "@tiles", at);
    if (odd && b->panels > 1) return SAY("(n == %lld ? @tiles_last%s : @tiles%s)", (long long)b->panels - 1, at, at);
    return SAY("%s%s", odd ? "@tiles_last" : "@tiles", at);
}

/* Do partial sums wait in scratch, tile by tile? */
static bool counts_tiles(const struct blocking *b)
{
    return b->nchunk != 1 && b->partial < 0;
}

static void tile_values(const struct blocking *b, struct text *out, bool part)
{
    const struct problem *p = b->p;
    text_line(out, "int64_t value[%d] = {0};", p->loops->ivars.n);
    for (int i = 0; i < p->loops->ivars.n; i++) {
        if (!set_has(p->valued, i)) continue;
        const char *text = "0";
        for (int k = 0; k < b->outer.n; k++)
            if (b->outer.at[k].ivar[0] == i) text = SAY("g%d", k);
        for (int k = 0; k < b->m.n; k++)
            if (b->m.at[k].n && b->m.at[k].ivar[0] == i) text = SAY("m%d", k);
        if (p->vector == i) text = SAY(part ? "n * %d + v" : "n * %d", b->width);
        text_line(out, "value[%d] = %s;", i, text);
    }
}

/* ", e1 + offset", or ", e1". */
static void view_argument(const struct blocking *b, struct text *out, int view, bool part)
{
    const char *at = view_offset(b, &b->p->view[view], part);
    text_put(out, strcmp(at, "0") ? ", e%d + %s" : ", e%d", view, at);
}

/* part: for vector v of the last panel. */
static void call_tile(const struct blocking *b, const struct tile_finish *f, const struct sizes *sizes, bool part,
                      struct text *out)
{
    const struct problem *p = b->p;
    if (f->value) tile_values(b, out, part);
    text_put(out, "%*s%s(%s%s, w%s", out->indent * 4, "", tile_name(b, sizes, part), problem_frame_argument(p),
             a_position(b), part ? " + v" : "");
    if (b->runs_vary) text_put(out, b->options.source == B_IN_PLACE ? ", run_a, run_b" : ", run_a");
    if (counts_tiles(b))
        text_put(out, ", block_sums + ((n - lo) * %lld + tile) * %lld%s, q", (long long)b->block_tiles,
                 (long long)b->rows * b->cols * b->width, part ? " + v" : "");
    else if (b->nchunk != 1) {
        view_argument(b, out, b->partial, part);
        text_put(out, ", q");
    }
    if (tile_fetch_lines(b, 1)) text_put(out, ", next%s", tile_fetch_varies(b) ? ", fetch" : "");
    if (tile_reads_ahead(b)) text_put(out, ", ahead");
    if (f->value) text_put(out, ", value");
    for (int i = 0; i < p->nview; i++)
        if (f->view[i]) view_argument(b, out, i, part);
    text_put(out, part ? ", @sol_min_i64(%d, lanes - v));\n" : ");\n", b->lanes);
}

static void call_tiles(const struct blocking *b, const struct tile_finish *f, const struct sizes *sizes,
                       struct text *out)
{
    if (b->ragged) {
        text_line(out, "const int64_t lanes = %lld - n * %d;", (long long)b->n.size, b->width);
        text_open(out, "if (lanes >= %d) {", b->width);
        call_tile(b, f, sizes, false, out);
        text_close(out, "} else {");
        out->indent++;
        text_open(out, "for (int64_t v = 0; v < lanes; v += %d) {", b->lanes);
        call_tile(b, f, sizes, true, out);
        text_close(out, "}");
        text_close(out, "}");
    } else {
        call_tile(b, f, sizes, false, out);
    }
    const int64_t of_line = 64 * b->nrun * (b->len / tile_unroll(b)); /* bytes, of one in each unrolled step */
    const int64_t fetched = tile_fetch_lines(b, b->about_tiles) * of_line;
    if (tile_fetch_varies(b))
        text_line(out, "next += fetch * %lld; /* prefetched by this tile */", (long long)of_line);
    else if (fetched)
        text_line(out, "next += %lld; /* prefetched by this tile */", (long long)fetched);
    if (tile_reads_ahead(b)) text_line(out, "ahead = 0;");
    if (counts_tiles(b)) text_line(out, "tile++;");
}

static void operands(const struct blocking *b, const struct tile_finish *f, struct text *out)
{
    const struct problem *p = b->p;
    text_line(out, "const @real *const a = (const @real *)p[%d];", problem_operand(p, p->a.tensor));
    text_line(out, "const @real *const b = (const @real *)p[%d];", problem_operand(p, p->b.tensor));
    for (int i = 0; i < p->nview; i++) {
        const char *type = epilogue_pointer(p, i);
        if (f->view[i] || (b->nchunk != 1 && i == b->partial))
            text_line(out, "%sconst e%d = (%s)p[%d];", type, i, type, problem_operand(p, p->view[i].tensor));
    }
    int64_t at = 0;
    if (b->gather) {
        text_line(out, "@real *const block_a = scratch;");
        at = blocking_gathered(b);
    }
    if (b->partials) text_line(out, "@real *const block_sums = %s;", text_plus(p->arena, "scratch", at));
    at = size_add(at, b->partials);
    if (b->options.source == B_SCRATCH)
        text_line(out, "@real *const panel_b = %s;", text_plus(p->arena, "scratch", at));
}

/* Silences warnings about parameters that this kernel does not need. */
static void unused_parameters(const struct blocking *b, struct text *out)
{
    const bool one = b->options.source == B_CALLER;
    const char *const name[] = {"scratch", "g", "block", "q", "next"};
    const bool used[] = {b->gather || b->partials || b->options.source == B_SCRATCH,
                         b->outer.n > 0 || (b->options.source == B_PACKED && b->nouter != 1), b->nblock != 1,
                         !one || b->chunk_axis >= 0, !one || tile_fetch_lines(b, 1) > 0};
    const char *line = "";
    for (int i = 0; i < COUNT_OF(name); i++)
        if (!used[i]) line = SAY("%s%s(void)%s", line, *line ? ", " : "", name[i]);
    if (*line) text_line(out, "%s;", line);
}

static void block_function(const struct blocking *b, const struct tile_finish *f, const struct sizes *sizes,
                           struct text *out)
{
    const bool one = b->options.source == B_CALLER, chunks = !one && b->chunk_axis >= 0;
    text_put(out, "/* The pixels of one block for %s */\n", one ? "chunk q of panel n" : "the panels [lo, hi)");
    text_put(
        out,
        "@FUNCTION void @block_panels(%schar *const *p, @real *scratch, int64_t g, int64_t block, int64_t %s%s)\n{\n",
        problem_frame(b->p), one ? "n, int64_t q, const char *next" : "lo, int64_t hi",
        b->options.counted ? ", int64_t count" : "");
    out->indent++;
    problem_open_sizes(b->p, out);
    unused_parameters(b, out);
    operands(b, f, out);
    outer_digits(b, out);
    box_ranges(b, out);
    run_arrays(b, out);
    fetch_of_block(b, sizes, out);
    if (chunks) text_open(out, "for (int64_t q = 0; q < %lld; q++) {", (long long)b->nchunk);
    if (b->gather) gather_print(b, out);
    if (!one) text_open(out, "for (int64_t n = lo; n < hi; n++) {");
    if (b->options.source == B_SCRATCH) panel_loops(b, out);
    text_line(out, "const @real *const w = %s;",
              b->options.source == B_SCRATCH ? "panel_b" : b_panel(b, "g", "q", "n"));
    next_panel(b, out);
    if (tile_reads_ahead(b)) text_line(out, "int64_t ahead = n + 1 < hi ? %d : 0;", b->width);
    if (counts_tiles(b)) text_line(out, "int64_t tile = 0;");
    tile_loops(b, sizes, out);
    call_tiles(b, f, sizes, out);
    close_tile_loops(b, out);
    if (!one) text_close(out, "}");
    if (chunks) text_close(out, "}");
    out->indent--;
    text_put(out, "}\n\n");
}

/* The functions of tiles, by rows and columns. */
static void tile_table(const struct blocking *b, const struct sizes *sizes, struct text *out, bool last)
{
    text_put(out, "@TABLE __typeof__(&@tile_%d_%d%s) @tiles%s[%d][%d] = {", sizes->first.rows, sizes->first.cols,
             (b->ragged ? last : sizes->first.last) ? "_last" : "", last ? "_last" : "", b->rows + 1, b->cols + 1);
    for (int r = 1; r <= b->rows; r++)
        for (int c = 1; c <= b->cols; c++)
            if (b->used[last][r][c]) text_put(out, "[%d][%d] = @tile_%d_%d%s, ", r, c, r, c, last ? "_last" : "");
    text_put(out, "};\n");
}

void blocking_print_tasks(const struct blocking *b, struct text *out, const char *operands)
{
    text_line(out, "@real *const scratch = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    struct arena *a = b->p->arena;
    if (b->panels == 1) {
        text_line(out, "for (int64_t t = task0; t < task1; t++) @block_panels(%s%s, scratch, %s, %s, 0, 1);",
                  problem_frame_argument(b->p), operands, text_over(a, "t", b->nblock), text_modulo(a, "t", b->nblock));
        return;
    }
    text_open(out, "for (int64_t t = task0; t < task1;) {");
    text_line(out, "const int64_t lo = t %% %lld, hi = @sol_min_i64(%lld, lo + task1 - t), at = t / %lld;",
              (long long)b->panels, (long long)b->panels, (long long)b->panels);
    text_line(out, "@block_panels(%s%s, scratch, %s, %s, lo, hi);", problem_frame_argument(b->p), operands,
              text_over(a, "at", b->nblock), text_modulo(a, "at", b->nblock));
    text_line(out, "t += hi - lo;");
    text_close(out, "}");
}

void blocking_print_head(const struct blocking *b, struct text *out)
{
    text_put(out, "typedef %s @real;\n\n", c_type(b->p));
}

void blocking_print_block(const struct blocking *b, struct text *out)
{
    if (b->nrun > 1 && !b->runs_vary) {
        text_put(out, "/* offsets of the runs of K in a%s */\n", b->options.source == B_PACKED ? "" : " and b");
        run_table(b, out, "@run_a", b->a_stride);
        if (b->options.source != B_PACKED) run_table(b, out, "@run_b", b->p->b.view.s);
        text_put(out, "\n");
    }
    if (flips(b)) flip_function(b, out);
    struct tile_finish finish = {0};
    tile_print_finish(b, out, &finish);
    for (int last = 0; last < 2; last++)
        for (int r = 1; r <= b->rows; r++)
            for (int c = 1; c <= b->cols; c++)
                if (b->used[last][r][c]) tile_print(b, out, &finish, &(struct tile_size){r, c, last});
    const struct sizes sizes = sizes_of(b);
    const bool odd = blocking_odd(b);
    if (!sizes.one && (b->panels != 1 || !odd)) tile_table(b, &sizes, out, false);
    if (!sizes.one && odd) tile_table(b, &sizes, out, true);
    if (!sizes.one) text_put(out, "\n");
    block_function(b, &finish, &sizes, out);
}

void blocking_kernel(const struct blocking *b, const struct solver_context *sc, struct kernel *out)
{
    struct text text = solver_text(sc);
    blocking_print_head(b, &text);
    blocking_print_block(b, &text);
    kernel_open(&text, 0);
    blocking_print_tasks(b, &text, "p");
    kernel_close(&text);
    out->source = text.at;
    out->nstep = 1;
    out->step[0].tasks = blocking_tasks(b);
    out->scratch_bytes = blocking_scratch(b);
}
