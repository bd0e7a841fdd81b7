/* A context, an arena and a folder for a test of base; its log lines are kept. */
#ifndef SOL_BASE_FIXTURE_H
#define SOL_BASE_FIXTURE_H

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

struct fixture {
    struct sol_ctx *ctx;
    struct arena *a;
    char folder[64];
    char lines[8192]; /* the log */
};

static inline void remember(void *user, int level, const char *line)
{
    struct fixture *f = user;
    (void)level;
    strncat(f->lines, line, sizeof f->lines - strlen(f->lines) - 1);
    strncat(f->lines, "\n", sizeof f->lines - strlen(f->lines) - 1);
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct sol_ctx_options o = {.size = sizeof o, .log = remember, .user = f};
    assert_int_equal(sol_ctx_create(&o, &f->ctx), SOL_OK);
    f->a = arena_create(f->ctx);
    strcpy(f->folder, "/tmp/sol-base-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    int rc = system(command);
    arena_destroy(f->a);
    sol_ctx_destroy(f->ctx);
    free(f);
    return rc;
}

#define T(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

#endif
