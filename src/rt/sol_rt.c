/* Runs a program of steps on threads; see rt.h. It depends on libc and pthreads only, and is part of libsol and of
 * deployed libraries.
 *
 * The only mutable globals of SOL are here: the pools of this process, because threads belong to a process. All waiting
 * uses a *gate*: a number that a thread watches, first spinning for a bounded time, then sleeping. The spinning times
 * are based on measurements: waking a sleeping thread takes 5 to 50 us, so a worker spins for several times that before
 * it gives up its processor.
 *
 * SOL_DEPLOYED: compiled for a deployed library, which uses no other library, and reads only the files that tell the
 * number of processors. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rt/rt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_CALL_NS = 200 * 1000,    /* a pool, between two calls */
    SPIN_BARRIER_NS = 200 * 1000, /* inside a call, where work is on its way: at most this long, */
    SPIN_LEAST_NS = 20 * 1000,    /* at least this long, after spinning was in vain */
    SPIN_ROUND = 64               /* pauses between two looks at the clock */
};

static inline void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -- gate: a number whose change threads wait for */

struct gate {
    _Atomic uint32_t value;
    atomic_int sleepers;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};
#define GATE_START                                                             \
    {                                                                          \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER \
    }

/* Looks a few times whether the value differs from `old`. */
static bool gate_look(const struct gate *g, uint32_t old)
{
    for (int i = 0; i < SPIN_ROUND; i++) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return true;
        relax();
    }
    return false;
}

/* Waits until the value differs from `old`. True: the thread slept. */
static bool gate_wait(struct gate *g, uint32_t old, int64_t spin_ns)
{
    int64_t end = 0;
    do {
        if (gate_look(g, old)) return false;
        if (!end) end = now_ns() + spin_ns;
    } while (now_ns() < end);
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->sleepers, 1); /* before reading the value again: gate_set does both in the opposite order */
    while (atomic_load(&g->value) == old) pthread_cond_wait(&g->changed, &g->lock);
    atomic_fetch_sub(&g->sleepers, 1);
    pthread_mutex_unlock(&g->lock);
    return true;
}

static void gate_set(struct gate *g, uint32_t value)
{
    atomic_store(&g->value, value);
    if (!atomic_load(&g->sleepers)) return;
    pthread_mutex_lock(&g->lock);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* -- our own pool */

typedef void (*region_fn)(void *arg, int worker, int nworkers);

struct worker {
    _Alignas(64) struct gate go; /* counts the regions that this worker took part in */
    struct pool *pool;
    pthread_t thread;
    int number; /* 1 .. nworker */
};
struct pool {
    struct pool *next; /* in the list of idle pools */
    struct worker **worker;
    int nworker;
    bool stop;
    region_fn fn; /* of the current region */
    void *arg;
    int n;
    int64_t spin_ns;
    _Alignas(64) atomic_int running; /* workers still in the region */
    _Alignas(64) struct gate done;   /* counts regions */
};

static struct {
    pthread_mutex_t lock;
    struct pool *idle;
    int busy;  /* processors used by calls in flight */
    int forks; /* forks between this process and the one that loaded this code */
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    int64_t spin_ns = 0;
    for (uint32_t seen = 0;; seen++) {
        gate_wait(&w->go, seen, spin_ns);
        if (p->stop) return NULL;
        p->fn(p->arg, w->number, p->n);
        spin_ns = p->spin_ns;
        if (atomic_fetch_sub(&p->running, 1) == 1)
            gate_set(&p->done, atomic_load_explicit(&p->done.value, memory_order_relaxed) + 1);
    }
}

static void *alloc64(size_t bytes)
{
    void *p = NULL;
    bytes = (bytes + 63) & ~(size_t)63;
    if (posix_memalign(&p, 64, bytes)) return NULL;
    memset(p, 0, bytes);
    return p;
}

/* All signals are blocked in workers: they are for the application's threads. */
static bool start_thread(struct worker *w)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool ok = !pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ok;
}

/* Starts workers until there are n, or until the system refuses. */
static void pool_grow(struct pool *p, int n)
{
    if (n <= p->nworker) return;
    struct worker **workers = realloc(p->worker, (size_t)n * sizeof *workers);
    if (!workers) return;
    p->worker = workers;
    while (p->nworker < n) {
        struct worker *w = alloc64(sizeof *w);
        if (!w) return;
        *w = (struct worker){.go = GATE_START, .pool = p, .number = p->nworker + 1};
        if (!start_thread(w)) {
            free(w);
            return;
        }
        p->worker[p->nworker++] = w;
    }
}

static struct pool *pool_create(void)
{
    struct pool *p = alloc64(sizeof *p);
    if (p) *p = (struct pool){.done = GATE_START};
    return p;
}

/* Takes a pool for a call that wants *n processors, and lowers *n to what other calls in flight leave. A single call
 * gets what it asks for. */
static struct pool *pool_take(int *n)
{
    pthread_mutex_lock(&pools.lock);
    const int left = rt_processors() - pools.busy;
    if (pools.busy && *n > left) *n = left > 1 ? left : 1;
    pools.busy += *n;
    struct pool *p = NULL;
    if (*n > 1 && (p = pools.idle)) pools.idle = p->next;
    pthread_mutex_unlock(&pools.lock);
    return p;
}

static void pool_give(struct pool *p, int n)
{
    pthread_mutex_lock(&pools.lock);
    pools.busy -= n;
    if (p) {
        p->next = pools.idle;
        pools.idle = p;
    }
    pthread_mutex_unlock(&pools.lock);
}

static void pool_region(struct pool *p, int n, region_fn fn, void *arg)
{
    const uint32_t before = atomic_load_explicit(&p->done.value, memory_order_relaxed);
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    p->spin_ns = n > rt_processors() ? 0 : SPIN_CALL_NS;
    atomic_store_explicit(&p->running, n - 1, memory_order_relaxed);
    for (int i = 0; i < n - 1; i++) {
        struct gate *go = &p->worker[i]->go;
        gate_set(go, atomic_load_explicit(&go->value, memory_order_relaxed) + 1);
    }
    fn(arg, 0, n);
    gate_wait(&p->done, before, n > rt_processors() ? 0 : SPIN_BARRIER_NS);
}

static void pool_parallel(void *user, int n, region_fn fn, void *arg)
{
    (void)user;
    int granted = n;
    struct pool *p = pool_take(&granted);
    n = granted;
    if (n > 1 && !p) p = pool_create();
    if (p) pool_grow(p, n - 1);
    if (p && p->nworker < n - 1) n = p->nworker + 1;
    if (p && n > 1)
        pool_region(p, n, fn, arg);
    else
        fn(arg, 0, 1);
    pool_give(p, granted);
}

const struct rt_team *rt_team_pool(void)
{
    static const struct rt_team team = {.parallel = pool_parallel};
    return &team;
}

/* A forked child has none of the workers, so it abandons their pools. */
static void after_fork(void)
{
    pthread_mutex_init(&pools.lock, NULL);
    pools.idle = NULL;
    pools.busy = 0;
    pools.forks++;
}

int rt_forks(void)
{
    return pools.forks;
}

/* Was this process forked without running another program since? Then OpenMP threads may have been lost before this
 * code was loaded. Linux shows that as PF_FORKNOEXEC in the flags of the process's main thread. */
static bool is_fork(void)
{
    unsigned flags = 0;
#if defined __linux__ && !defined SOL_DEPLOYED
    char text[512];
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f) return false;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *end =
        strrchr(text, ')'); /* after the name: state, parent, group, session, terminal, its group, flags */
    if (!end || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1) return false;
#endif
    return flags & 0x40;
}

__attribute__((constructor)) static void load(void)
{
    pools.forks = is_fork();
    pthread_atfork(NULL, NULL, after_fork);
}

/* Runs when this code is unmapped or the process exits. Pools in use stay, because then the process is exiting. */
__attribute__((destructor)) static void unload(void)
{
    pthread_mutex_lock(&pools.lock);
    struct pool *p = pools.idle;
    pools.idle = NULL;
    pthread_mutex_unlock(&pools.lock);
    for (struct pool *next; p; p = next) {
        next = p->next;
        p->stop = true;
        for (int i = 0; i < p->nworker; i++) {
            struct worker *w = p->worker[i];
            gate_set(&w->go, atomic_load(&w->go.value) + 1);
            pthread_join(w->thread, NULL);
            free(w);
        }
        free(p->worker);
        free(p);
    }
}

/* -- running a program */

struct barrier {
    _Alignas(64) atomic_int arrived;
    _Alignas(64) struct gate phase;
};
/* The stage that the workers of a team compute, the `call`-th: in shares, of which each worker has one of its own. */
struct stage {
    _Alignas(64) _Atomic uint64_t claims; /* call << 32, and a bit for each share that a worker has begun */
    _Alignas(64) atomic_int done;         /* shares */
    _Alignas(64) struct gate calls;       /* that are over */
};
enum { MOST_SHARES = 32 };
struct region {
    const struct rt_call *call;
    struct sol_frame frame;
    atomic_flag lock; /* of the three fields below */
    atomic_int error;
    int32_t error_step;
    int error_worker;
    bool stop; /* a step did not set its size: the others would run at sizes that are none; written between two barriers
                */
    struct barrier barrier;
    struct stage stage;
};

/* How a worker waits at the barriers of one call. If other processes compete for the processors, the worker that is
 * waited for may not be running at all, and may need this very processor. Sleeping frees it. A worker that had to sleep
 * spins half as long the next time; one that did not spins twice as long. */
struct meeting {
    struct barrier *barrier;
    struct stage *stage;
    int n;
    uint32_t phase, call;
    int64_t spin_ns;
};

static void await(struct meeting *m, struct gate *g, uint32_t old)
{
    const bool slept = gate_wait(g, old, m->n > rt_processors() ? 0 : m->spin_ns);
    m->spin_ns = slept ? m->spin_ns / 2 : m->spin_ns * 2;
    if (m->spin_ns < SPIN_LEAST_NS) m->spin_ns = SPIN_LEAST_NS;
    if (m->spin_ns > SPIN_BARRIER_NS) m->spin_ns = SPIN_BARRIER_NS;
}

static void meet(struct meeting *m)
{
    struct barrier *b = m->barrier;
    if (m->n == 1) return;
    const uint32_t old = m->phase++;
    if (atomic_fetch_add_explicit(&b->arrived, 1, memory_order_acq_rel) + 1 < m->n) {
        await(m, &b->phase, old);
        return;
    }
    atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
    gate_set(&b->phase, old + 1);
}

/* -- stages of a team */

/* False: another worker has begun that share, or the call is over. */
static bool claim(struct stage *s, uint32_t call, int share)
{
    const uint64_t bit = UINT64_C(1) << share;
    uint64_t now = atomic_load_explicit(&s->claims, memory_order_acquire);
    while (now >> 32 == call && !(now & bit))
        if (atomic_compare_exchange_weak_explicit(&s->claims, &now, now | bit, memory_order_acq_rel,
                                                  memory_order_acquire))
            return true;
    return false;
}

/* A worker begins with its own share, the same tasks in each call, whose operands its caches hold then. If the others
 * are late, because their processors run something else, it computes what they have not begun. */
static void run_stage(void *user, sol_kernel *stage, char *const *p, const struct sol_frame *f, int64_t tasks,
                      int worker)
{
    struct meeting *m = user;
    struct stage *s = m->stage;
    const int64_t n = m->n < MOST_SHARES ? m->n : MOST_SHARES, shares = tasks < n ? tasks : n;
    if (m->n == 1) {
        stage(p, f, 0, tasks, worker);
        return;
    }
    if (tasks <= 0) return;
    const uint32_t call = m->call++;
    for (int64_t i = worker < shares ? 0 : 1; i <= shares; i++) {
        if (i == 1 && gate_look(&s->calls, call)) return;
        const int share = (int)((worker + i) % shares);
        if (!claim(s, call, share)) continue;
        stage(p, f, tasks * share / shares, tasks * (share + 1) / shares, worker);
        if (atomic_fetch_add_explicit(&s->done, 1, memory_order_acq_rel) + 1 < shares) continue;
        atomic_store_explicit(&s->done, 0, memory_order_relaxed);
        atomic_store_explicit(&s->claims, (uint64_t)(call + 1) << 32, memory_order_release);
        gate_set(&s->calls, call + 1);
        return;
    }
    await(m, &s->calls, call);
}

/* The number of tasks of a step; 0: the step is skipped. */
static int64_t tasks_of(const struct rt_call *c, int step)
{
    return c->only && !c->only[step] ? 0 : rt_quantity(c->program->step[step].tasks, c->sizes);
}

static bool on_host(const struct sol_step *s)
{
    return s->kind == SOL_STEP_HOST || s->kind == SOL_STEP_SET;
}

/* Does the step need one worker only? */
static bool single(const struct sol_step *s, int64_t tasks)
{
    return on_host(s) || (tasks == 1 && s->kind == SOL_STEP_KERNEL);
}

/* If several errors occur, the one that a single worker would have met first counts: the first step, and in it the
 * lowest tasks. */
static void report(struct region *r, int32_t error, int32_t step, int worker)
{
    while (atomic_flag_test_and_set_explicit(&r->lock, memory_order_acquire)) relax();
    const bool earlier = step < r->error_step || (step == r->error_step && worker < r->error_worker);
    if (!atomic_load(&r->error) || earlier) {
        r->error_step = step;
        r->error_worker = worker;
        atomic_store(&r->error, error);
    }
    atomic_flag_clear_explicit(&r->lock, memory_order_release);
}

/* The addresses of all operands. */
static void place_operands(const struct rt_call *c)
{
    const struct sol_program *p = c->program;
    for (int i = 0; i < p->nplace; i++) /* an operand without elements may have the base NULL */
        c->operands[i] =
            (char *)((uintptr_t)c->base[p->place[i].buffer] + (uintptr_t)rt_quantity(p->place[i].offset, c->sizes));
}

static void run_host(struct region *r, const struct sol_step *s, int step)
{
    const struct rt_call *c = r->call;
    const bool before = atomic_load(&r->error) != 0; /* its inputs may be garbage */
    const int32_t error = before ? 0 : c->host(c->host_user, s->call, c->operands + s->place0);
    if (error) report(r, error, step, 0);
    if (s->kind != SOL_STEP_SET) return;
    r->stop = before || error;
    if (!r->stop) place_operands(c);
}

/* The first task of a worker. A single worker needs no division. */
static int64_t share(int64_t tasks, int worker, int n)
{
    return n == 1 ? tasks * worker : (tasks * worker + n - 1) / n;
}

static void run_share(struct region *r, const struct sol_frame *f, int64_t tasks, int worker, int n)
{
    const struct sol_step *s = &r->call->program->step[f->step];
    if (on_host(s)) {
        if (worker == 0) run_host(r, s, f->step);
        return;
    }
    const int64_t task0 = share(tasks, worker, n), task1 = share(tasks, worker + 1, n);
    if (task0 < task1 || s->kind == SOL_STEP_TEAM) s->run(r->call->operands + s->place0, f, task0, task1, worker);
}

/* Runs all steps, as worker `worker` of n. There is no barrier between two steps that worker 0 runs alone. */
static void run_steps(void *arg, int worker, int n)
{
    struct region *r = arg;
    const struct rt_call *c = r->call;
    struct sol_frame f = r->frame; /* a private copy: `step` and errors may differ between workers for a moment */
    volatile int32_t error = 0, error_step = 0;
    bool reported = false;
    f.error = &error;
    f.error_step = &error_step;
    struct meeting meeting = {.barrier = &r->barrier, .stage = &r->stage, .n = n, .spin_ns = SPIN_BARRIER_NS};
    const struct sol_team team = {run_stage, &meeting};
    f.team = &team;
    bool first = true, alone = false; /* first: since the last barrier */
    int64_t begin = c->step_ns && worker == 0 ? now_ns() : 0;
    for (int i = 0; i < c->program->nstep; i++) {
        const int64_t tasks = tasks_of(c, i);
        if (tasks <= 0) continue;
        const bool was_alone = alone;
        alone = single(&c->program->step[i], tasks);
        const bool set = c->program->step[i].kind == SOL_STEP_SET; /* between two barriers: all read the sizes */
        if (n > 1 && (set || (!first && !c->step_ns && !(was_alone && alone)))) meet(&meeting);
        first = false;
        f.step = i;
        if (c->on_step && worker == 0) c->on_step(c->on_step_user, i);
        run_share(r, &f, tasks, worker, n);
        if (error && !reported) report(r, error, error_step, worker);
        reported = error;
        if (!c->step_ns && !set) continue;
        meet(&meeting);
        if (set && r->stop) break;
        first = set;
        if (!c->step_ns || worker > 0) continue;
        const int64_t end = now_ns();
        c->step_ns[i] += end - begin;
        begin = end;
    }
}

/* The number of workers that the widest step can use. */
static int useful_workers(const struct rt_call *c)
{
    int64_t most = 1;
    for (int i = 0; i < c->program->nstep; i++) {
        const int64_t tasks = tasks_of(c, i);
        if (tasks > most && !single(&c->program->step[i], tasks)) most = tasks;
    }
    return most < c->threads ? (int)most : c->threads;
}

int32_t rt_run(const struct rt_call *c, int32_t *out_step)
{
    const struct sol_program *p = c->program;
    place_operands(c);
    struct region r;
    r.call = c;
    atomic_flag_clear(&r.lock);
    atomic_init(&r.error, 0);
    r.error_step = r.error_worker = 0;
    r.stop = false;
    r.frame = (struct sol_frame){.base = c->base,
                                 .scratch = c->scratch,
                                 .scratch_bytes = rt_scratch_bytes(p, c->sizes),
                                 .seeds = c->seeds,
                                 .sizes = c->sizes};
    const int n = useful_workers(c);
    if (n <= 1) {
        run_steps(&r, 0, 1);
    } else {
        r.barrier = (struct barrier){.phase = GATE_START};
        r.stage = (struct stage){.calls = GATE_START};
        const struct rt_team *team = c->team ? c->team : rt_team_pool();
        team->parallel(team->user, n, run_steps, &r);
    }
    if (out_step) *out_step = r.error_step;
    return atomic_load(&r.error);
}
