/* An allocator for sol_ctx_options.reallocate whose n-th allocation fails, alone or with all after it. A test counts
 * the allocations of a piece of work once, then repeats the work with each of them failing in turn:
 *
 *     struct fail_alloc f = {.fail_at = -1};
 *     struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
 */
#ifndef SOL_TEST_FAIL_ALLOC_H
#define SOL_TEST_FAIL_ALLOC_H

#include <stdatomic.h>
#include <stdlib.h>

struct fail_alloc {
    long fail_at;      /* number of the allocation that fails, from 0; -1: none */
    int from_then_on;  /* all later ones fail, too */
    atomic_long n;     /* allocations so far */
    atomic_long alive; /* allocated and not freed; not 0 at the end means a leak */
};

static void *fail_alloc(void *user, void *p, size_t bytes)
{
    struct fail_alloc *f = user;
    if (!bytes) {
        if (p) atomic_fetch_sub(&f->alive, 1);
        free(p);
        return NULL;
    }
    long i = atomic_fetch_add(&f->n, 1);
    if (f->fail_at >= 0 && (i == f->fail_at || (i > f->fail_at && f->from_then_on))) return NULL;
    void *q = realloc(p, bytes);
    if (q && !p) atomic_fetch_add(&f->alive, 1);
    return q;
}

#if defined __SANITIZE_ADDRESS__
/* Requests that no machine can meet are part of the tests: NULL, not the end of the process. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
#endif

#endif
