/* Measures the cost of planning and printing, in milliseconds and kilobytes per layer, for networks of growing size.
 * They are chains of similar layers, so superlinear costs show. No C compiler runs.
 *
 *   bench-compile [shape ...] [-n layers,layers,..]
 *   bench-compile --once shape layers     runs in this process, for a profiler; prints nothing
 *
 * Each network runs in a process of its own. Its memory is the peak of that process minus that for a network with a few
 * layers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compile/compile.h"
#include "grad/grad.h"
#include "passes/passes.h"
#include "schedule/schedule.h"

/* -- networks */

struct made {
    struct sol_graph *g;
    struct sol_tensor *t; /* the last one */
};

static void must(struct sol_graph *g, sol_status s)
{
    if (!s) return;
    fprintf(stderr, "%s\n", sol_error(g->ctx));
    exit(1);
}

static struct sol_tensor *layer(struct sol_graph *g, const char *kind, int nin, struct sol_tensor **in, int nattr,
                                const struct sol_attr *attrs)
{
    struct sol_tensor *out;
    must(g, sol_graph_layer(g,
                            &(struct sol_new_layer){
                                .kind = kind, .nin = nin, .in = in, .nattr = nattr, .attrs = attrs, .name = kind},
                            1, &out));
    return out;
}

static struct sol_tensor *input(struct sol_graph *g, int ndim, const int64_t *shape)
{
    struct sol_tensor *t;
    must(g, sol_graph_input(g, "x", SOL_F32, ndim, shape, &t));
    return t;
}

static struct sol_tensor *param(struct sol_graph *g, int ndim, const int64_t *shape)
{
    struct sol_tensor *t;
    must(g, sol_graph_param(g, "w", SOL_F32, ndim, shape, &t));
    return t;
}

static struct sol_attr ints(const char *name, int n, const int64_t *values)
{
    return (struct sol_attr){.name = name, .kind = SOL_ATTR_INT, .n = n, .ints = values};
}

static void permutes(struct sol_graph *g, int n)
{
    static const int64_t shape[] = {4, 6, 8}, order[] = {1, 2, 0};
    const struct sol_attr perm = ints("perm", 3, order);
    struct sol_tensor *t = input(g, 3, shape);
    for (int i = 0; i < n; i++) t = i % 2 ? layer(g, "tanh", 1, &t, 0, NULL) : layer(g, "Permute", 1, &t, 1, &perm);
    must(g, sol_graph_output(g, "y", t));
}

static void split(struct sol_graph *g, int n)
{
    const int64_t shape[] = {4, 8 * n}, axis[] = {1};
    int64_t *sizes = NEW_ARRAY(g->arena, int64_t, n);
    struct sol_tensor *x = input(g, 2, shape), **parts = NEW_ARRAY(g->arena, struct sol_tensor *, n);
    for (int i = 0; i < n; i++) sizes[i] = 8;
    const struct sol_attr attrs[] = {ints("axis", -1, axis), ints("sizes", n, sizes)};
    must(g, sol_graph_layer(g,
                            &(struct sol_new_layer){
                                .kind = "Split", .nin = 1, .in = &x, .nattr = 2, .attrs = attrs, .name = "split"},
                            n, parts));
    for (int i = 0; i < n; i++) {
        parts[i] = layer(g, i % 2 ? "exp" : "tanh", 1, &parts[i], 0, NULL);
        must(g, sol_graph_output(g, "y", parts[i]));
    }
}

static void concat(struct sol_graph *g, int n)
{
    static const int64_t shape[] = {4, 8}, axis[] = {1};
    const struct sol_attr along = ints("axis", -1, axis);
    struct sol_tensor **parts = NEW_ARRAY(g->arena, struct sol_tensor *, n), *x = input(g, 2, shape), *y;
    for (int i = 0; i < n; i++) {
        struct sol_tensor *in[] = {x, param(g, 2, shape)};
        parts[i] = layer(g, "mul", 2, in, 0, NULL);
    }
    y = layer(g, "Concat", n, parts, 1, &along);
    must(g, sol_graph_output(g, "y", y));
}

static void borders(struct sol_graph *g, int n)
{
    static const int64_t shape[] = {4, 8};
    for (int i = 0; i < n; i++) {
        struct sol_tensor *x = input(g, 2, shape);
        must(g, sol_graph_output(g, "y", layer(g, "exp", 1, &x, 0, NULL)));
    }
}

static struct sol_tensor *conv_block(struct sol_graph *g, struct sol_tensor *x, int i)
{
    static const int64_t one[] = {1, 1}, w[] = {16, 16, 3, 3}, c[] = {16};
    const struct sol_attr pads[] = {ints("p", 2, one), ints("q", 2, one)};
    struct sol_tensor *in[5] = {x, param(g, 4, w)}, *y = layer(g, "Conv", 2, in, 2, pads);
    in[0] = y;
    for (int k = 1; k < 5; k++) in[k] = param(g, 1, c);
    y = layer(g, "BatchNorm", 5, in, 0, NULL);
    struct sol_tensor *sum[] = {y, x};
    y = layer(g, "add", 2, sum, 0, NULL);
    (void)i;
    return layer(g, "relu", 1, &y, 0, NULL);
}

static void convolutions(struct sol_graph *g, int n)
{
    static const int64_t shape[] = {1, 16, 14, 14};
    struct sol_tensor *x = input(g, 4, shape);
    for (int i = 0; i < n / 4; i++) x = conv_block(g, x, i);
    must(g, sol_graph_output(g, "y", x));
}

/* The same with its gradient: n convolutions. */
static void training(struct sol_graph *g, int n)
{
    static const int64_t shape[] = {4, 16, 14, 14}, w[] = {16, 16, 3, 3}, one[] = {1, 1};
    const struct sol_attr pads[] = {ints("p", 2, one), ints("q", 2, one)};
    struct sol_tensor *x = input(g, 4, shape), **with = NEW_ARRAY(g->arena, struct sol_tensor *, n);
    int *reached = NEW_ARRAY(g->arena, int, n);
    for (int i = 0; i < n; i++) {
        struct sol_tensor *in[] = {x, with[i] = param(g, 4, w)};
        x = layer(g, "Conv", 2, in, 2, pads);
        x = layer(g, "relu", 1, &x, 0, NULL);
    }
    must(g, sol_graph_output(g, "y", x));
    must(g, sol_graph_differentiate(g, 1, (int[]){0}, n, with, reached));
}

static const struct shape {
    const char *name, *doc;
    void (*make)(struct sol_graph *g, int n);
} shapes[] = {
    {"permute", "Permute and tanh by turns", permutes},
    {"split", "a Split into n parts", split},
    {"concat", "a Concat of n parts", concat},
    {"borders", "n inputs and outputs", borders},
    {"conv", "Conv, BatchNorm, add, relu by turns", convolutions},
    {"training", "n convolutions and their gradients", training},
};

/* -- measuring */

struct cost {
    double keep_ms, passes_ms, plan_ms, schedule_ms; /* keep: choosing what training saves */
    double kib, made_kib, passes_kib, plan_kib;      /* peak at the end of each phase */
    int kernels;
};

/* Processor time, so other processes do not count. */
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double most_kib(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_maxrss;
}

static double since(double *start)
{
    const double before = *start;
    *start = now_ms();
    return *start - before;
}

static void measure(const struct shape *s, int n, struct cost *out)
{
    struct sol_ctx *ctx;
    struct sol_graph *g;
    struct target target;
    struct plan *plan;
    struct schedule *schedule;
    struct compile_memory memory = {0};
    if (sol_ctx_create(NULL, &ctx) || sol_graph_create(ctx, s->name, &g)) exit(1);
    must(g, sol_config_set(ctx, "log::level", "ERROR"));
    must(g, target_named(ctx, "x86-64-v3", &target));
    s->make(g, n);
    out->made_kib = most_kib();
    double start = now_ms();
    must(g, compile_keep(g, &target, &memory));
    out->keep_ms = since(&start);
    must(g, passes_run(g));
    out->passes_ms = since(&start);
    out->passes_kib = most_kib();
    struct arena *a = arena_create(ctx);
    must(g, plan_make(g, a, &target, &plan));
    out->plan_ms = since(&start);
    out->plan_kib = most_kib();
    must(g, schedule_make(plan, &schedule));
    schedule_module_text(schedule, s->name, NULL);
    out->schedule_ms = since(&start);
    out->kernels = schedule->kernels.n;
    out->kib = most_kib();
}

static struct cost measure_apart(const struct shape *s, int n)
{
    struct cost c = {0};
    int pipes[2];
    if (pipe(pipes)) exit(1);
    const pid_t child = fork();
    if (!child) {
        measure(s, n, &c);
        _exit(write(pipes[1], &c, sizeof c) != sizeof c);
    }
    close(pipes[1]);
    int status = 0;
    if (read(pipes[0], &c, sizeof c) != sizeof c) c.kernels = -1;
    close(pipes[0]);
    waitpid(child, &status, 0);
    return c;
}

static void report(const struct shape *s, int count, const int *layers)
{
    const struct cost none = measure_apart(s, 4);
    double first = 0;
    printf("%s: %s\n", s->name, s->doc);
    for (int i = 0; i < count; i++) {
        const struct cost c = measure_apart(s, layers[i]);
        const double all = c.keep_ms + c.passes_ms + c.plan_ms + c.schedule_ms, each = all / layers[i];
        if (!i) first = each;
        printf("  %5d  %9.1f ms (keep %.1f, passes %.1f, plan %.1f, schedule %.1f), %d kernels  %7.3f ms a layer (%.2f)"
               "  %7.1f KiB a layer (graph %.1f, passes %.1f, plan %.1f, schedule %.1f)\n",
               layers[i], all, c.keep_ms, c.passes_ms, c.plan_ms, c.schedule_ms, c.kernels, each, each / first,
               (c.kib - none.kib) / layers[i], (c.made_kib - none.made_kib) / layers[i],
               (c.passes_kib - c.made_kib) / layers[i], (c.plan_kib - c.passes_kib) / layers[i],
               (c.kib - c.plan_kib) / layers[i]);
        fflush(stdout);
    }
}

static int once(const char *name, int layers)
{
    struct cost c;
    for (int k = 0; k < COUNT_OF(shapes); k++)
        if (!strcmp(name, shapes[k].name)) return measure(&shapes[k], layers, &c), 0;
    fprintf(stderr, "bench-compile: there is no shape %s\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--once")) return once(argv[2], atoi(argv[3]));
    int layers[16] = {100, 400, 1600}, count = 3, named = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-n")) {
            named++;
            continue;
        }
        count = 0;
        for (char *at = i + 1 < argc ? strtok(argv[++i], ",") : NULL; at && count < 16; at = strtok(NULL, ","))
            layers[count++] = atoi(at);
    }
    for (int k = 0; k < COUNT_OF(shapes); k++) {
        bool wanted = !named;
        for (int i = 1; i < argc; i++) wanted |= !strcmp(argv[i], shapes[k].name);
        if (wanted) report(&shapes[k], count, layers);
    }
    return 0;
}
