/* Prints the kernel of a convolution by another library: how its weights are packed, the tables of its blocks, and the
 * task that calls the library and applies the epilogue. */
#include "dnn/foreign_conv.h"

#include <string.h>

#define SAY(...) arena_printf(c->p.arena, __VA_ARGS__)

/* -- the weights */

struct packing {
    const struct conv *c;
    struct loops *to;
    int32_t index[SOL_MAX_DIMS], value[3 + SOL_PLUGIN_DIMS]; /* value: by dimension of w, its index */
    int64_t shape[SOL_MAX_DIMS];
    int ndim;
};

/* Adds a dimension to the packed weights. One step in it advances dimension `d` of w by `times`, unless d is NONE. */
static int32_t pack_dimension(struct packing *k, int64_t size, int d, int64_t times)
{
    if (size == 1 || k->ndim == SOL_MAX_DIMS) return ex_int(k->to, 0);
    const int32_t node = ex_ivar(k->to, loops_ivar(k->to, "B", size));
    k->index[k->ndim] = node;
    k->shape[k->ndim++] = size;
    if (d == NONE) return node;
    k->value[d] = ex_binary(k->to, EX_ADD, k->value[d], ex_binary(k->to, EX_MUL, ex_int(k->to, times), node));
    return node;
}

/* Adds the dimensions of packed weights: blocks of channels of a task, then the blocks of w by their strides, then the
 * insides of blocks. *out_part is the node of the first. False: the order cannot be expressed. */
static bool pack_dimensions(struct packing *k, int32_t *out_part)
{
    const struct sol_plugin_conv *w = &k->c->kind[0];
    const int n = 3 + (int)w->ndim;
    int64_t below[3 + SOL_PLUGIN_DIMS] = {1, 1, 1, 1, 1, 1}, inside = 1, left = w->weights;
    for (int i = 0; i < w->w_blocks; i++) {
        below[w->w_block_dim[i]] *= w->w_block[i];
        inside *= w->w_block[i];
    }
    *out_part = pack_dimension(k, k->c->nblock, NONE, 0);
    for (uint64_t todo = (1u << n) - 1; todo;) {
        int d = NONE;
        for (int i = 0; i < n; i++)
            if (todo >> i & 1 && (d == NONE || w->w_stride[i] > w->w_stride[d])) d = i;
        for (int i = 0; i < n; i++) /* dimensions with a single block have arbitrary strides */
            if (todo >> i & 1 && w->w_padded[i] == below[i]) d = i;
        const int64_t size = w->w_padded[d] / below[d];
        todo &= ~(UINT64_C(1) << d);
        left /= size;
        if (w->w_padded[d] % below[d] || (size > 1 && w->w_stride[d] != left)) return false;
        pack_dimension(k, size, d, below[d]);
    }
    for (int i = 0; i < w->w_blocks; i++) {
        const int d = (int)w->w_block_dim[i];
        below[d] /= w->w_block[i];
        pack_dimension(k, w->w_block[i], d, below[d]);
    }
    return left == inside && k->ndim < SOL_MAX_DIMS;
}

/* NULL: loops cannot describe the layout. */
static struct loops *make_pack(const struct conv *c, struct arena *arena)
{
    const struct problem *p = &c->p;
    const struct loops_tensor *t = &p->loops->tensors.at[p->b.tensor];
    const struct sol_plugin_conv *w = &c->kind[0];
    struct packing k = {.c = c, .to = loops_create(arena, "pack")};
    const int from = loops_tensor(k.to, "w", LOOPS_INPUT, t->dtype, t->ndim, t->shape);
    const int ivars[] = {c->group, c->out, c->in, c->pixel[0].k, c->pixel[1].k, c->pixel[2].k};
    int32_t part, guard[COUNT_OF(ivars)], ivar[LOOPS_MAX_IVARS] = {0};
    int nguard = 0;
    for (int i = 0; i < COUNT_OF(ivars); i++) k.value[i] = ex_int(k.to, 0);
    if (!pack_dimensions(&k, &part)) return NULL;
    for (int i = 0; i < 3 + c->ndim; i++) {
        const int64_t size = i == 1 ? c->cols : conv_size(c, ivars[i]);
        if (w->w_padded[i] > size) guard[nguard++] = ex_cmp(k.to, CMP_LT, k.value[i], ex_int(k.to, size));
        if (i == 1)
            k.value[i] = ex_binary(k.to, EX_ADD, k.value[i], ex_binary(k.to, EX_MUL, ex_int(k.to, c->cols), part));
        if (ivars[i] != NONE) ivar[ivars[i]] = k.value[i];
    }
    const int out = loops_tensor(k.to, "packed", LOOPS_OUTPUT, t->dtype, k.ndim, k.shape);
    int *tensor = NEW_ARRAY(arena, int, p->loops->tensors.n);
    tensor[p->b.tensor] = from;
    int32_t value = ex_copy(k.to, p->loops, p->b.view.node, ivar, tensor);
    if (nguard) value = ex_red(k.to, RED_SUM, 0, ex_logic(k.to, EX_AND, nguard, guard), value);
    const struct loops_stmt s = {
        .nout = 1, .out = {(uint16_t)out}, .index = ex_list(k.to, k.ndim, k.index), .value = value, .label = "pack"};
    loops_stmt(k.to, s);
    return k.to;
}

/* -- the kernel */

static const char *value_of(const struct conv *c, int ivar)
{
    for (int i = 0; i < c->nouter; i++)
        if (c->outer[i] == ivar) return SAY("o%d", i);
    for (int i = 0; i < c->ndim; i++)
        if (c->pixel[i].y == ivar) return i ? SAY("q%d", i) : "(row0 + r)";
    return ivar != c->p.vector ? "g" : c->out != NONE ? "(col0 + n)" : "n";
}

static const char *ivar_value(void *user, int ivar)
{
    return value_of(user, ivar);
}

/* The address of a view at the vector, from `base` on. */
static const char *view_from(const void *user, const char *base, const struct view *v)
{
    const struct conv *c = user;
    struct offset o = {.arena = c->p.arena, .constant = v->c};
    for (int i = 0; i < c->p.loops->ivars.n; i++)
        if (set_has(c->p.batch | c->p.m | c->p.n, i)) offset_add(&o, value_of(c, i), v->s[i]);
    return offset_from(&o, base);
}

/* Prints tables of the kinds and of the blocks of rows, and the code that finds the library's functions. */
static void print_tables(const struct conv *c, struct text *out)
{
    text_put(out, "@TABLE int64_t @kind[%d][%d] = {\n", c->nkind, FIELDS);
    for (int i = 0; i < c->nkind; i++) {
        int64_t field[FIELDS];
        memcpy(field, &c->kind[i], sizeof field);
        for (int k = 0; k < FIELDS; k++)
            text_put(out, "%s%lld%s", k ? ", " : "    {", (long long)field[k], k == FIELDS - 1 ? "},\n" : "");
    }
    text_put(out, "};\n@TABLE int64_t @block[%lld][2] = { /* its kind and its first row */\n", (long long)c->blocks);
    for (int64_t i = 0; i < c->blocks; i++) {
        struct sol_plugin_conv now;
        int64_t row;
        conv_block(c, i, &now, &row);
        text_put(out, "%s{%d, %lld},%s", i % 8 ? " " : "    ", conv_kind(c, &now), (long long)row,
                 i % 8 == 7 || i == c->blocks - 1 ? "\n" : "");
    }
    text_put(out,
             "};\n"
             "typedef const void *(*@find_fn)(const void *conv);\n"
             "typedef int (*@run_fn)(const void *conv, const @real *x, const @real *w, @real *y, void *scratch);\n"
             "static const void *@conv[%d]; /* by kind */\n"
             "@FUNCTION @run_fn @find_run(void)\n{\n"
             "    static @run_fn known;\n"
             "    @run_fn run = __atomic_load_n(&known, __ATOMIC_ACQUIRE);\n"
             "    if (run) return run;\n"
             "    const @find_fn find = (@find_fn)@plugin_function(\"sol_plugin_conv_find\");\n"
             "    for (int i = 0; i < %d; i++) {\n"
             "        const void *one = find ? find(@kind[i]) : 0;\n"
             "        if (!one) return 0;\n"
             "        __atomic_store_n(&@conv[i], one, __ATOMIC_RELAXED);\n"
             "    }\n"
             "    run = (@run_fn)@plugin_function(\"sol_plugin_conv_run\");\n"
             "    __atomic_store_n(&known, run, __ATOMIC_RELEASE);\n"
             "    return run;\n"
             "}\n\n",
             c->nkind, c->nkind);
}

static void print_epilogue(struct conv *c, const struct target *t, struct text *out)
{
    struct epilogue e = {
        .p = &c->p, .target = t, .lanes = c->lanes, .place = foreign_place, .ivar = ivar_value, .user = c};
    const bool grouped = c->group != NONE && c->out != NONE;
    const int64_t all = c->out != NONE ? c->cols : c->whole.groups;
    const char *pixel = "r";
    text_open(out, "for (int64_t r = 0; r < rows; r++)");
    for (int i = 1; i < c->ndim; i++) {
        text_open(out, "for (int64_t q%d = 0; q%d < %lld; q%d++)", i, i, (long long)conv_size(c, c->pixel[i].y), i);
        pixel = SAY("(%s * %lld + q%d)", pixel, (long long)c->whole.d[i].y, i);
    }
    if (grouped) text_open(out, "for (int64_t g = 0; g < %lld; g++)", (long long)c->whole.groups);
    text_open(out, "for (int64_t n = 0; n < %lld; n += %d) {", (long long)all, c->lanes);
    foreign_epilogue(&e, out,
                     SAY("sums + %s * %lld + %sn", pixel, (long long)(c->whole.groups * c->cols),
                         grouped ? SAY("g * %lld + ", (long long)c->cols) : ""),
                     "n", all, view_from);
    text_close(out, "}");
    out->indent -= c->ndim + grouped;
}

static void print_task(struct conv *c, const struct target *t, struct text *out)
{
    const struct problem *p = &c->p;
    int64_t below = c->images;
    struct arena *a = p->arena;
    struct offset start = {.arena = a, .constant = c->base};
    offset_add(&start, "@block[b][1]", c->pixel[0].step);
    text_line(out, "const int64_t col0 = %s, b = %s, row0 = %s;",
              text_times(a, text_modulo(a, "t", c->nblock), c->cols),
              text_modulo(a, text_over(a, "t", c->nblock), c->blocks), text_times(a, "b", c->rows));
    text_line(out, "const int64_t rows = %lld - row0 < %lld ? %lld - row0 : %lld;", (long long)c->nrows,
              (long long)c->rows, (long long)c->nrows, (long long)c->rows);
    for (int i = 0; i < c->nouter; i++) {
        below /= conv_size(c, c->outer[i]);
        const char *at = text_over(a, "t", below * c->blocks * c->nblock);
        text_line(out, "const int64_t o%d = %s;", i, text_modulo(a, at, conv_size(c, c->outer[i])));
        offset_add(&start, SAY("o%d", i), p->a.view.s[c->outer[i]]);
    }
    text_line(out, "if (run(__atomic_load_n(&@conv[@block[b][0]], __ATOMIC_RELAXED), %s,",
              offset_from(&start, SAY("(const @real *)p[%d]", problem_operand(p, p->a.tensor))));
    text_line(out, "        %s, sums, (char *)sums + %lld)) {",
              text_address(a, SAY("(const @real *)p[%d]", problem_operand(p, p->b.tensor)),
                           text_times(a, text_modulo(a, "t", c->nblock), c->kind[0].weights)),
              (long long)conv_sums_bytes(c));
    text_line(out, "    @sol_error(f, SOL_KERNEL_PLUGIN);");
    text_line(out, "    return;");
    text_line(out, "}");
    print_epilogue(c, t, out);
}

sol_status foreign_conv_emit(const struct solver_context *sc, const struct cluster *cluster, const struct plugin *by,
                             const struct variant *v, struct kernel *out)
{
    struct conv c;
    const char *why = "the library has nothing for it";
    struct loops *pack =
        conv_find(sc, cluster, by, &c, &why) && conv_divide(&c, v->p[0], v->p[1]) ? make_pack(&c, sc->arena) : NULL;
    if (!pack) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "%s: %s", by->name, why);
    struct text text = solver_text(sc);
    foreign_begin(by, &text);
    print_tables(&c, &text);
    kernel_open(&text, 0);
    text_line(&text, "@real *const sums = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    text_line(&text, "const @run_fn run = @find_run();");
    text_line(&text, "if (!run) @sol_error(f, SOL_KERNEL_PLUGIN);");
    text_open(&text, "for (int64_t t = task0; run && t < task1; t++) {");
    print_task(&c, sc->target, &text);
    text_close(&text, "}");
    kernel_close(&text);
    out->source = text.at;
    out->nstep = 1;
    out->step[0].tasks = c.images * c.blocks * c.nblock;
    out->scratch_bytes = conv_scratch_bytes(&c);
    out->npack = 1;
    out->pack[0] = (struct kernel_pack){.tensor = c.p.b.tensor, .loops = pack};
    return SOL_OK;
}
