/* The code of a Winograd convolution: transforms on vectors of channels, around the products' blocks. */
#include "dnn/epilogue.h"
#include "dnn/winograd.h"

#define SAY(...) arena_printf(w->p.arena, __VA_ARGS__)

/* -- one-dimensional transforms, on arrays that the compiler keeps in registers */

/* Rows of the input transform of six points, a = sqrt(1/2), b = sqrt(2), are the coefficients of the product of (x - q)
 * over all points q but the row's own, paired by sign. */
static const char *const head6 =
    "@TABLE @real @ca = 0.70710678118654752440, @cb = 1.41421356237309504880, @c2 = 2, @ch = 0.5, @c52 = 2.5;\n"
    "@INLINE void @input_line(const @vec *d, @vec *t)\n{\n"
    "    const @vec ea = d[4] - @c2 * d[2], oa = @ca * d[3] - @cb * d[1], eb = d[4] - @ch * d[2], ob = @cb * d[3] - "
    "@ca * "
    "d[1];\n"
    "    t[0] = d[0] - @c52 * d[2] + d[4];\n"
    "    t[1] = ea + oa;\n    t[2] = ea - oa;\n    t[3] = eb + ob;\n    t[4] = eb - ob;\n"
    "    t[5] = d[1] - @c52 * d[3] + d[5];\n}\n";
static const char *const head4 =
    "@INLINE void @input_line(const @vec *d, @vec *t)\n{\n"
    "    t[0] = d[0] - d[2];\n    t[1] = d[1] + d[2];\n    t[2] = d[2] - d[1];\n    t[3] = d[1] - d[3];\n}\n";

/* " + factor * what", without what is not needed of it; a sum's first term with `first`. */
static void factor_term(struct text *out, bool first, double factor, const char *what)
{
    text_put(out, "%s", first ? "" : " + ");
    if (factor != 1) text_put(out, "(@real)%.20g * ", factor);
    text_put(out, "%s", what);
}

/* The output transform sums powers of the points, paired by sign; the last output has the point at infinity, too. */
void winograd_print_lines(int points, int m, struct text *out)
{
    const int pairs = (points - 2) / 2;
    text_put(out, "%s@INLINE void @output_line(const @vec *m, @vec *o)\n{\n", points == 6 ? head6 : head4);
    for (int p = 0; p < pairs; p++)
        text_put(out, "    const @vec e%d = m[%d] + m[%d], o%d = m[%d] - m[%d];\n", p, 2 * p + 1, 2 * p + 2, p,
                 2 * p + 1, 2 * p + 2);
    for (int i = 0; i < m; i++) {
        text_put(out, "    o[%d] = %s", i, i ? "" : "m[0]");
        for (int p = 0; p < pairs; p++) {
            const struct winograd_pair *pair = &winograd_pairs(points)[p];
            const char name[] = {i % 2 ? 'o' : 'e', (char)('0' + p), 0};
            factor_term(out, i && !p, pair->back * winograd_power(pair, i), name);
        }
        text_put(out, "%s;\n", i < m - 1 ? "" : points == 6 ? " + m[5]" : " - m[3]");
    }
    text_put(out, "}\n\n");
}

static void transforms(const struct winograd *w, struct text *out)
{
    const char *f = w->p.dtype == SOL_F64 ? "f64" : "f32";
    text_put(out, "typedef @%sx%d @vec;\n", f, w->b.lanes);
    winograd_print_lines(w->points, w->m, out);
}

/* -- input */

/* Prints `name(0) name(1) ..`, which are uses of a macro. */
static void uses(const struct winograd *w, struct text *out, const char *name, int n)
{
    struct lines lines = {out, "", out->indent, 0};
    for (int i = 0; i < n; i++) lines_add(&lines, SAY("%s(%d)", name, i));
    lines_end(&lines);
}

/* Defines the macro that transforms column j of one vector of channels from c on, of which `count` exist. */
static void input_column(const struct winograd *w, struct text *out, int count)
{
    const int n = w->points;
    struct lines lines = {out, " \\", 1, 0};
    text_put(out, "#define @input_column%s(j) { /* reads and transforms column j */ \\\n",
             count < w->b.lanes ? "_last" : "");
    lines_add(&lines, SAY("@vec d[%d]%s, o[%d];", n, count < w->b.lanes ? " = {0}" : "", n));
    lines_end(&lines);
    for (int i = 0; i < n; i++) {
        const char *row = text_times(w->p.arena, "rows", i);
        const char *at = SAY("x%s%s + j * cols + c", i ? " + " : "", i ? row : "");
        lines_add(&lines, count < w->b.lanes ? SAY("__builtin_memcpy(&d[%d], %s, %d);", i, at, count * w->p.bytes)
                                             : SAY("d[%d] = *(const @vec *)(%s);", i, at));
    }
    lines_end(&lines);
    lines_add(&lines, "@input_line(d, o);");
    for (int i = 0; i < n; i++) lines_add(&lines, SAY("t[%d][j] = o[%d];", i, i));
    lines_end(&lines);
    text_put(out, "}\n");
}

/* Defines the macro that transforms row i and stores it. */
static void input_row(const struct winograd *w, struct text *out)
{
    const int n = w->points;
    struct lines lines = {out, " \\", 1, 0};
    text_put(out, "#define @input_row(i) { /* transforms and stores row i */ \\\n");
    lines_add(&lines, SAY("@vec o[%d];", n));
    lines_add(&lines, "@input_line(t[i], o);");
    lines_end(&lines);
    for (int j = 0; j < n; j++)
        lines_add(&lines, SAY("*(@vec *)(v + (%s) * INT64_C(%lld) + c) = o[%d];",
                              text_plus(w->p.arena, SAY("i * %d", n), j), (long long)w->v_plane, j));
    lines_end(&lines);
    text_put(out, "}\n");
}

/* One vector of channels from c on. */
static void input_vector(const struct winograd *w, struct text *out, const char *column)
{
    text_line(out, "@vec t[%d][%d];", w->points, w->points);
    uses(w, out, column, w->points);
    uses(w, out, "@input_row", w->points);
}

static void input_macros(const struct winograd *w, struct text *out, int64_t whole)
{
    input_column(w, out, w->b.lanes);
    if (whole < w->channels.size) input_column(w, out, (int)(w->channels.size - whole));
    input_row(w, out);
}

static void input_function(const struct winograd *w, struct text *out)
{
    const int lanes = w->b.lanes;
    const int64_t whole = w->channels.size / lanes * lanes;
    if (!w->p.varies) input_macros(w, out, whole);
    text_put(out, "/* Transforms the %d x %d pixels from x on, all channels, into v. */\n", w->points, w->points);
    text_put(out, "@FUNCTION void @input_tile(%sconst @real *x, int64_t rows, int64_t cols, @real *v)\n{\n",
             problem_frame(&w->p));
    out->indent++;
    problem_open_sizes(&w->p, out);
    if (w->p.varies) input_macros(w, out, whole); /* sizes are declared in the function */
    text_open(out, "for (int64_t c = 0; c < %lld; c += %d) {", (long long)whole, lanes);
    input_vector(w, out, "@input_column");
    text_close(out, "}");
    if (whole < w->channels.size) {
        text_open(out, "{");
        text_line(out, "const int64_t c = %lld;", (long long)whole);
        input_vector(w, out, "@input_column_last");
        text_close(out, "}");
    }
    out->indent--;
    text_put(out, "}\n\n");
}

/* Image digits g0.. and pixel of tile t. */
static void tile_digits(const struct winograd *w, struct text *out)
{
    for (int i = 0; i < w->images.n; i++) {
        int64_t below = size_mul(w->tile_rows, w->tile_cols);
        for (int k = i + 1; k < w->images.n; k++) below = size_mul(below, w->images.at[k].size);
        const char *at = text_over(w->p.arena, "t", below);
        text_line(out, "const int64_t g%d = %s;", i, text_modulo(w->p.arena, at, w->images.at[i].size));
    }
    text_line(out, "const int64_t i = %s, j = %s;",
              text_modulo(w->p.arena, text_over(w->p.arena, "t", w->tile_cols), w->tile_rows),
              text_modulo(w->p.arena, "t", w->tile_cols));
    for (int k = 0; k < 2; k++) {
        const long long d = w->dilation[k], step = w->m * d;
        const char *name = k ? "col" : "row", *at = k ? "j" : "i";
        if (d == 1)
            text_line(out, "const int64_t %s = %s * %lld;", name, at, step);
        else
            text_line(out, "const int64_t %s = %s / %lld * %lld + %s %% %lld;", name, at, d, step, at, d);
    }
}

/* "(x + d - 1) / d": how many steps of dilation d, rows' or columns', reach x. */
static const char *steps(const struct winograd *w, int dim, const char *x)
{
    const long long d = w->dilation[dim];
    return d == 1 ? x : SAY("(%s + %lld) / %lld", x, d - 1, d);
}

/* Where the image and pixel of a view lie from `base` on; with `panel`, from panel n on. */
static const char *image_from(const struct winograd *w, const char *base, const struct view *v, bool panel)
{
    struct offset o = {.arena = w->p.arena, .constant = v->c};
    for (int i = 0; i < w->images.n; i++) offset_add(&o, SAY("g%d", i), axis_stride(&w->images.at[i], v->s));
    offset_add(&o, "row", v->s[w->rows]);
    offset_add(&o, "col", v->s[w->cols]);
    if (panel) offset_add(&o, "n", size_mul(v->s[w->p.vector], w->b.width));
    return offset_from(&o, base);
}

/* Tile t of the input; windows that leave the memory are copied between zeros first. */
static void input_any(const struct winograd *w, struct text *out)
{
    const struct problem *p = &w->p;
    const struct memory *m = &p->c->memory[p->a.tensor];
    const struct loops_tensor *t = &p->loops->tensors.at[p->a.tensor];
    const long long rs = size_mul(p->a.view.s[w->rows], w->dilation[0]),
                    cs = size_mul(p->a.view.s[w->cols], w->dilation[1]), n = w->points;
    const int dim[2] = {w->row_dim, w->col_dim};
    const char *frame = problem_frame_argument(p);
    text_put(out, "@FUNCTION void @input_any(%sconst @real *a, @real *edge, int64_t t, @real *v)\n{\n",
             problem_frame(p));
    out->indent++;
    problem_open_sizes(p, out);
    tile_digits(w, out);
    text_line(out, "const @real *const x = %s;", image_from(w, "a", &p->a.view, false));
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "col" : "row";
        const long long low = -m->halo_low[dim[i]], high = size_add(t->shape[dim[i]], m->halo_high[dim[i]]),
                        c = p->a.index[dim[i]].c;
        text_line(out, "const int64_t %s_from = @sol_max_i64(0, %s), %s_to = @sol_min_i64(%lld, %s);", name,
                  steps(w, i, SAY("%lld - %s", (long long)size_sub(low, c), name)), name, n,
                  steps(w, i, SAY("%lld - %s", (long long)size_sub(high, c), name)));
    }
    text_open(out, "if (row_from == 0 && col_from == 0 && row_to == %lld && col_to == %lld) {", n, n);
    text_line(out, "@input_tile(%sx, %lld, %lld, v);", frame, rs, cs);
    text_line(out, "return;");
    text_close(out, "}");
    text_line(out, "__builtin_memset(edge, 0, sizeof(@real) * %lld);", n * n * (long long)w->v_pitch);
    text_line(out, "for (int64_t r = row_from; r < row_to; r++)");
    text_line(out, "    for (int64_t c = col_from; c < col_to; c++)");
    text_line(out,
              "        __builtin_memcpy(edge + (r * %lld + c) * %lld, x + r * %lld + c * %lld, sizeof(@real) * %lld);",
              n, (long long)w->v_pitch, rs, cs, (long long)w->channels.size);
    text_line(out, "@input_tile(%sedge, %lld, %lld, v);", frame, n * (long long)w->v_pitch, (long long)w->v_pitch);
    out->indent--;
    text_put(out, "}\n\n");
}

/* -- output */

struct placing {
    const struct winograd *w;
    const char *i, *j, *c;
};

static const char *place(void *user, struct text *out, int view)
{
    const struct placing *at = user;
    const struct winograd *w = at->w;
    const int64_t *s = w->p.view[view].s;
    (void)out;
    struct offset o = {.arena = w->p.arena};
    offset_add(&o, at->i, size_mul(s[w->rows], w->dilation[0]));
    offset_add(&o, at->j, size_mul(s[w->cols], w->dilation[1]));
    offset_add(&o, at->c, size_mul(s[w->p.vector], w->b.lanes));
    return offset_text(&o);
}

/* Defines the macro that transforms column j of vector c of the products. */
static void output_column(const struct winograd *w, struct text *out)
{
    const int n = w->points, m = w->m;
    struct lines lines = {out, " \\", 1, 0};
    text_put(out, "#define @output_column(j) { /* reads and transforms column j */ \\\n");
    lines_add(&lines, SAY("@vec d[%d], r[%d];", n, m));
    lines_end(&lines);
    for (int i = 0; i < n; i++)
        lines_add(&lines,
                  SAY("d[%d] = *(const @vec *)(m + %s * INT64_C(%lld) + c * %d);", i,
                      text_enclosed(w->p.arena, text_plus(w->p.arena, "j", i * n)), (long long)w->m_plane, w->b.lanes));
    lines_end(&lines);
    lines_add(&lines, "@output_line(d, r);");
    for (int i = 0; i < m; i++) lines_add(&lines, SAY("t[%d][j] = r[%d];", i, i));
    lines_end(&lines);
    text_put(out, "}\n");
}

static void output_vector(const struct winograd *w, struct text *out, int valid)
{
    struct placing at = {.w = w, .c = "c"};
    struct epilogue e = {.p = &w->p, .target = w->target, .lanes = w->b.lanes, .place = place, .user = &at};
    const int n = w->points, m = w->m;
    text_line(out, "@vec t[%d][%d], o[%d][%d];", m, n, m, m);
    at.i = at.j = "0";
    for (int v = 0; v < w->p.nview; v++) {
        const int64_t *s = w->p.view[v].s;
        if (w->p.view[v].node && !s[w->rows] && !s[w->cols]) e.held[v] = epilogue_hold(&e, out, v, valid);
    }
    uses(w, out, "@output_column", n);
    struct lines lines = {out, "", out->indent, 0};
    for (int i = 0; i < m; i++) lines_add(&lines, SAY("@output_line(t[%d], o[%d]);", i, i));
    lines_end(&lines);
    text_line(out, "for (int64_t i = 0; i < rows; i++)");
    text_open(out, "for (int64_t j = 0; j < cols; j++) {");
    at.i = "i", at.j = "j";
    text_line(out, "const @vec sum = o[i][j];");
    epilogue_print(&e, out, "sum", valid);
    text_close(out, "}");
}

static void output_function(const struct winograd *w, struct text *out)
{
    const int lanes = w->b.lanes;
    const bool odd = w->b.n.size % lanes;
    if (!w->p.varies) output_column(w, out);
    text_put(out, "/* Transforms the products m into `rows` x `cols` pixels of `vectors` vectors of channels. */\n");
    text_put(out, "@FUNCTION void @output_tile(%sconst @real *m, int64_t rows, int64_t cols, int64_t vectors%s",
             problem_frame(&w->p), odd ? ", int last" : "");
    epilogue_parameters(&w->p, out);
    text_put(out, ")\n{\n");
    out->indent++;
    problem_open_sizes(&w->p, out);
    if (w->p.varies) output_column(w, out);
    text_open(out, "for (int64_t c = 0; c < vectors%s; c++) {", odd ? " - last" : "");
    output_vector(w, out, lanes);
    text_close(out, "}");
    if (odd) {
        text_open(out, "if (last) {");
        text_line(out, "const int64_t c = vectors - 1;");
        output_vector(w, out, (int)(w->b.n.size % lanes));
        text_close(out, "}");
    }
    epilogue_parameters_used(&w->p, out);
    out->indent--;
    text_put(out, "}\n\n");
}

/* Panel n of tile t from its products. */
static void output_any(const struct winograd *w, struct text *out)
{
    const struct problem *p = &w->p;
    const struct blocking *b = &w->b;
    const int vectors = (blocking_last(b) + b->lanes - 1) / b->lanes;
    text_put(out, "@FUNCTION void @output_any(%schar *const *p, const @real *m, int64_t t, int64_t n)\n{\n",
             problem_frame(p));
    out->indent++;
    problem_open_sizes(p, out);
    tile_digits(w, out);
    for (int k = 0; k < 2; k++) {
        const long long size = p->loops->ivars.at[k ? w->cols : w->rows].size;
        text_line(out, "const int64_t %s = @sol_min_i64(%d, %s);", k ? "cols" : "rows", w->m,
                  steps(w, k, SAY("%lld - %s", size, k ? "col" : "row")));
    }
    const char *last = b->panels > 1 ? SAY("n == %lld", (long long)b->panels - 1) : "1";
    text_put(out, "    @output_tile(%sm, rows, cols, %s%s%s", problem_frame_argument(p),
             b->panels == 1 || vectors == b->vectors ? SAY("%d", vectors)
                                                     : SAY("%s ? %d : %d", last, vectors, b->vectors),
             b->n.size % b->lanes ? ", " : "", b->n.size % b->lanes ? last : "");
    for (int i = 0; i < p->nview; i++) {
        const char *type = dtype_def(p->loops->tensors.at[p->view[i].tensor].dtype)->c_name;
        const char *base =
            SAY("(%s%s *)p[%d]", p->view[i].node ? "const " : "", type, problem_operand(p, p->view[i].tensor));
        text_put(out, ",\n        %s", image_from(w, base, &p->view[i], true));
    }
    text_put(out, ");\n");
    out->indent--;
    text_put(out, "}\n\n");
}

/* -- weights */

/* The weights' transform of one line, its rows paired by the points' signs. */
static void weight_line(const struct winograd *w, struct text *out)
{
    const int n = w->points, taps = w->taps;
    const double *g = winograd_weights_table(w->p.arena, n, taps);
    text_put(out, "@INLINE void @weight_line(const @vec *g, @vec *t)\n{\n"
                  "    t[0] = g[0];\n");
    for (int i = 1; i < n - 1; i += 2) {
        for (int odd = 0; odd < 2; odd++) {
            text_put(out, "    const @vec %c%d = ", odd ? 'o' : 'e', i);
            for (int k = odd; k < taps; k += 2) factor_term(out, k == odd, g[i * taps + k], SAY("g[%d]", k));
            text_put(out, ";\n");
        }
        text_put(out, "    t[%d] = e%d + o%d;\n    t[%d] = e%d - o%d;\n", i, i, i, i + 1, i, i);
    }
    text_put(out, "    t[%d] = g[%d];\n}\n", n - 1, taps - 1);
}

struct weight_strides {
    int64_t row, col, lane; /* elements between the window's rows and columns, and between outputs, in w */
    int64_t plane;          /* and between points in u */
};

/* One vector of outputs, of which `valid` exist, from w to u. */
static void weight_vector(const struct winograd *w, struct text *out, const struct weight_strides *s, int64_t valid)
{
    const struct blocking *b = &w->b;
    const int n = w->points;
    text_line(out, "@vec h[%d][%d];", n, w->taps);
    for (int j = 0; j < w->taps; j++) {
        text_line(out, "{ @vec g[%d], o[%d];", w->taps, n);
        for (int i = 0; i < w->taps; i++) {
            const int64_t at = i * s->row + j * s->col;
            if (s->lane == 1 && valid == b->lanes) {
                text_line(out, "g[%d] = *(const @vec *)(%s);", i, text_plus(w->p.arena, "w", at));
                continue;
            }
            text_put(out, "%*sg[%d] = (@vec){", out->indent * 4, "", i);
            for (int64_t l = 0; l < b->lanes; l++)
                text_put(out, l < valid ? "%sw[%lld]" : "%s0", l ? ", " : "", (long long)(at + l * s->lane));
            text_put(out, "};\n");
        }
        text_line(out, "@weight_line(g, o);");
        text_line(out, "for (int i = 0; i < %d; i++) h[i][%d] = o[i]; }", n, j);
    }
    text_open(out, "for (int i = 0; i < %d; i++) {", n);
    text_line(out, "@vec o[%d];", n);
    text_line(out, "@weight_line(h[i], o);");
    text_line(out, "for (int j = 0; j < %d; j++) *(@vec *)(u + (i * %d + j) * INT64_C(%lld)) = o[j];", n, n,
              (long long)s->plane);
    text_close(out, "}");
}

/* The operand that holds the transformed weights. */
static int weights_operand(const struct winograd *w)
{
    return w->weights ? problem_work(&w->p) : problem_operand(&w->p, w->p.b.tensor);
}

/* -- steps */

/* A task is a panel of a chunk. */
static void weights_step(const struct winograd *w, struct text *out)
{
    const struct problem *p = &w->p;
    const struct blocking *b = &w->b;
    const int64_t *s = p->b.view.s;
    const long long in = axis_stride(&w->channels, s), lane = axis_stride(&w->outputs, s);
    const struct weight_strides strides = {s[w->tap_rows], s[w->tap_cols], lane,
                                           b->nchunk * b->panels * b->panel_elements};
    kernel_open(out, 0);
    text_open(out, "for (int64_t task = task0; task < task1; task++) {");
    text_line(out, "const int64_t chunk = %s, panel = %s;", text_over(p->arena, "task", b->panels),
              text_modulo(p->arena, "task", b->panels));
    text_line(out, "const int64_t c0 = chunk * %lld, c1 = @sol_min_i64(%lld, c0 + %lld);", (long long)b->len,
              (long long)w->channels.size, (long long)b->len);
    text_open(out, "for (int64_t c = c0; c < c1; c++) {");
    struct offset at = {.arena = p->arena, .constant = p->b.view.c};
    offset_add(&at, "c", in);
    offset_add(&at, "panel", b->width * lane);
    text_line(out, "const @real *w = %s;",
              offset_from(&at, SAY("(const @real *)p[%d]", problem_operand(p, p->b.tensor))));
    text_line(out, "@real *u = (@real *)p[%d] + (task * %lld + c - c0) * %d;", problem_work(&w->p), (long long)b->len,
              b->width);
    const int64_t rest = w->outputs.size % b->lanes;
    text_line(out, "int64_t vectors = @sol_min_i64(%lld, %lld - panel * %lld);", (long long)b->vectors,
              (long long)(w->outputs.size / b->lanes), (long long)b->vectors);
    text_open(out, "for (; vectors > 0; vectors--, w += %lld, u += %d) {", b->lanes * lane, b->lanes);
    weight_vector(w, out, &strides, b->lanes);
    text_close(out, "}");
    if (rest) {
        text_open(out, "if (panel == %lld) {", (long long)b->panels - 1);
        weight_vector(w, out, &strides, rest);
        text_close(out, "}");
    }
    text_close(out, "}");
    text_close(out, "}");
    text_line(out, "(void)f, (void)worker;");
    kernel_close(out);
    text_put(out, "\n");
}

static void task_step(const struct winograd *w, struct text *out)
{
    const long long x = (long long)w->points * w->points;
    const long long v_at = x * w->v_pitch, m_at = v_at + x * w->v_plane;
    kernel_open(out, w->weights);
    text_line(out, "@real *const edge = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    text_line(out, "@real *const v = edge + %lld, *const m = edge + %lld;", v_at, m_at);
    text_open(out, "for (int64_t task = task0; task < task1; task++) {");
    text_line(out, "const int64_t t0 = task * %lld, count = @sol_min_i64(%lld, %lld - t0);", (long long)w->group,
              (long long)w->group, (long long)w->tiles);
    const char *frame = problem_frame_argument(&w->p);
    text_line(out,
              "for (int64_t i = 0; i < count; i++) @input_any(%s(const @real *)p[%d], edge, t0 + i, v + i * %lld);",
              frame, problem_operand(&w->p, w->p.a.tensor), (long long)w->v_pitch);
    text_open(out, "for (int64_t n = 0; n < %lld; n++) {", (long long)w->b.panels);
    text_line(out, "char *const q[3] = {(char *)v, p[%d], (char *)(m - n * %d)};", weights_operand(w), w->b.width);
    text_line(out, "for (int64_t g = 0; g < %lld; g++) @block_panels(%sq, 0, g, 0, n, n + 1%s);", x,
              problem_frame_argument(&w->product), w->b.options.counted ? ", count" : "");
    text_line(out, "for (int64_t i = 0; i < count; i++) @output_any(%sp, m + i * %lld, t0 + i, n);", frame,
              (long long)w->m_pitch);
    text_close(out, "}");
    text_close(out, "}");
    kernel_close(out);
}

static void input_step(const struct winograd *w, struct text *out, int first, int v)
{
    kernel_open(out, first);
    text_line(out, "@real *const edge = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    text_line(
        out,
        "for (int64_t t = task0; t < task1; t++) @input_any(%s(const @real *)p[%d], edge, t, (@real *)p[%d] + t * "
        "%lld);",
        problem_frame_argument(&w->p), problem_operand(&w->p, w->p.a.tensor), v, (long long)w->v_pitch);
    kernel_close(out);
    text_put(out, "\n");
}

/* A task is a panel of outputs. */
static void panel_steps(const struct winograd *w, struct text *out)
{
    const struct blocking *b = &w->b;
    const int v = problem_work(&w->p);
    const long long x = (long long)w->points * w->points, taps = (long long)w->taps * w->taps, width = b->width;
    const struct weight_strides strides = {w->taps * width, width, 1, w->u_plane};
    input_step(w, out, 0, v);
    kernel_open(out, 1);
    text_line(
        out,
        "@real *const points = (@real *)((char *)f->scratch + worker * f->scratch_bytes), *const m = points + %lld;",
        x * w->u_plane);
    text_open(out, "for (int64_t n = task0; n < task1; n++) {");
    text_open(out, "for (int64_t q = 0; q < %lld; q++) {", (long long)b->nchunk);
    text_line(out, "const @real *const weights = (const @real *)p[%d] + (n * %lld + q) * INT64_C(%lld);",
              weights_operand(w), (long long)b->nchunk, b->panel_elements * taps);
    text_line(out, "const char *const next = (const char *)(weights + INT64_C(%lld));", b->panel_elements * taps);
    text_open(out, "for (int64_t c = 0; c < %lld; c++) {", (long long)b->len);
    text_open(out, "for (int64_t j = 0; j < %lld; j += %d) {", width, b->lanes);
    text_line(out, "const @real *const w = weights + c * %lld + j;", taps * width);
    text_line(out, "@real *const u = points + c * %lld + j;", width);
    weight_vector(w, out, &strides, b->lanes);
    text_close(out, "}");
    text_close(out, "}");
    text_open(out, "for (int64_t g = 0; g < %lld; g++) {", x);
    text_line(out, "char *const at[3] = {p[%d], (char *)(points + g * %lld), (char *)(m - n * %lld)};", v,
              (long long)w->u_plane, width);
    text_line(out, "@block_panels(at, 0, g, 0, n, q, next + g * %lld);", (long long)b->options.fetch);
    text_close(out, "}");
    text_close(out, "}");
    text_line(out, "for (int64_t t = 0; t < %lld; t++) @output_any(p, m + t * %lld, t, n);", (long long)w->tiles,
              (long long)w->m_pitch);
    text_close(out, "}");
    kernel_close(out);
}

static void three_steps(const struct winograd *w, struct text *out)
{
    const struct blocking *b = &w->b;
    const int first = w->weights, v = problem_work(&w->p) + first, m = v + 1;
    input_step(w, out, first, v);
    kernel_open(out, first + 1);
    text_line(out, "char *const q[3] = {p[%d], p[%d], p[%d]};", v, weights_operand(w), m);
    blocking_print_tasks(b, out, "q");
    kernel_close(out);
    text_put(out, "\n");
    kernel_open(out, first + 2);
    text_open(out, "for (int64_t task = task0; task < task1; task++) {");
    text_line(out, "const int64_t t = %s, n = %s;", text_over(w->p.arena, "task", b->panels),
              text_modulo(w->p.arena, "task", b->panels));
    text_line(out, "@output_any(%sp, (const @real *)p[%d] + t * %lld + n * %d, t, n);", problem_frame_argument(&w->p),
              m, (long long)w->m_pitch, b->width);
    text_close(out, "}");
    text_line(out, "(void)f, (void)worker;");
    kernel_close(out);
}

void winograd_print(struct winograd *w, struct text *out)
{
    blocking_print_head(&w->b, out);
    blocking_print_block(&w->b, out);
    transforms(w, out);
    input_function(w, out);
    input_any(w, out);
    output_function(w, out);
    output_any(w, out);
    if (w->weights || w->schedule == WINOGRAD_PANEL) weight_line(w, out);
    if (w->weights) weights_step(w, out);
    static void (*const steps[])(const struct winograd *, struct text *) = {
        [WINOGRAD_TASK] = task_step, [WINOGRAD_STEPS] = three_steps, [WINOGRAD_PANEL] = panel_steps};
    steps[w->schedule](w, out);
}
