/* What this machine can do: multiply-adds in registers, and bytes read from L2, L3 and memory, on all its threads.
 *
 * A few loops are compiled as kernels are, and run for some milliseconds, once for each kind of processor; the result
 * is a fact in the cache. What was measured is for people. Costs take of it how many units multiply, and whole factors
 * of two between the other numbers and those of the machine on which their constants were fitted: so choices among
 * kernels do not hang on noise, and are there what they were.
 *
 * Each worker's work is timed by the processor's time that the worker got, so that a busy machine looks no slower than
 * it is, and the best of several rounds counts. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "build/build.h"
#include "rt/rt.h"
#include "tune/tune.h"

enum { VERSION = 1, ROUNDS = 8, TRIES = 3, CACHE_LINE = 64, PAGE = 2 << 20 };
enum { CHAIN_LENGTH = 16, CHAIN_TURNS = 8192, MULTIPLY_TURNS = 8192, READS = 8 };
enum { NEAR_BYTES = 8 << 20 };            /* read from L2 in a round */
static const double most_bytes = 1 << 30; /* to read from memory, of all workers */

/* What the loops find, over what is assumed (src/print/target.c), where costs' constants were fitted: Zen 5. */
static const struct machine fitted = {.clock = 1.5, .l2 = 2.2, .l3 = 1.5, .dram = 2.2};

/* -- what costs take of it */

static struct machine assumed(const struct target *t)
{
    return (struct machine){.clock = t->clock * fitted.clock,
                            .fma = t->units,
                            .l2 = t->l2_rate * fitted.l2,
                            .l3 = t->l3_rate * fitted.l3,
                            .dram = t->dram_rate * fitted.dram,
                            .source = MACHINE_ASSUMED};
}

/* How many whole times 2 it is off: 1 between a half and twice of what is assumed, since a rented machine's memory is
 * now twice as fast, now half. What is far off all machines that there are was measured badly. */
static double factor(double found, double assumed)
{
    return MIN(MAX(exp2(trunc(log2(found / assumed))), 0.25), 4);
}

static bool is_usual(const struct machine *m, const struct target *t)
{
    const struct machine usual = assumed(t);
    return m->fma == usual.fma && factor(m->clock, usual.clock) == 1 && factor(m->l2, usual.l2) == 1 &&
           factor(m->l3, usual.l3) == 1 && factor(m->dram, usual.dram) == 1;
}

/* -- the loops. Each is called for tasks [0, n): n turns, or n bytes. p[0]: what they read; p[1]: where results go */

/* 2 * CHAIN_LENGTH instructions that wait for each other: a cycle each. */
static void print_chain(struct text *t)
{
    text_line(t, "void KERNEL_0(char *const *p, const struct sol_frame *f, int64_t from, int64_t to, int worker)");
    text_line(t, "{");
    text_line(t, "    const uint32_t *in = (const uint32_t *)p[0], a = in[0], b = in[1];");
    text_line(t, "    uint32_t x = in[2];");
    text_line(t, "    for (int64_t i = from; i < to; i++) {");
    for (int i = 0; i < CHAIN_LENGTH; i++) text_line(t, "        x = (x ^ a) + b;");
    text_line(t, "    }");
    text_line(t, "    *(uint32_t *)p[1] = x;");
    text_line(t, "}");
}

static int sums(const struct target *t)
{
    return t->registers - 4;
}

/* So many sums that none has to wait for itself. */
static void print_multiply(struct text *t, int n)
{
    text_line(t, "void KERNEL_1(char *const *p, const struct sol_frame *f, int64_t from, int64_t to, int worker)");
    text_line(t, "{");
    text_line(t, "    const vector *in = (const vector *)p[0], a = in[0], b = in[1];");
    for (int i = 0; i < n; i++) text_line(t, "    vector s%d = a + %d;", i, i);
    text_line(t, "    for (int64_t i = from; i < to; i++) {");
    for (int i = 0; i < n; i++) text_line(t, "        s%d = s%d * a + b;", i, i);
    text_line(t, "    }");
    for (int i = 1; i < n; i++) text_line(t, "    s0 += s%d;", i);
    text_line(t, "    *(vector *)p[1] = s0;");
    text_line(t, "}");
}

static void print_read(struct text *t)
{
    text_line(t, "void KERNEL_2(char *const *p, const struct sol_frame *f, int64_t from, int64_t to, int worker)");
    text_line(t, "{");
    for (int i = 0; i < READS; i++) text_line(t, "    vector s%d = {0};", i);
    text_line(t,
              "    for (const vector *v = (const vector *)(p[0] + from), *end = (const vector *)(p[0] + to); v < end;");
    text_line(t, "         v += %d) {", READS);
    for (int i = 0; i < READS; i++) text_line(t, "        s%d += v[%d];", i, i);
    text_line(t, "    }");
    for (int i = 1; i < READS; i++) text_line(t, "    s0 += s%d;", i);
    text_line(t, "    *(vector *)p[1] = s0;");
    text_line(t, "}");
}

static sol_status build(struct sol_ctx *ctx, struct arena *a, const struct target *t, struct module *out_m)
{
    struct text kernel = text_new(a);
    text_line(&kernel, "typedef float vector __attribute__((vector_size(%d), aligned(%d)));", t->vector_bytes,
              t->vector_bytes);
    print_chain(&kernel);
    print_multiply(&kernel, sums(t));
    print_read(&kernel);
    const struct build_request r = {
        .name = "machine",
        .device = t->device->name,
        .march = t->march,
        .flag = target_flag(t),
        .trial = true,
        .nkernel = 1,
        .kernel = &(struct source_text){.text = kernel.at},
        .module = "static const struct sol_step steps[] = {{KERNEL0_0}, {KERNEL0_1}, {KERNEL0_2}};\n"
                  "const struct sol_module sol_module = {.size = sizeof(struct sol_module), .version = "
                  "SOL_MODULE_VERSION,\n    .forward = {.nstep = 3, .step = steps}};\n"};
    return build_module(ctx, a, &r, out_m);
}

/* -- running them */

enum kind { CHAIN, MULTIPLY, L2, L3, DRAM, KINDS };

struct reading {   /* of a worker in a round */
    double rate;   /* turns, or bytes, in a ns */
    bool together; /* with all others, and nobody else had the processor */
};
struct gauge {
    const struct target *target;
    const struct sol_step *loop;
    char *memory;
    int64_t part;         /* of each worker */
    int64_t near, middle; /* of it, for L2 and L3 */
    atomic_int arrived;
    struct reading (*reading)[KINDS][TRIES * ROUNDS]; /* by worker */
    int rounds;                                       /* that were read before */
    int workers;
};

static int64_t thread_ns(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) ? -1 : (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits for the others, but not for one that has no processor. Have all come? */
static bool meet(struct gauge *g, int times, int workers)
{
    enum { PATIENCE = 2000000 }; /* ns */
    const int64_t start = clock_ns();
    atomic_fetch_add(&g->arrived, 1);
    while (atomic_load(&g->arrived) < times * workers)
        if (clock_ns() - start > PATIENCE) return false;
    return true;
}

/* Runs a loop for n tasks, `times` times. */
static struct reading run(const struct sol_step *loop, char *from, char *to, int64_t n, int64_t times)
{
    char *const p[] = {from, to};
    const struct sol_frame f = {0};
    const int64_t wall = clock_ns(), own = thread_ns();
    for (int64_t i = 0; i < times; i++) loop->run(p, &f, 0, n, 0);
    const int64_t own_end = thread_ns(), all = MAX(clock_ns() - wall, 1);
    const int64_t ns =
        own < 0 || own_end - own < all / 32 ? all : MIN(own_end - own, all); /* a clock of coarse steps */
    return (struct reading){(double)n * (double)times / (double)ns, (double)ns > 0.9 * (double)all};
}

static struct reading run_kind(const struct gauge *g, enum kind k, char *block, char *factors)
{
    char *results = factors + 2 * CACHE_LINE;
    if (k == CHAIN) return run(&g->loop[0], factors, results, CHAIN_TURNS, 1);
    if (k == MULTIPLY) return run(&g->loop[1], factors, results, MULTIPLY_TURNS, 1);
    if (k == L2) return run(&g->loop[2], block, results, g->near, MAX(NEAR_BYTES / g->near, 1));
    if (k == L3) run(&g->loop[2], block, results, g->middle, 1); /* brings it there */
    return run(&g->loop[2], block, results, k == L3 ? g->middle : g->part, 1);
}

/* All kinds in turn, so that what disturbs for a while does not disturb all rounds of one of them. */
static void work(void *arg, int worker, int workers)
{
    struct gauge *g = arg;
    const int n = target_lanes(g->target, 4);
    char *block = g->memory + worker * (g->part + PAGE); /* pages of its own */
    float *factors = (float *)(void *)(block + g->part);
    int met = 0;
    if (!worker) g->workers = workers;
    if (!g->rounds) memset(block, 0, (size_t)g->part); /* memory that was never written is one page of zeros */
    for (int i = 0; i < 2 * n; i++) factors[i] = i < n ? 0.9F : 0.1F; /* sums become 1: no infinities, no denormals */
    for (int r = g->rounds; r < g->rounds + ROUNDS; r++)
        for (int k = 0; k < KINDS; k++) {
            const bool all = meet(g, ++met, workers);
            struct reading *of = &g->reading[worker][k][r];
            *of = run_kind(g, k, block, (char *)factors);
            of->together &= all;
        }
}

/* What all workers did in their best round: of those in which they shared L3 and memory, if there are any. */
static double best(const struct gauge *g, enum kind k)
{
    double most[2] = {0, 0};
    for (int r = 0; r < g->rounds; r++) {
        double all = 0;
        bool together = true;
        for (int w = 0; w < g->workers; w++) {
            all += g->reading[w][k][r].rate;
            together &= g->reading[w][k][r].together;
        }
        most[together] = MAX(most[together], all);
    }
    return most[1] > 0 ? most[1] : most[0];
}

/* The power of two that is next to x. */
static double power(double x)
{
    return exp2(round(log2(x)));
}

static struct machine evaluate(const struct gauge *g)
{
    const struct target *t = g->target;
    const double cores = t->cores, share = cores / g->workers;
    const double cycles = best(g, CHAIN) * 2 * CHAIN_LENGTH, vectors = best(g, MULTIPLY) * sums(t);
    const double units = MIN(MAX(power(vectors / cycles), 0.125), 4);
    return (struct machine){.clock = vectors / units / g->workers,
                            .fma = units,
                            .l2 = best(g, L2) * share,
                            .l3 = best(g, L3) * share,
                            .dram = best(g, DRAM),
                            .source = MACHINE_MEASURED};
}

/* Blocks of which half a cache is full, and blocks that are twice all of it. */
static void set_sizes(struct gauge *g)
{
    const struct target *t = g->target;
    const int64_t row = (int64_t)READS * t->vector_bytes, sharers = MAX(MIN(t->l3_cores, t->cores), 1);
    const double most = MIN(most_bytes, machine_free_bytes() / 4) / t->cores;
    g->near = t->l2 / 2 / row * row;
    g->middle = MAX(t->l3 / 2 / sharers, t->l2 * 3 / 2) / row * row;
    g->part = MAX((int64_t)MIN((double)(2 * t->l3 / sharers), most), g->middle) / PAGE * PAGE + PAGE;
}

/* What is far from what is assumed is measured again: something may have disturbed. */
static void measure_in(struct gauge *g, struct machine *out)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    const struct rt_team *team = rt_team_openmp();
    if (!team) team = rt_team_pool();
    for (int i = 0; i < TRIES && (!i || !is_usual(out, g->target)); i++) {
        if (i) nanosleep(&pause, NULL);
        atomic_store(&g->arrived, 0);
        team->parallel(team->user, g->target->cores, work, g);
        g->rounds += ROUNDS;
        *out = evaluate(g);
    }
}

static sol_status measure(struct sol_ctx *ctx, struct arena *a, const struct target *t, struct machine *out)
{
    struct module m;
    struct gauge g = {.target = t};
    set_sizes(&g);
    const size_t bytes = (size_t)(g.part + PAGE) * (size_t)t->cores;
    TRY(build(ctx, a, t, &m));
    g.loop = m.table->forward.step;
    g.reading = arena_alloc(a, (size_t)t->cores * sizeof *g.reading);
    g.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sol_status status = ctx_check(ctx);
    if (g.memory == MAP_FAILED) status = ctx_fail(ctx, SOL_ERR_NOMEM, "machine: no memory for %zu bytes", bytes);
    if (!status) measure_in(&g, out);
    if (g.memory != MAP_FAILED) munmap(g.memory, bytes);
    module_close(&m);
    return status;
}

/* -- as a text: "clock=4.03,fma=2,l2=373,l3=59,dram=34" */

static const struct field {
    const char *name;
    size_t at;
    double least, most;
} fields[] = {
    {"clock", offsetof(struct machine, clock), 0.01, 20}, {"fma", offsetof(struct machine, fma), 0.125, 16},
    {"l2", offsetof(struct machine, l2), 0.01, 1e6},      {"l3", offsetof(struct machine, l3), 0.01, 1e6},
    {"dram", offsetof(struct machine, dram), 0.01, 1e6},
};

static double *field_of(struct machine *m, const struct field *f)
{
    return (double *)(void *)((char *)m + f->at);
}

static const char *write_machine(struct arena *a, struct machine *m)
{
    struct text t = text_new(a);
    for (int i = 0; i < COUNT_OF(fields); i++)
        text_put(&t, "%s%s=%.3g", i ? "," : "", fields[i].name, *field_of(m, &fields[i]));
    return t.at;
}

/* Changes what the text names. False: it says something else. */
static bool read_machine(const char *text, struct machine *m)
{
    while (*text) {
        const size_t n = strcspn(text, "=");
        char *end;
        int i = 0;
        while (i < COUNT_OF(fields) && (strlen(fields[i].name) != n || strncmp(fields[i].name, text, n))) i++;
        if (i == COUNT_OF(fields) || !text[n]) return false;
        const double x = strtod(text + n + 1, &end);
        if (!(x >= fields[i].least && x <= fields[i].most) || (*end && *end != ',') || !strcmp(end, ",")) return false;
        *field_of(m, &fields[i]) = x;
        text = end + (*end == ',');
    }
    return true;
}

static void apply(struct target *t)
{
    const struct machine usual = assumed(t), *m = &t->machine;
    t->clock *= factor(m->clock, usual.clock);
    t->units = m->fma;
    t->l2_rate *= factor(m->l2, usual.l2);
    t->l3_rate *= factor(m->l3, usual.l3);
    t->dram_rate *= factor(m->dram, usual.dram);
}

struct making {
    struct sol_ctx *ctx;
    struct arena *arena;
    const struct target *target;
};

static sol_status make(void *user, const char **out_text)
{
    const struct making *mk = user;
    const int64_t start = clock_ns();
    struct machine m;
    TRY(measure(mk->ctx, mk->arena, mk->target, &m));
    *out_text = write_machine(mk->arena, &m);
    LOG(mk->ctx, LOG_DEBUG, "tune", "this machine: %s, measured in %.0f ms", *out_text,
        (double)(clock_ns() - start) / 1e6);
    return SOL_OK;
}

/* What was measured; where that is not possible (no compiler, no cache, no memory): what is assumed. */
static sol_status find_measured(struct sol_ctx *ctx, struct arena *a, const struct target *t, struct machine *m)
{
    const char *text, *name = arena_printf(a, "machine %d: %s %dB, %s, L2 %lldK, L3 %lldK of %d, %d cores", VERSION,
                                           t->device->name, t->vector_bytes, machine_processor(a),
                                           (long long)t->l2 >> 10, (long long)t->l3 >> 10, t->l3_cores, t->cores);
    const struct making mk = {ctx, a, t};
    const sol_status status = cache_find_out(ctx, a, name, &(struct fact_maker){make, (void *)(uintptr_t)&mk}, &text);
    if (status == SOL_ERR_INTERRUPTED) return status;
    if (status) LOG(ctx, LOG_DEBUG, "tune", "this machine is not measured: %s", sol_error(ctx));
    struct machine found = *m;
    if (!status && text && read_machine(text, &found)) {
        *m = found;
        m->source = MACHINE_MEASURED;
    }
    return SOL_OK;
}

static sol_status find(struct sol_ctx *ctx, struct arena *a, const struct target *t, struct machine *m)
{
    const char *key = ctx_config(ctx, "machine");
    if (strcmp(t->march ? t->march : "", "native") || !strcmp(key, "assumed")) return SOL_OK;
    if (!strcmp(key, "auto")) return find_measured(ctx, a, t, m);
    m->source = MACHINE_GIVEN;
    if (*key && read_machine(key, m)) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_INVALID,
                    "machine: expected auto, assumed, or numbers such as clock=4,fma=2,l2=370,l3=60,dram=34 (GHz, "
                    "vectors a core multiplies and adds in a cycle, GB/s of all cores), got '%s'",
                    key);
}

sol_status machine_find(struct sol_ctx *ctx, struct target *t)
{
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_check(ctx);
    t->machine = assumed(t);
    const sol_status status = find(ctx, a, t, &t->machine);
    arena_destroy(a);
    if (!status && t->machine.source != MACHINE_ASSUMED) apply(t);
    return status;
}

sol_status machine_target(struct sol_ctx *ctx, struct target *out)
{
    TRY(target_named(ctx, ctx_config(ctx, "target"), out));
    return machine_find(ctx, out);
}

/* -- for people */

struct sol_machine machine_show(const struct target *t)
{
    static const char *const sources[] = {"", "assumed", "measured", "given"};
    const struct machine *m = &t->machine;
    return (struct sol_machine){.source = sources[m->source],
                                .threads = t->cores,
                                .clock = m->clock,
                                .fma = m->fma,
                                .vector_bytes = t->vector_bytes,
                                .l2_bytes = t->l2 * t->cores,
                                .l3_bytes = t->l3,
                                .flops = 2 * t->cores * m->clock * m->fma * target_lanes(t, 4),
                                .l2_rate = m->l2,
                                .l3_rate = m->l3,
                                .memory_rate = m->dram};
}

sol_status sol_machine(struct sol_ctx *ctx, struct sol_machine *out)
{
    struct target t;
    *out = (struct sol_machine){.source = ""};
    TRY(machine_target(ctx, &t));
    *out = machine_show(&t);
    return SOL_OK;
}
