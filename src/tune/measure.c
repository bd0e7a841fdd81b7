/* Measures the limits of this machine on all its threads: multiply-adds in registers, and reading from L2, L3 and
 * memory.
 *
 * A few loops (gauge.c) run for some milliseconds, once for each kind of processor. The cache keeps
 * the result. Profiles use the measured values. The cost model uses only the number of FMA units, and powers of two
 * between the other values and those of the machine on which the cost model was fitted, so that noise does not change
 * the choice of kernels.
 *
 * Each worker is timed by its processor time, so that other load does not make the machine look slower. The best of
 * several rounds counts. */
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

enum { VERSION = 2, CACHE_LINE = 64, PAGE = 4096, READS = 8 };
enum { FEW = 3, ENOUGH = 8, ROUNDS = 24 }; /* rounds */
enum { USUAL_NS = 30000000, MOST_NS = 150000000 };
enum { CHAIN_TURNS = 16384, MULTIPLY_TURNS = 8192 };
enum { NEAR_BYTES = 8 << 20 };            /* read from L2 in a round */
static const double most_bytes = 1 << 30; /* to read from memory, of all workers */

/* Measured values divided by assumed ones (src/print/target.c), on the machine where costs were fitted: Zen 5. */
static const struct machine fitted = {.clock = 1.5, .l2 = 2.2, .l3 = 1.5, .dram = 2.2};

/* -- what the cost model uses */

static struct machine assumed(const struct target *t)
{
    return (struct machine){.clock = t->clock * fitted.clock,
                            .fma = t->fma_pipes,
                            .l2 = t->l2_rate * fitted.l2,
                            .l3 = t->l3_rate * fitted.l3,
                            .dram = t->dram_rate * fitted.dram,
                            .source = MACHINE_ASSUMED};
}

/* The ratio to the assumed value as a power of two: 1 between half and twice, because the memory bandwidth of rented
 * machines varies that much. Values far from those of all existing machines are measurement errors. */
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

/* -- running them */

enum kind { CHAIN, MULTIPLY, L2, L3, DRAM, KINDS };

struct reading {   /* of one worker in a round */
    double rate;   /* turns or bytes per ns */
    bool together; /* at the same time as all others, with the processor to itself */
};
struct gauge_run {
    const struct target *target;
    const struct gauge *loops;
    char *memory;
    int64_t part;         /* of each worker */
    int64_t near, middle; /* portions of it, for L2 and L3 */
    atomic_int arrived;
    struct reading (*reading)[KINDS][ROUNDS]; /* by worker */
    int rounds;                               /* measured so far */
    int workers;
};

static int64_t thread_ns(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) ? -1 : (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits for the other workers, but not for one without a processor. Returns whether all came. */
static bool meet(struct gauge_run *g, int times, int workers)
{
    enum { PATIENCE = 1000000 }; /* ns */
    const int64_t start = clock_ns();
    atomic_fetch_add(&g->arrived, 1);
    while (atomic_load(&g->arrived) < times * workers)
        if (clock_ns() - start > PATIENCE) return false;
    return true;
}

typedef void loop(const void *in, int64_t n, void *out);

/* Runs a loop `times` times for n turns or bytes. */
static struct reading run(loop *loop, const char *from, char *to, int64_t n, int64_t times)
{
    const int64_t wall = clock_ns(), own = thread_ns();
    for (int64_t i = 0; i < times; i++) loop(from, n, to);
    const int64_t own_end = thread_ns(), all = MAX(clock_ns() - wall, 1);
    const int64_t ns =
        own < 0 || own_end - own < all / 32 ? all : MIN(own_end - own, all); /* the clock has coarse steps */
    return (struct reading){(double)n * (double)times / (double)ns, (double)ns > 0.9 * (double)all};
}

/* Brings data into the cache level that it is to be read from. */
static void place(const struct gauge_run *g, enum kind k, const char *block, char *results)
{
    if (k == L3) g->loops->read(block, g->middle, results);
    if (k == DRAM) gauge_flush(block, g->part);
}

static struct reading run_kind(const struct gauge_run *g, enum kind k, const char *block, char *factors)
{
    char *results = factors + 2 * CACHE_LINE;
    if (k == CHAIN) return run(g->loops->chain, factors, results, CHAIN_TURNS, 1);
    if (k == MULTIPLY) return run(g->loops->multiply, factors, results, MULTIPLY_TURNS, 1);
    if (k == L2) return run(g->loops->read, block, results, g->near, MAX(NEAR_BYTES / g->near, 1));
    return run(g->loops->read, block, results, k == L3 ? g->middle : g->part, 1);
}

/* A round measures all kinds in turn, so that a disturbance does not affect all rounds of one kind. */
static void work(void *arg, int worker, int workers)
{
    struct gauge_run *g = arg;
    const int n = target_lanes(g->target, 4);
    char *block = g->memory + worker * (g->part + PAGE); /* a separate page */
    float *factors = (float *)(void *)(block + g->part);
    if (!worker) g->workers = workers;
    if (!g->rounds) memset(block, 0, (size_t)g->part); /* memory that was never written is a single page of zeros */
    /* sums converge to 1, without infinities and denormals */
    for (int i = 0; i < 2 * n; i++) factors[i] = i < n ? 0.9F : 0.1F;
    for (int k = 0; k < KINDS; k++) {
        place(g, k, block, (char *)factors + 2 * CACHE_LINE);
        const bool all = meet(g, k + 1, workers);
        struct reading *of = &g->reading[worker][k][g->rounds];
        *of = run_kind(g, k, block, (char *)factors);
        of->together &= all;
    }
}

static bool is_together(const struct gauge_run *g, enum kind k, int round)
{
    bool together = true;
    for (int w = 0; w < g->workers; w++) together &= g->reading[w][k][round].together;
    return together;
}

/* The best round of all workers; if possible, one in which they shared L3 and memory. */
static double best(const struct gauge_run *g, enum kind k)
{
    double most[2] = {0, 0};
    for (int r = 0; r < g->rounds; r++) {
        const bool together = is_together(g, k, r);
        double all = 0;
        for (int w = 0; w < g->workers; w++) all += g->reading[w][k][r].rate;
        most[together] = MAX(most[together], all);
    }
    return most[1] > 0 ? most[1] : most[0];
}

/* The power of two nearest to x. */
static double power(double x)
{
    return exp2(round(log2(x)));
}

static struct machine evaluate(const struct gauge_run *g)
{
    const struct target *t = g->target;
    const double cores = t->cores, share = cores / g->workers;
    const double cycles = best(g, CHAIN) * 2 * GAUGE_CHAIN;
    const double vectors = best(g, MULTIPLY) * g->loops->sums;
    const double fma_pipes = MIN(MAX(power(vectors / cycles), 0.125), 4);
    return (struct machine){.clock = vectors / fma_pipes / g->workers,
                            .fma = fma_pipes,
                            .l2 = best(g, L2) * share,
                            .l3 = best(g, L3) * share,
                            .dram = best(g, DRAM),
                            .source = MACHINE_MEASURED};
}

/* The bytes to read: for L2 half of its size, for L3 more than L2 can hold. For memory, the same bytes are read after a
 * flush. If a processor cannot flush, twice the size of L3 is read, which takes longer, because touching new memory
 * takes more time than the measurement. */
static void set_sizes(struct gauge_run *g)
{
    const struct target *t = g->target;
    const int64_t row = (int64_t)READS * t->vector_bytes, sharers = MAX(MIN(t->l3_cores, t->cores), 1);
    const double most = MIN(most_bytes, machine_free_bytes() / 4) / t->cores;
    const bool flushes = gauge_flush(g->memory, 0);
    g->near = t->l2 / 2 / row * row;
    g->middle = MAX(MIN(t->l3 / 2 / sharers, t->l2 * 4), t->l2 * 3 / 2) / row * row;
    g->part = flushes ? g->middle : MAX((int64_t)MIN((double)(2 * t->l3 / sharers), most), g->middle);
    g->part = g->part / PAGE * PAGE + PAGE;
}

/* A few rounds suffice if all workers had a processor, otherwise more are run. A result far from the assumed value is
 * measured for longer, since something may have disturbed it. */
static bool is_enough(const struct gauge_run *g, const struct machine *m, int64_t ns)
{
    int good = 0;
    for (int r = 0; r < g->rounds; r++) {
        bool together = true;
        for (int k = 0; k < KINDS; k++) together &= is_together(g, k, r);
        good += together;
    }
    if (g->rounds == ROUNDS || (g->rounds >= ENOUGH && ns > MOST_NS)) return true;
    return is_usual(m, g->target) && (good >= FEW || (g->rounds >= FEW && ns > USUAL_NS));
}

static void measure_in(struct gauge_run *g, struct machine *out)
{
    const int64_t start = clock_ns();
    const struct rt_team *team = rt_team_openmp();
    if (!team) team = rt_team_pool();
    do {
        atomic_store(&g->arrived, 0);
        team->parallel(team->user, g->target->cores, work, g);
        g->rounds++;
        *out = evaluate(g);
    } while (!is_enough(g, out, clock_ns() - start));
}

static sol_status measure(struct sol_ctx *ctx, struct arena *a, const struct target *t, struct machine *out)
{
    struct gauge_run g = {.target = t, .loops = gauge_find(t->vector_bytes)};
    if (!g.loops) return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "machine: this build of SOL is not optimized");
    set_sizes(&g);
    const size_t bytes = (size_t)(g.part + PAGE) * (size_t)t->cores;
    g.reading = arena_alloc(a, (size_t)t->cores * sizeof *g.reading);
    TRY(ctx_check(ctx));
    g.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.memory == MAP_FAILED) return ctx_fail(ctx, SOL_ERR_NOMEM, "machine: no memory for %zu bytes", bytes);
    measure_in(&g, out);
    munmap(g.memory, bytes);
    return SOL_OK;
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

/* Sets the values named in the text. False: the text is not valid. */
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
    t->fma_pipes = m->fma;
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
    struct machine m = assumed(mk->target);
    TRY(measure(mk->ctx, mk->arena, mk->target, &m));
    *out_text = write_machine(mk->arena, &m);
    LOG(mk->ctx, LOG_DEBUG, "tune", "this machine: %s, measured in %.0f ms", *out_text,
        (double)(clock_ns() - start) / 1e6);
    return SOL_OK;
}

/* The measured values. If measuring is impossible (no cache, no memory), the assumed ones. */
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
