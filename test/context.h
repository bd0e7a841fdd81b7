/* Shared by C tests: cmocka, and the context that a group of tests runs in (`make_ctx` and `drop_ctx` are its set-up
 * and tear-down). */
#ifndef SOL_TEST_CONTEXT_H
#define SOL_TEST_CONTEXT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sol/sol.h"

static struct sol_ctx *ctx;

static inline int make_ctx(void **state)
{
    (void)state;
    return sol_ctx_create(NULL, &ctx);
}

static inline int drop_ctx(void **state)
{
    (void)state;
    sol_ctx_destroy(ctx);
    return 0;
}

#endif
