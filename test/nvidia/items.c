/* Work items of a group as contexts that take turns: each runs until it waits at a barrier or ends. The order of items
 * and groups differs by launch, so that a missing barrier shows. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "nvidia.h"

#define STACK ((size_t)256 << 10)

struct item {
    jmp_buf at; /* where it goes on */
    ucontext_t first;
    char *stack;
    bool started, ended;
};
static __thread struct {
    struct item item[MOST_ITEMS];
    jmp_buf turns; /* of the thread, that gives items their turns */
    struct item *now;
    const struct kernel *kernel;
    struct group *group;
    void **parameters;
} run;

static void yield(void)
{
    if (!_setjmp(run.now->at)) _longjmp(run.turns, 1);
}

/* An item, which lives for many kernels. */
static void live(void)
{
    for (;;) {
        run.kernel->run(run.group, run.parameters);
        run.now->ended = true;
        yield();
    }
}

static void turn_of(struct item *i)
{
    run.now = i;
    if (_setjmp(run.turns)) return;
    if (i->started) _longjmp(i->at, 1);
    i->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (i->stack == MAP_FAILED || getcontext(&i->first)) abort();
    i->started = true;
    i->first.uc_stack.ss_sp = i->stack;
    i->first.uc_stack.ss_size = STACK;
    makecontext(&i->first, live, 0);
    setcontext(&i->first);
}

static bool run_group(struct group *g, unsigned draw)
{
    const unsigned n = g->items.x; /* SOL's groups have one dimension */
    for (unsigned i = 0; i < n; i++) run.item[i].ended = false;
    for (;;) {
        unsigned ended = 0;
        for (unsigned k = 0; k < n; k++) {
            const unsigned i = draw & 1 ? n - 1 - (k + draw) % n : (k + draw) % n;
            g->item.x = i;
            turn_of(&run.item[i]);
            ended += run.item[i].ended;
        }
        if (ended == n) return true;
        if (ended) return false;
    }
}

bool items_run(const struct kernel *k, struct group g, unsigned shared_bytes, void **parameters, unsigned draw)
{
    const unsigned n = g.groups.x;
    g.barrier = yield;
    g.span = memory_span();
    run.kernel = k;
    run.group = &g;
    run.parameters = parameters;
    for (unsigned i = 0; i < n; i++) {
        g.group.x = draw & 2 ? n - 1 - i : i;
        memset(k->shared(), 0xff, shared_bytes);
        if (!run_group(&g, draw + i)) {
            fprintf(stderr, "a barrier that some items of a group do not reach\n");
            abort();
        }
    }
    return true;
}
