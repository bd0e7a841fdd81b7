/* Checks a solver on a cluster given as an operator definition. Data are random and memory is laid out as specified.
 * The generated C is compiled and run with several splits of its tasks, and compared with loops_interpret. It may write
 * nothing but the outputs' elements.
 *
 * A layout is one word for each tensor: `y:0231+g3h1` makes dimension 1 the innermost, leaves 3 elements free between
 * rows of the innermost dimension, and gives dimensions 2 and up a halo of 1. */
#ifndef KERNEL_CHECK_H
#define KERNEL_CHECK_H

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build/inside.h"
#include "dnn/dnn.h"
#include "print/kernel.h"
#include "sol/module.h"

struct check_case {
    const char *row;
    /* "1,16,8,8 i64:3<5 -": shapes, types (f32), upper limits of integers; "-": missing. "#0,16,2*#1": sizes that vary
     */
    const char *in;
    const char *attrs;  /* "s=2 p=1,1 e=0.5 to=i64" */
    const char *layout; /* "x:0231+h1 y:0231"; tensors left out are row-major */
    double tolerance;   /* relative to the largest value; 0: 4e-6 */
    const char *values; /* "nan": NaN and infinities among the inputs; "big"; NULL: -1..1 */
};

struct check_launch;
struct check_tool { /* a compiler, and how its code runs */
    const char *cc;
    const char *flags[8];
    const struct target *target;
    const char *emulator; /* runs programs of the target; NULL: code is loaded */
    /* Runs the kernel on a device. NULL: code is loaded. */
    bool (*launch)(struct arena *a, const struct kernel *k, const char *source, const struct check_launch *l);
};
struct check_block { /* memory of an operand */
    char *at;
    int64_t bytes, origin;
};
struct check_launch {
    const struct check_block *block;
    int n;
    const int64_t *sizes; /* of dimensions that vary; NULL: there are none */
    int32_t *error;
    const char **out_output;
};

static uint64_t check_seed = 1;
static uint64_t check_random(void)
{
    check_seed = check_seed * 6364136223846793005u + 1442695040888963407u;
    return check_seed >> 33;
}

struct check_tensor {
    int64_t elements;
    char *plain;  /* row-major */
    char *stored; /* in the layout; NULL: a TEMP or TABLE */
    char *before; /* `stored` before the kernel ran */
    int64_t stored_elements, origin;
};

static const char *check_word(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *s = text; s && *s; s += strcspn(s, " "), s += strspn(s, " "))
        if (!strncmp(s, name, n) && s[n] == ':') return s + n + 1;
    return NULL;
}

static void check_place(const struct loops_tensor *t, const char *layout, struct memory *m, struct check_tensor *out)
{
    int order[SOL_MAX_DIMS], gap = 0, halo = 0, n = 0;
    for (; layout && *layout >= '0' && *layout <= '9'; layout++) order[n++] = *layout - '0';
    if (!n)
        for (; n < t->ndim; n++) order[n] = n;
    for (; layout && *layout && *layout != ' '; layout++) {
        if (*layout == 'g') gap = atoi(layout + 1);
        if (*layout == 'h') halo = atoi(layout + 1);
    }
    memset(m, 0, sizeof *m);
    m->align = 64;
    int64_t step = 1;
    out->origin = 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const int d = order[i], h = d >= 2 ? halo : 0;
        m->stride[d] = step;
        m->halo_low[d] = m->halo_high[d] = h;
        out->origin = size_add(out->origin, size_mul(h, step));
        step = size_mul(step, size_add(t->shape[d], 2 * h));
        if (i == t->ndim - 1) step = size_add(step, gap);
    }
    out->stored_elements = step;
}

static int64_t check_offset(const struct loops_tensor *t, const struct memory *m, int64_t i)
{
    int64_t at = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += i % t->shape[d] * m->stride[d];
        i /= t->shape[d];
    }
    return at;
}

static void check_fill(const struct loops_tensor *t, int64_t n, int64_t limit, const char *values, char *out)
{
    const bool special = values && !strcmp(values, "nan"), big = values && !strcmp(values, "big");
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e-40, 3e38, -3e38};
    static const uint64_t edges[] = {0, 1, 2, 3, 63, 64, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX};
    for (int64_t i = 0; i < n; i++) {
        double x = (double)check_random() / 1073741824.0 - 1;
        if (big) x *= 100;
        if (special && check_random() % 8 == 0) x = odd[check_random() % 8];
        const int64_t k = (int64_t)(check_random() % (uint64_t)(limit ? limit : 100)) - (limit ? 0 : 50);
        switch (t->dtype) {
        case SOL_F32: ((float *)out)[i] = (float)x; break;
        case SOL_F64: ((double *)out)[i] = x; break;
        case SOL_BOOL: ((uint8_t *)out)[i] = check_random() & 1; break;
        case SOL_I64: ((int64_t *)out)[i] = k; break;
        case SOL_U64: {
            const uint64_t any = check_random() << 33 ^ check_random();
            ((uint64_t *)out)[i] = check_random() % 2 ? any : edges[check_random() % COUNT_OF(edges)];
            break;
        }
        case SOL_I32: ((int32_t *)out)[i] = (int32_t)k; break;
        case SOL_I8: ((int8_t *)out)[i] = (int8_t)k; break;
        default: ((uint8_t *)out)[i] = (uint8_t)llabs(k); break;
        }
    }
}

static double check_number(int dtype, const char *data, int64_t i)
{
    switch (dtype) {
    case SOL_F32: return ((const float *)data)[i];
    case SOL_F64: return ((const double *)data)[i];
    case SOL_I64: return (double)((const int64_t *)data)[i];
    case SOL_U64: return (double)((const uint64_t *)data)[i];
    case SOL_I32: return ((const int32_t *)data)[i];
    case SOL_I8: return ((const int8_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

enum { CHECK_DIMS = 3 };

/* dims: sizes #0, #1, .., numbers or forms; NULL: there are none. */
static const struct loops *check_bind(struct arena *a, const struct check_case *c, const int64_t *dims, int64_t *limits)
{
    static const struct {
        const char *name;
        int dtype;
    } types[] = {{"f64:", SOL_F64},   {"i64:", SOL_I64}, {"i32:", SOL_I32}, {"u64:", SOL_U64},
                 {"bool:", SOL_BOOL}, {"u8:", SOL_U8},   {"i8:", SOL_I8}};
    struct opdef_input in[8];
    memset(in, 0, sizeof in);
    int nin = 0;
    for (char *s = arena_strdup(a, c->in), *w; (w = strtok(s, " ")); s = NULL, nin++) {
        in[nin].dtype = SOL_F32;
        for (int i = 0; i < COUNT_OF(types); i++)
            if (!strncmp(w, types[i].name, strlen(types[i].name))) {
                in[nin].dtype = (enum sol_dtype)types[i].dtype;
                w += strlen(types[i].name);
            }
        in[nin].missing = *w == '-';
        int64_t *shape = NEW_ARRAY(a, int64_t, SOL_MAX_DIMS);
        while ((*w >= '0' && *w <= '9') || *w == '#' || *w == '(') {
            const char *end = size_parse(w, dims ? CHECK_DIMS : 0, dims, &shape[in[nin].ndim++]);
            if (!end) return NULL;
            w += end - w;
            if (*w == ',') w++;
        }
        in[nin].shape = shape;
        limits[nin] = *w == '<' ? strtoll(w + 1, NULL, 10) : 0;
    }
    struct attrs attrs = {0, NEW_ARRAY(a, struct opdef_attr, 16)};
    for (char *s = arena_strdup(a, c->attrs ? c->attrs : ""), *w; (w = strtok(s, " ")); s = NULL) {
        struct opdef_attr *at = &attrs.at[attrs.n++];
        char *value = strchr(w, '=');
        *value++ = 0;
        at->name = w;
        at->n = strchr(value, ',') ? 0 : -1;
        at->kind = (*value >= 'a' && *value <= 'z') ? ATTR_TEXT : strpbrk(value, ".e") ? ATTR_REAL : ATTR_INT;
        at->text = value;
        at->ints = NEW_ARRAY(a, int64_t, 8);
        at->reals = NEW_ARRAY(a, double, 8);
        int n = 0;
        for (char *v = value; at->kind != ATTR_TEXT && *v; v += *v == ',') {
            char *end = v;
            at->reals[n] = strtod(v, &end);
            at->ints[n] = (int64_t)at->reals[n];
            v = end;
            n++;
        }
        if (at->n == 0) at->n = n;
    }
    struct opdef *opdef;
    const struct loops *loops = NULL;
    if (opdef_parse(a, "check", c->row, &opdef) || opdef_bind(a, opdef, nin, in, &attrs, &loops)) return NULL;
    return loops;
}

/* Compiles a source to a shared object and opens it. */
static void *check_compile(struct sol_ctx *ctx, struct arena *a, const struct check_tool *tool, const char *source,
                           const char **out_output)
{
    static int number;
    const char *base = arena_printf(a, "/tmp/sol_check_%d_%d", (int)getpid(), number++);
    const char *c_file = arena_printf(a, "%s.c", base), *so_file = arena_printf(a, "%s.so", base);
    struct text all = text_new(a);
    text_put(&all, "%s\n", source_header(NULL));
    text_add(&all, source, strlen(source));
    file_write(ctx, c_file, all.at, all.n);
    const char *argv[32] = {tool->cc,  "-std=gnu11",         "-fPIC",
                            "-shared", "-fno-math-errno",    "-fno-trapping-math",
                            "-fwrapv", "-ffp-contract=fast", "-w"};
    int n = 9;
    for (int i = 0; i < COUNT_OF(tool->flags) && tool->flags[i]; i++) argv[n++] = tool->flags[i];
    const char *rest[] = {c_file, "-o", so_file, "-lm"};
    for (int i = 0; i < COUNT_OF(rest); i++) argv[n++] = rest[i];
    struct process *p;
    int code = -1;
    void *handle = NULL;
    if (!process_start(ctx, argv, &p)) {
        const char *output = "";
        process_wait(ctx, p, &code, &output);
        *out_output = arena_strdup(a, output);
        process_free(ctx, p);
    }
    if (!code) handle = dlopen(so_file, RTLD_NOW | RTLD_LOCAL);
    if (!getenv("SOL_CHECK_KEEP")) {
        unlink(c_file);
        unlink(so_file);
    }
    return handle;
}

static void check_run(const struct kernel *k, void *handle, char *const *p, const int64_t *sizes, int64_t piece,
                      int32_t *error)
{
    volatile int32_t where = 0;
    char *scratch = aligned_alloc(64, (size_t)(k->scratch_bytes + 127) / 64 * 64 * 3);
    memset(scratch, 0xff, (size_t)(k->scratch_bytes + 127) / 64 * 64 * 3);
    const struct sol_frame f = {.scratch = scratch,
                                .scratch_bytes = (k->scratch_bytes + 63) / 64 * 64,
                                .error = error,
                                .error_step = &where,
                                .sizes = sizes};
    for (int s = 0; s < k->nstep; s++) {
        char name[32];
        snprintf(name, sizeof name, "KERNEL_%d", s);
        sol_kernel_fn run = (sol_kernel_fn)dlsym(handle, name);
        const int64_t n = k->step[s].tasks, by = piece ? piece : n;
        int worker = 0;
        for (int64_t t = n; t > 0; t -= by) run(p, &f, t < by ? 0 : t - by, t, worker++ % 3); /* last tasks first */
    }
    free(scratch);
}

static bool check_program(struct sol_ctx *ctx, const char *const *argv, struct arena *a, const char **out_output)
{
    struct process *p;
    int code = -1;
    const char *output = "";
    if (process_start(ctx, argv, &p)) return false;
    process_wait(ctx, p, &code, &output);
    *out_output = arena_strdup(a, output);
    process_free(ctx, p);
    return code == 0;
}

static const char *check_source(struct arena *a, const struct target *t, const struct kernel *k)
{
    const struct source_text text = kernel_text(a, t, k->source);
    return kernel_source(a, &text, "KERNEL");
}

/* Compiles the kernel to a program that reads its operands from a file and writes them back, and runs it in an
 * emulator. */
static bool check_emulate(struct sol_ctx *ctx, struct arena *a, const struct check_tool *tool, const struct kernel *k,
                          const struct check_block *block, int n, const char **out_output)
{
    const char *base = arena_printf(a, "/tmp/sol_check_%d", (int)getpid());
    const char *c_file = arena_printf(a, "%s.c", base), *program = arena_printf(a, "%s.exe", base);
    const char *data_file = arena_printf(a, "%s.data", base);
    struct text c = text_new(a), data = text_new(a);
    text_put(&c, "%s\n%s\n#include <stdio.h>\n#include <stdlib.h>\nstatic const long bytes[] = {", source_header(NULL),
             check_source(a, tool->target, k));
    for (int i = 0; i < n; i++) text_put(&c, "%lld, ", (long long)block[i].bytes);
    text_put(&c, "0}, origin[] = {");
    for (int i = 0; i < n; i++) text_put(&c, "%lld, ", (long long)block[i].origin);
    text_put(
        &c,
        "0};\nint main(int argc, char **argv)\n{\n    char *at[%d], *p[%d];\n    FILE *f = fopen(argv[1], \"rb\");\n"
        "    for (int i = 0; i < %d; i++) {\n        at[i] = malloc(bytes[i] + 1);\n        p[i] = at[i] + origin[i];\n"
        "        if (fread(at[i], 1, bytes[i], f) != bytes[i]) return 2;\n    }\n    fclose(f);\n"
        "    volatile int32_t error = 0, step = 0;\n"
        "    const struct sol_frame frame = {.scratch = malloc(%lld), .error = &error, .error_step = &step};\n",
        n + 1, n + 1, n, (long long)k->scratch_bytes + 1);
    for (int s = 0; s < k->nstep; s++)
        text_put(&c, "    KERNEL_%d(p, &frame, 0, %lld, 0);\n", s, (long long)k->step[s].tasks);
    text_put(&c,
             "    f = fopen(argv[1], \"wb\");\n    for (int i = 0; i < %d; i++) fwrite(at[i], 1, bytes[i], f);\n"
             "    fclose(f);\n    return error;\n}\n",
             n);
    for (int i = 0; i < n; i++) text_add(&data, block[i].at, (size_t)block[i].bytes);
    file_write(ctx, c_file, c.at, c.n);
    file_write(ctx, data_file, data.at, data.n);
    const char *const compile[] = {
        tool->cc, "-std=gnu11", "-static", "-fno-math-errno", "-fno-trapping-math", "-w", tool->flags[0], c_file, "-o",
        program,  "-lm",        NULL};
    const char *const run[] = {tool->emulator, program, data_file, NULL};
    char *back = NULL;
    size_t got = 0;
    const bool ok = check_program(ctx, compile, a, out_output) && check_program(ctx, run, a, out_output) &&
                    !file_read(ctx, a, data_file, &back, &got) && got == data.n;
    for (int i = 0; ok && i < n; i++, back += block[i - 1].bytes) memcpy(block[i].at, back, (size_t)block[i].bytes);
    unlink(c_file);
    unlink(program);
    unlink(data_file);
    return ok;
}

/* Computes a pack with the interpreter, row-major. */
static char *check_pack(struct sol_ctx *ctx, const struct kernel_pack *pack, char *plain, int64_t *out_bytes)
{
    const struct loops_tensor *t = &pack->loops->tensors.at[1];
    int64_t n = dtype_def(t->dtype)->bytes;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
    void **data = calloc((size_t)pack->loops->tensors.n + 1, sizeof *data);
    data[0] = plain;
    data[1] = aligned_alloc(64, (size_t)(n + 63) / 64 * 64);
    char *out = data[1];
    *out_bytes = n;
    if (loops_interpret(ctx, pack->loops, data)) out = NULL;
    free(data);
    return out;
}

static bool check_say(const struct check_case *c, const char *what, const char *more)
{
    fprintf(stderr, "%s\n  in %s attrs %s layout %s\n  %s: %s\n", c->row, c->in, c->attrs ? c->attrs : "",
            c->layout ? c->layout : "", what, more);
    return false;
}

static bool check_compare(const struct check_case *c, const struct loops *loops, int i, const struct memory *m,
                          const struct check_tensor *t, const char *want)
{
    const struct loops_tensor *lt = &loops->tensors.at[i];
    double most = 0, worst = 0;
    int64_t at = 0;
    for (int64_t e = 0; e < t->elements; e++) {
        const double w = check_number(lt->dtype, want, e);
        if (isfinite(w)) most = fmax(most, fabs(w));
    }
    const double tolerance = (c->tolerance ? c->tolerance : lt->dtype == SOL_F64 ? 1e-13 : 4e-6) * fmax(most, 1e-30);
    for (int64_t e = 0; e < t->elements; e++) {
        const double w = check_number(lt->dtype, want, e);
        const double g = check_number(lt->dtype, t->stored, t->origin + check_offset(lt, m, e));
        double error = isnan(w) || isnan(g) ? (isnan(w) && isnan(g) ? 0 : INFINITY) : w == g ? 0 : fabs(w - g);
        const size_t size = (size_t)dtype_def(lt->dtype)->bytes;
        if (!dtype_def(lt->dtype)->is_float) /* doubles do not hold all 64 bits */
            error =
                memcmp(want + (size_t)e * size, t->stored + (size_t)(t->origin + check_offset(lt, m, e)) * size, size)
                    ? INFINITY
                    : 0;
        if (error > worst) worst = error, at = e;
    }
    if (worst <= tolerance) return true;
    char text[200];
    snprintf(text, sizeof text, "%s[%lld] is %.9g, expected %.9g", lt->name, (long long)at,
             check_number(lt->dtype, t->stored, t->origin + check_offset(lt, m, at)),
             check_number(lt->dtype, want, at));
    return check_say(c, "differs", text);
}

/* Every byte of `stored` outside of its elements must be unchanged. */
static bool check_untouched(const struct loops_tensor *lt, const struct memory *m, const struct check_tensor *t)
{
    const int bytes = dtype_def(lt->dtype)->bytes;
    char *now = malloc((size_t)(t->stored_elements * bytes) + 1);
    memcpy(now, t->stored, (size_t)(t->stored_elements * bytes));
    for (int64_t e = 0; e < t->elements; e++) {
        const int64_t at = (t->origin + check_offset(lt, m, e)) * bytes;
        memcpy(now + at, t->before + at, (size_t)bytes);
    }
    const bool same = !memcmp(now, t->before, (size_t)(t->stored_elements * bytes));
    free(now);
    return same;
}

/* The check of one cluster with a solver. */
struct checking {
    struct sol_ctx *ctx;
    struct arena *a;
    const struct solver *solver;
    const struct check_case *c;
    const struct check_tool *tool;
    const struct loops *loops;
    struct memory *memory;
    struct check_tensor *t;
    void **plain;         /* by tensor: inputs, then the interpreter's results */
    struct kernel kernel; /* with numbers for sizes that vary */
    const int64_t *sizes; /* what these are */
    void *handle;
    char **p; /* the kernel's operands */
    struct check_block *block;
    int np;
};

static bool check_is_operand(const struct loops *loops, int i)
{
    return loops->tensors.at[i].role != LOOPS_TEMP && loops->tensors.at[i].role != LOOPS_TABLE;
}

static void check_layout(struct checking *k, int i)
{
    const struct loops_tensor *lt = &k->loops->tensors.at[i];
    check_place(lt, check_word(k->c->layout, lt->name), &k->memory[i], &k->t[i]);
    k->memory[i].constant = lt->role == LOOPS_INPUT && !strncmp(lt->name, "w", 1);
}

/* Allocates all tensors. Inputs have the data `given`, or random data. */
static void check_store(struct checking *k, const void *const *given, const int64_t *limits)
{
    for (int i = 0; i < k->loops->tensors.n; i++) {
        const struct loops_tensor *lt = &k->loops->tensors.at[i];
        struct check_tensor *t = &k->t[i];
        struct memory *m = &k->memory[i];
        if (!check_is_operand(k->loops, i)) continue;
        check_layout(k, i);
        t->elements = 1;
        for (int d = 0; d < lt->ndim; d++) t->elements *= lt->shape[d];
        const int bytes = dtype_def((enum sol_dtype)lt->dtype)->bytes;
        const size_t room = (size_t)(t->stored_elements * bytes);
        k->plain[i] = t->plain = calloc((size_t)t->elements + 1, (size_t)bytes);
        t->stored = malloc(room + 1);
        t->before = malloc(room + 1);
        memset(t->stored, m->halo_low[MAX(lt->ndim - 1, 0)] > 0 ? 0 : 0xff, room);
        if (lt->role == LOOPS_INPUT) {
            if (given)
                memcpy(t->plain, given[i], (size_t)(t->elements * bytes));
            else
                check_fill(lt, t->elements, limits[i], k->c->values, t->plain);
            for (int64_t e = 0; e < t->elements; e++)
                memcpy(t->stored + (t->origin + check_offset(lt, m, e)) * bytes, t->plain + e * bytes, (size_t)bytes);
        }
        memcpy(t->before, t->stored, room);
    }
}

static bool check_emit(struct checking *k, int number, int *out_count)
{
    const struct cluster cluster = {k->loops, k->memory, 0};
    const struct solver_context sc = {.arena = k->a, .target = k->tool->target, .plugins = plugins_load(k->ctx, k->a)};
    struct variant v[SOLVER_MAX_VARIANTS];
    const char *why = "", *output = "";
    if (!k->solver->applicable(&sc, &cluster, &why)) return check_say(k->c, "not applicable", why);
    *out_count = k->solver->variants(&sc, &cluster, v);
    if (solver_emit(k->solver, &sc, &cluster, &v[number], &k->kernel))
        return check_say(k->c, "emit", sol_error(k->ctx));
    if (k->tool->emulator || k->tool->launch) return true;
    k->handle = check_compile(k->ctx, k->a, k->tool, check_source(k->a, k->tool->target, &k->kernel), &output);
    return k->handle || check_say(k->c, "compiler", output);
}

static void check_operands(struct checking *k)
{
    const struct kernel *kernel = &k->kernel;
    for (int i = 0; i < k->loops->tensors.n; i++) {
        if (!check_is_operand(k->loops, i)) continue;
        const struct check_tensor *t = &k->t[i];
        const int bytes = dtype_def((enum sol_dtype)k->loops->tensors.at[i].dtype)->bytes;
        struct check_block b = {t->stored, t->stored_elements * bytes, t->origin * bytes};
        for (int j = 0; j < kernel->npack; j++) {
            if (kernel->pack[j].tensor != i) continue;
            b.origin = 0;
            b.at = check_pack(k->ctx, &kernel->pack[j], t->plain, &b.bytes);
        }
        k->block[k->np++] = b;
    }
    for (int i = 0; i < kernel->nwork; i++) {
        struct check_block b = {aligned_alloc(64, (size_t)(kernel->work_bytes[i] + 127) / 64 * 64),
                                kernel->work_bytes[i], 0};
        memset(b.at, 0xff, (size_t)b.bytes);
        k->block[k->np++] = b;
    }
    for (int i = 0; i < k->np; i++) k->p[i] = k->block[i].at + k->block[i].origin;
}

/* Runs the kernel with three splits of its tasks: compares the first result, and requires the same bits of the
 * others. */
static bool check_results(struct checking *k)
{
    static const int64_t pieces[] = {0, 1, 3};
    const char *output = "";
    int32_t error = 0;
    for (int pass = 0; pass < (k->tool->emulator ? 1 : COUNT_OF(pieces)); pass++) {
        const struct check_launch launch = {k->block, k->np, k->sizes, &error, &output};
        if (k->tool->launch) {
            const char *source = check_source(k->a, k->tool->target, &k->kernel);
            if (!k->tool->launch(k->a, &k->kernel, source, &launch)) return check_say(k->c, "device", output);
        } else if (!k->tool->emulator)
            check_run(&k->kernel, k->handle, k->p, k->sizes, pieces[pass], &error);
        else if (!check_emulate(k->ctx, k->a, k->tool, &k->kernel, k->block, k->np, &output))
            return check_say(k->c, "emulated program", output);
        if (error) return check_say(k->c, "kernel", "error flag set");
        for (int i = 0; i < k->loops->tensors.n; i++) {
            const struct loops_tensor *lt = &k->loops->tensors.at[i];
            struct check_tensor *t = &k->t[i];
            if (lt->role != LOOPS_OUTPUT) continue;
            const size_t bytes = (size_t)(t->stored_elements * dtype_def((enum sol_dtype)lt->dtype)->bytes);
            if (pass && memcmp(t->stored, t->plain, bytes))
                return check_say(k->c, "other bits when tasks are split", lt->name);
            if (!pass && !check_compare(k->c, k->loops, i, &k->memory[i], t, k->plain[i])) return false;
            if (!pass && !check_untouched(lt, &k->memory[i], t)) return check_say(k->c, "writes outside", lt->name);
            if (!pass) t->plain = memcpy(realloc(t->plain, bytes + 1), t->stored, bytes);
            memcpy(t->stored, t->before, bytes);
        }
    }
    return true;
}

static struct checking check_new(const struct checking *like, const struct loops *loops)
{
    struct checking k = *like;
    const int n = loops->tensors.n;
    k.loops = loops;
    k.memory = NEW_ARRAY(k.a, struct memory, n + 1);
    k.t = NEW_ARRAY(k.a, struct check_tensor, n + 1);
    k.plain = NEW_ARRAY(k.a, void *, n + 1);
    k.p = NEW_ARRAY(k.a, char *, n + 8);
    k.block = NEW_ARRAY(k.a, struct check_block, n + 8);
    return k;
}

static void check_free(const struct checking *k)
{
    const int n = k->loops->tensors.n;
    for (int i = 0; i < n; i++) {
        free(k->t[i].plain);
        free(k->t[i].stored);
        free(k->t[i].before);
    }
    for (int i = 0; i < k->np; i++) {
        bool own = true;
        for (int j = 0; j < n; j++) own = own && k->block[i].at != k->t[j].stored;
        if (own) free(k->block[i].at);
    }
}

/* Checks loops with one variant of a solver. `given`: data of the inputs, by tensor; NULL: random. */
static bool check_loops(struct sol_ctx *ctx, const struct solver *solver, const struct check_case *c,
                        const struct loops *loops, const void *const *given, const int64_t *limits,
                        const struct check_tool *tool, int number, int *out_count)
{
    const struct checking like = {.ctx = ctx, .a = arena_create(ctx), .solver = solver, .c = c, .tool = tool};
    struct checking k = check_new(&like, loops);
    *out_count = 0;
    check_store(&k, given, limits);
    bool ok = !loops_interpret(ctx, loops, k.plain) || check_say(c, "interpreter", sol_error(ctx));
    ok = ok && check_emit(&k, number, out_count);
    if (ok) {
        check_operands(&k);
        ok = check_results(&k);
    }
    if (!ok && getenv("SOL_CHECK_SHOW") && k.kernel.source) fputs(k.kernel.source, stderr);
    if (k.handle) dlclose(k.handle);
    check_free(&k);
    arena_destroy(k.a);
    return ok;
}

/* All variants of a case. */
static inline bool check_case(struct sol_ctx *ctx, const struct solver *solver, const struct check_case *c,
                              const struct check_tool *tool)
{
    struct arena *a = arena_create(ctx);
    int64_t limits[8] = {0};
    const struct loops *loops = check_bind(a, c, NULL, limits);
    bool ok = loops || check_say(c, "binding", sol_error(ctx));
    int n = 1;
    for (int i = 0; ok && i < n; i++) ok = check_loops(ctx, solver, c, loops, NULL, limits, tool, i, &n);
    arena_destroy(a);
    return ok;
}

#endif
