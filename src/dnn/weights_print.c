/* Prints the code of a long sum: the micro-kernel, packing, the functions of the steps. */
#include "dnn/epilogue.h"
#include "dnn/weights.h"

#define SAY(...) arena_printf(w->p.arena, __VA_ARGS__)

const char *weights_vector(const struct weights *w)
{
    return SAY("@%sx%d", w->p.dtype == SOL_F64 ? "f64" : "f32", w->lanes);
}

void weights_digits(const struct weights *w, struct text *out, const struct axes *x, char ivar, const char *index)
{
    for (int i = 0; i < x->n; i++) {
        int64_t below = 1;
        for (int k = i + 1; k < x->n; k++) below = size_mul(below, x->at[k].size);
        const char *at = text_over(w->p.arena, index, below);
        text_line(out, "const int64_t %c%d = %s;", ivar, i, text_modulo(w->p.arena, at, x->at[i].size));
    }
}

static void begin(struct text *out, const char *head)
{
    text_put(out, "%s", head);
    out->indent++;
}
/* Of a function with sizes. */
static void begin_sized(const struct weights *w, struct text *out, const char *name, const char *parameters)
{
    text_put(out, "@FUNCTION void @%s(%s%s)\n{\n", name, problem_frame(&w->p), parameters);
    out->indent++;
    problem_open_sizes(&w->p, out);
}
static void end(struct text *out)
{
    out->indent--;
    text_put(out, "}\n\n");
}

/* -- the micro-kernel */

static int64_t pitch_at(const struct weights *w, const struct weights_side *s, int level)
{
    const int64_t row = s->extent[WEIGHTS_COLS] * s->pitch;
    (void)w;
    return level == WEIGHTS_COLS ? s->pitch : level == WEIGHTS_ROWS ? row : s->extent[WEIGHTS_ROWS] * row;
}

#define EACH(w, r, v)                   \
    for (int r = 0; r < (w)->rows; r++) \
        for (int v = 0; v < (w)->vectors; v++)

static const char *sums_at(const struct weights *w, int r, int v)
{
    return text_plus(w->p.arena, "sums", r * w->width + v * w->lanes);
}

static void micro_kernel(const struct weights *w, struct text *out)
{
    const struct weights_side *a = &w->a, *b = &w->b;
    text_put(out, "/* %d rows by %d vectors: sums += a * b over images x rows x cols pixels */\n", w->rows, w->vectors);
    begin(out, "@NOINLINE void @rank1(const @real *a, const @real *b, @real *sums, int64_t images, "
               "int64_t rows, int64_t cols, int64_t add)\n{\n");
    EACH(w, r, v) text_line(out, "@vec s%d_%d = {0};", r, v);
    text_line(out, "for (int64_t i = 0; i < images; i++)");
    text_open(out, "for (int64_t j = 0; j < rows; j++) {");
    text_line(out, "const @real *x = a + i * %lld + j * %lld, *y = b + i * %lld + j * %lld;",
              (long long)pitch_at(w, a, -1), (long long)(a->step[0] * pitch_at(w, a, 0)), (long long)pitch_at(w, b, -1),
              (long long)(b->step[0] * pitch_at(w, b, 0)));
    text_open(out, "for (int64_t k = 0; k < cols; k++) {");
    for (int v = 0; v < w->vectors; v++)
        text_line(out, "const @vec y%d = *(const @vec *)(%s);", v, text_plus(w->p.arena, "y", v * w->lanes));
    for (int r = 0; r < w->rows; r++) {
        text_put(out, "%*s{ const @real e = x[%d];", out->indent * 4, "", r);
        for (int v = 0; v < w->vectors; v++) text_put(out, " s%d_%d += e * y%d;", r, v, v);
        text_put(out, " }\n");
    }
    text_line(out, "x += %lld, y += %lld;", (long long)(a->step[1] * a->pitch), (long long)(b->step[1] * b->pitch));
    text_close(out, "}");
    text_close(out, "}");
    text_open(out, "if (add) {");
    EACH(w, r, v) text_line(out, "s%d_%d += *(const @vec *)(%s);", r, v, sums_at(w, r, v));
    text_close(out, "}");
    EACH(w, r, v) text_line(out, "*(@vec *)(%s) = s%d_%d;", sums_at(w, r, v), r, v);
    end(out);
}

/* -- packing */

/* Prints how one pixel of the panels `from` to `to` is packed. Only `valid` channels of each panel exist. */
static void pack_pixel(const struct weights *w, struct text *out, const struct weights_side *s, int64_t valid)
{
    const long long bytes = w->p.bytes, panel = s->panel;
    text_open(out, "for (int64_t q = 0; q < panels; q++) {");
    text_line(out, "@real *const at = to + q * %lld;", (long long)s->size);
    if (s->stride == 1)
        text_line(out, "__builtin_memcpy(at, from + q * %lld, %lld);", panel, valid * bytes);
    else
        text_line(out, "for (int64_t l = 0; l < %lld; l++) at[l] = from[(q * %lld + l) * INT64_C(%lld)];",
                  (long long)valid, panel, (long long)s->stride);
    if (valid < panel)
        text_line(out, "__builtin_memset(at + %lld, 0, %lld);", (long long)valid, (panel - valid) * bytes);
    text_close(out, "}");
}

/* Prints the loop of a level over packed pixels. It skips (`continue`) pixels outside of the operand after zeroing
 * them. */
static void pack_level(const struct weights *w, struct text *out, const struct weights_side *s, int level)
{
    const struct weights_level *l = &w->level[level];
    const struct memory *m = &w->p.c->memory[s->o->tensor];
    const bool window = s->window && l->tap >= 0, row = level == WEIGHTS_ROWS;
    const char *n = row ? "rows" : "cols", *i = row ? "j" : "k", *first = row ? "row" : "col";
    if (window)
        text_line(out, "const int64_t n%s = %s;", n,
                  text_plus(w->p.arena, text_times(w->p.arena, n, l->step), l->dist * (l->taps - 1) + 1 - l->step));
    else
        text_line(out, "const int64_t n%s = %s;", n, n);
    text_open(out, "for (int64_t %s = 0; %s < n%s; %s++) {", i, i, n, i);
    const int64_t stride = window ? m->stride[l->dim] : axis_stride(&l->axis, s->o->view.s);
    text_line(out, "const @real *const %s = %s + (%s + %s) * INT64_C(%lld);", row ? "from_row" : "from",
              row ? "from_image" : "from_row", text_times(w->p.arena, first, window ? l->step : 1), i,
              (long long)stride);
    text_line(out, "@real *const %s = %s + %s * %lld;", row ? "to_row" : "to", row ? "to_image" : "to_row", i,
              (long long)pitch_at(w, s, level));
    if (!window || !s->o->border[l->dim]) return;
    const struct loops_tensor *t = &w->p.loops->tensors.at[s->o->tensor];
    const char *at = SAY("%s + %s", text_times(w->p.arena, first, l->step), i);
    text_line(out, "const int64_t %s_at = %s;", first, text_plus(w->p.arena, at, s->o->index[l->dim].c));
    text_open(out, "if (%s_at < %d || %s_at >= %lld) {", first, -m->halo_low[l->dim], first,
              (long long)size_add(t->shape[l->dim], m->halo_high[l->dim]));
    text_line(out, "for (int64_t q = 0; q < panels; q++) __builtin_memset(%s + q * %lld, 0, %lld);",
              row ? "to_row" : "to", (long long)s->size,
              (long long)((row ? s->extent[WEIGHTS_COLS] : 1) * s->pitch * w->p.bytes));
    text_line(out, "continue;");
    text_close(out, "}");
}

static void pack_function(const struct weights *w, struct text *out, const struct weights_side *s, bool last)
{
    const char name = s == &w->a ? 'a' : 'b';
    const int64_t valid = last ? s->channels.size - (s->panels - 1) * s->panel : s->panel;
    begin_sized(
        w, out, SAY("pack_%c%s", name, last ? "_last" : ""),
        "const @real *x, @real *panel, int64_t panels, int64_t image, int64_t images, int64_t row, int64_t rows, "
        "int64_t col, int64_t cols");
    text_open(out, "for (int64_t i = 0; i < images; i++) {");
    text_line(out, "const int64_t n = image + i;");
    weights_digits(w, out, &w->images, 'n', "n");
    struct offset from = {.arena = w->p.arena};
    for (int i = 0; i < w->images.n; i++) offset_add(&from, SAY("n%d", i), axis_stride(&w->images.at[i], s->o->view.s));
    text_line(out, "const @real *const from_image = %s;", offset_from(&from, "x"));
    text_line(out, "@real *const to_image = panel + i * %lld;", (long long)pitch_at(w, s, -1));
    pack_level(w, out, s, WEIGHTS_ROWS);
    pack_level(w, out, s, WEIGHTS_COLS);
    pack_pixel(w, out, s, valid);
    text_close(out, "}");
    text_close(out, "}");
    text_line(out, "(void)n;");
    text_close(out, "}");
    end(out);
}

static void pack_functions(const struct weights *w, struct text *out, const struct weights_side *s)
{
    const bool odd = s->channels.size % s->panel;
    if (!odd || s->panels > 1) pack_function(w, out, s, false);
    if (odd) pack_function(w, out, s, true);
}

/* Prints the packing of panels `from` to `to`; there is at least one. */
static void pack_call(const struct weights *w, struct text *out, const struct weights_side *s, const char *from,
                      const char *to, const char *memory)
{
    const char name = s == &w->a ? 'a' : 'b';
    const bool odd = s->channels.size % s->panel;
    const long long step = size_mul(s->panel, s->stride);
    const char *pixels = "image, images, row, rows, col, cols", *frame = problem_frame_argument(&w->p);
    if (odd && s->panels > 1)
        text_line(out, "const int64_t full_%c = @sol_min_i64(%s, %lld);", name, to, (long long)s->panels - 1);
    if (!odd || s->panels > 1)
        text_line(out, "@pack_%c(%s%c + %s * INT64_C(%lld), %s, %s - %s, %s);", name, frame, name, from, step, memory,
                  odd ? SAY("full_%c", name) : to, from, pixels);
    if (odd)
        text_line(out, "%s@pack_%c_last(%s%c + INT64_C(%lld), %s + (%lld - %s) * %lld, 1, %s);",
                  s->panels > 1 ? SAY("if (%s == %lld) ", to, (long long)s->panels) : "", name, frame, name,
                  (long long)size_mul(s->panels - 1, step), memory, (long long)s->panels - 1, from, (long long)s->size,
                  pixels);
}

/* -- a chunk */

/* Prints the range of the chunk's part number `at` of `size` elements in `pieces` parts. */
static void chunk_range(struct text *out, const char *what, const char *at, int64_t size, int64_t pieces)
{
    if (pieces == 1) {
        text_line(out, "const int64_t %s = 0, %ss = %lld;", what, what, (long long)size);
        return;
    }
    text_line(out, "const int64_t %s_part = %s;", what, at);
    text_line(out, "const int64_t %s = %s_part * %lld / %lld, %ss = (%s_part + 1) * %lld / %lld - %s;", what, what,
              (long long)size, (long long)pieces, what, what, (long long)size, (long long)pieces, what);
}

/* How many elements tap number `tap` of a level moves one side's packed pixels. */
static int64_t tap_shift(const struct weights *w, const struct weights_side *s, int level)
{
    return s->window && w->level[level].tap >= 0 ? w->level[level].dist * pitch_at(w, s, level) : 0;
}

static void direct_chunk(const struct weights *w, struct text *out)
{
    const struct weights_level *l = w->level;
    begin_sized(w, out, "chunk_sums",
                "const @real *a, const @real *b, @real *scratch, @real *sums, int64_t chunk, int64_t m0, int64_t m1, "
                "int64_t n0, int64_t n1, int64_t add");
    text_line(out, "@real *const pack = scratch + %lld;", (long long)(w->a.size * MIN(WEIGHTS_TOGETHER, w->a.block)));
    struct arena *a = w->p.arena;
    chunk_range(out, "image", text_over(a, "chunk", size_mul(l[0].nbox, l[1].nbox)), w->nimage, w->image_nbox);
    chunk_range(out, "row", text_modulo(a, text_over(a, "chunk", l[1].nbox), l[0].nbox), l[0].axis.size, l[0].nbox);
    chunk_range(out, "col", text_modulo(a, "chunk", l[1].nbox), l[1].axis.size, l[1].nbox);
    if (w->nchunk == 1) text_line(out, "(void)chunk;");
    pack_call(w, out, &w->b, "n0", "n1", "pack");
    text_open(out, "for (int64_t m2 = m0; m2 < m1; m2 += %d) {", WEIGHTS_TOGETHER);
    text_line(out, "const int64_t m3 = @sol_min_i64(m1, m2 + %d);", WEIGHTS_TOGETHER);
    pack_call(w, out, &w->a, "m2", "m3", "scratch");
    text_line(out, "for (int64_t m = m2; m < m3; m++)");
    text_line(out, "    for (int64_t n = n0; n < n1; n++)");
    text_line(out, "        for (int64_t i = 0; i < %lld; i++)", (long long)l[0].taps);
    text_line(out, "            for (int64_t j = 0; j < %lld; j++)", (long long)l[1].taps);
    text_line(out, "                @rank1(scratch + (m - m2) * %lld + i * %lld + j * %lld,", (long long)w->a.size,
              (long long)tap_shift(w, &w->a, 0), (long long)tap_shift(w, &w->a, 1));
    text_line(out, "                      pack + (n - n0) * %lld + i * %lld + j * %lld,", (long long)w->b.size,
              (long long)tap_shift(w, &w->b, 0), (long long)tap_shift(w, &w->b, 1));
    text_line(out, "                      sums + (((i * %lld + j) * %lld + m - m0) * %lld + n - n0) * %d,",
              (long long)l[1].taps, (long long)w->a.block, (long long)w->b.block, w->rows * w->width);
    text_line(out, "                      images, rows, cols, add);");
    text_close(out, "}");
    end(out);
}

/* -- results */

struct placing {
    const struct weights *w;
};

static const char *place(void *user, struct text *out, int view)
{
    const struct weights *w = ((const struct placing *)user)->w;
    const int64_t *s = w->p.view[view].s;
    const char *text = SAY("r * INT64_C(%lld) + v * INT64_C(%lld)", (long long)axis_stride(&w->a.channels, s),
                           (long long)size_mul(axis_stride(&w->b.channels, s), w->lanes));
    (void)out;
    for (int i = 0; i < WEIGHTS_LEVELS; i++)
        if (w->level[i].tap >= 0)
            text = SAY("%s + %c * INT64_C(%lld)", text, i ? 'j' : 'i', (long long)s[w->level[i].tap]);
    return SAY("(%s)", text);
}

static void result_vector(const struct weights *w, struct text *out, int valid)
{
    struct placing at = {w};
    struct epilogue e = {.p = &w->p, .target = w->target, .lanes = w->lanes, .place = place, .user = &at};
    const char *from = SAY("r * %d + v * %d", w->width, w->lanes);
    if (w->winograd) weights_winograd_result(w, out, from);
    text_line(out, "for (int64_t i = 0; i < %lld; i++)", (long long)w->level[0].taps);
    text_open(out, "for (int64_t j = 0; j < %lld; j++) {", (long long)w->level[1].taps);
    if (w->winograd)
        text_line(out, "const @vec sum = o[i][j];");
    else
        text_line(out, "const @vec sum = @total(sums + (i * %lld + j) * INT64_C(%lld) + %s);",
                  (long long)w->level[1].taps, (long long)(w->a.block * w->b.block * w->rows * w->width), from);
    epilogue_print(&e, out, "sum", valid);
    text_close(out, "}");
}

/* Prints the results of one panel of a and one of b, all taps together: consecutive writes are in the same cache
 * lines. */
static void result_function(const struct weights *w, struct text *out, bool last)
{
    const int64_t lanes = last ? w->b.channels.size - (w->b.panels - 1) * w->width : w->width;
    const int valid = (int)(lanes % w->lanes);
    text_put(out, "@FUNCTION void @result%s(%sconst @real *sums, int64_t rows", last ? "_last" : "",
             problem_frame(&w->p));
    epilogue_parameters(&w->p, out);
    text_put(out, ")\n{\n");
    out->indent++;
    problem_open_sizes(&w->p, out);
    epilogue_parameters_used(&w->p, out);
    text_open(out, "for (int64_t r = 0; r < rows; r++) {");
    if (lanes >= w->lanes) {
        text_open(out, "for (int64_t v = 0; v < %lld; v++) {", (long long)(lanes / w->lanes));
        result_vector(w, out, w->lanes);
        text_close(out, "}");
    }
    if (valid) {
        text_open(out, "{");
        text_line(out, "const int64_t v = %lld;", (long long)(lanes / w->lanes));
        result_vector(w, out, valid);
        text_close(out, "}");
    }
    text_close(out, "}");
    end(out);
}

static void total_function(const struct weights *w, struct text *out)
{
    begin(out, "/* The sum over all groups of chunks. */\n@HELPER @vec @total(const @real *at)\n{\n");
    text_line(out, "@vec s = *(const @vec *)at;");
    if (w->ngroup > 1)
        text_line(out, "for (int64_t i = 1; i < %lld; i++) s += *(const @vec *)(at + i * INT64_C(%lld));",
                  (long long)w->ngroup, (long long)w->sums);
    text_line(out, "return s;");
    end(out);
}

/* Prints the results of panel m of a and the panels n0 to n1 of b. */
static void panel_results(const struct weights *w, struct text *out)
{
    const struct problem *p = &w->p;
    const bool odd = w->b.channels.size % w->width;
    const struct weights_side *a = &w->a;
    begin_sized(w, out, "results", "char *const *p, const @real *sums, int64_t g, int64_t m, int64_t n0, int64_t n1");
    text_line(out, "(void)p, (void)g;");
    weights_digits(w, out, &w->outer, 'g', "g");
    text_line(out, "const int64_t rows = @sol_min_i64(%d, %lld - m * %d);", w->rows, (long long)a->channels.size,
              w->rows);
    text_open(out, "for (int64_t n = n0; n < n1; n++) {");
    for (int last = 0; last < 2; last++) {
        if (last ? !odd : odd && w->b.panels == 1) continue;
        if (odd && w->b.panels > 1) text_line(out, last ? "else" : "if (n < %lld)", (long long)w->b.panels - 1);
        text_put(out, "%*s@result%s(%ssums + (n - n0) * %d, rows", out->indent * 4, "", last ? "_last" : "",
                 problem_frame_argument(p), w->rows * w->width);
        for (int i = 0; i < p->nview; i++) {
            const struct view *v = &p->view[i];
            struct offset at = {.arena = p->arena, .constant = v->c};
            offset_add(&at, "m", size_mul(axis_stride(&a->channels, v->s), w->rows));
            offset_add(&at, "n", size_mul(axis_stride(&w->b.channels, v->s), w->width));
            for (int k = 0; k < w->outer.n; k++) offset_add(&at, SAY("g%d", k), axis_stride(&w->outer.at[k], v->s));
            text_put(out, ", %s",
                     offset_from(&at, SAY("(%s%s *)p[%d]", v->node ? "const " : "",
                                          dtype_def(p->loops->tensors.at[v->tensor].dtype)->c_name,
                                          problem_operand(p, v->tensor))));
        }
        text_put(out, ");\n");
    }
    text_close(out, "}");
    end(out);
}

/* -- steps */

/* Prints the range of panels m0 to m1 of block number mb. */
static void put_blocks(const struct weights *w, struct text *out, const struct weights_side *s, char name)
{
    const long long block = s->block, panels = s->panels;
    const char *end = text_plus(w->p.arena, SAY("%c0", name), block);
    if (panels % block) end = SAY("@sol_min_i64(%lld, %s)", panels, end);
    text_line(out, "const int64_t %c0 = %s, %c1 = %s;", name, text_times(w->p.arena, SAY("%cb", name), block), name,
              end);
}

/* Prints the indices of block number `at`: g, m0, m1, n0, n1. */
static void block_digits(const struct weights *w, struct text *out, const char *at)
{
    const long long na = w->a.nblock, nb = w->b.nblock;
    struct arena *a = w->p.arena;
    text_line(out, "const int64_t g = %s, mb = %s, nb = %s;", text_over(a, at, na * nb),
              text_modulo(a, text_over(a, at, nb), na), text_modulo(a, at, nb));
    text_line(out, "(void)g;");
    put_blocks(w, out, &w->a, 'm');
    put_blocks(w, out, &w->b, 'n');
}

static const char *operand_at(const struct weights *w, const struct weights_side *s)
{
    const struct problem *p = &w->p;
    struct offset at = {.arena = p->arena, .constant = s->o->view.c};
    for (int i = 0; i < w->outer.n; i++) offset_add(&at, SAY("g%d", i), axis_stride(&w->outer.at[i], s->o->view.s));
    return offset_from(&at, SAY("(const @real *)p[%d]", problem_operand(p, s->o->tensor)));
}

static void sums_step(const struct weights *w, struct text *out)
{
    const long long tile = (long long)w->rows * w->width;
    const char *frame = problem_frame_argument(&w->p);
    kernel_open(out, 0);
    text_line(out, "@real *const scratch = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    text_open(out, "for (int64_t task = task0; task < task1; task++) {");
    if (w->ngroup > 1) {
        text_line(out, "const int64_t at = task / %lld, group = task %% %lld;", (long long)w->ngroup,
                  (long long)w->ngroup);
        text_line(out, "const int64_t chunk0 = group * %lld / %lld, chunk1 = (group + 1) * %lld / %lld;",
                  (long long)w->nchunk, (long long)w->ngroup, (long long)w->nchunk, (long long)w->ngroup);
    } else {
        text_line(out, "const int64_t at = task, chunk0 = 0, chunk1 = %lld;", (long long)w->nchunk);
    }
    block_digits(w, out, "at");
    weights_digits(w, out, &w->outer, 'g', "g");
    if (w->ngroup > 1)
        text_line(out, "@real *const sums = (@real *)p[%d] + task * INT64_C(%lld);", problem_work(&w->p),
                  (long long)w->sums);
    else
        text_line(out, "@real *const sums = scratch + INT64_C(%lld);", (long long)(weights_scratch(w) - w->sums));
    if (size_varies(w->nchunk)) /* fewer chunks than groups, or none */
        text_line(out, "if (chunk0 == chunk1) __builtin_memset(sums, 0, INT64_C(%lld));",
                  (long long)(w->sums * w->p.bytes));
    text_line(out, "for (int64_t chunk = chunk0; chunk < chunk1; chunk++)");
    text_line(out, "    @chunk_sums(%s%s, %s,", frame, operand_at(w, &w->a), operand_at(w, &w->b));
    text_line(out, "               scratch, sums, chunk, m0, m1, n0, n1, chunk > chunk0);");
    if (w->ngroup == 1)
        text_line(out, "for (int64_t m = m0; m < m1; m++) @results(%sp, sums + (m - m0) * %lld, g, m, n0, n1);", frame,
                  (long long)w->b.block * tile);
    text_close(out, "}");
    end(out);
}

static void total_step(const struct weights *w, struct text *out)
{
    kernel_open(out, 1);
    text_open(out, "for (int64_t task = task0; task < task1; task++) {");
    text_line(out, "const int64_t at = %s, i = %s;", text_over(w->p.arena, "task", w->a.block),
              text_modulo(w->p.arena, "task", w->a.block));
    block_digits(w, out, "at");
    text_line(out, "if (m0 + i >= m1) continue;");
    text_line(out, "@results(%sp, (const @real *)p[%d] + at * INT64_C(%lld) + i * %lld, g, m0 + i, n0, n1);",
              problem_frame_argument(&w->p), problem_work(&w->p), (long long)(w->sums * w->ngroup),
              (long long)w->b.block * w->rows * w->width);
    text_close(out, "}");
    text_line(out, "(void)f, (void)worker;");
    end(out);
}

void weights_print(struct weights *w, struct text *out)
{
    text_put(out, "typedef %s @real;\ntypedef %s @vec;\n\n", dtype_def(w->p.dtype)->c_name, weights_vector(w));
    micro_kernel(w, out);
    if (w->winograd) {
        weights_winograd_chunk(w, out);
    } else {
        pack_functions(w, out, &w->a);
        pack_functions(w, out, &w->b);
        direct_chunk(w, out);
    }
    total_function(w, out);
    if (w->b.channels.size % w->width) result_function(w, out, true);
    if (w->b.panels > 1 || w->b.channels.size % w->width == 0) result_function(w, out, false);
    panel_results(w, out);
    sums_step(w, out);
    if (w->ngroup > 1) total_step(w, out);
}
