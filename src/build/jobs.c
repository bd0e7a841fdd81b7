/* Jobs: compilers that run in parallel. If the compiler rejects a source of several kernels, they are compiled again
 * one by one, because names may clash, and so that the message is about one kernel. */
#include "build/inside.h"

#include <string.h>
#include <time.h>

/* For code at which a compiler crashes, one after another: gcc 12 does so where it joins conversions and comparisons of
 * vectors that are wider than its registers. */
static const char *const careful[] = {"-fno-tree-forwprop", "-O0"};

const char *job_again(const struct job *j, struct job *out_again)
{
    if (!strstr(j->output, "internal compiler error") || j->careful == COUNT_OF(careful)) return NULL;
    *out_again = (struct job){.nkernel = j->nkernel,
                              .kernel = j->kernel,
                              .source = j->source,
                              .object = j->object,
                              .careful = j->careful + 1};
    return careful[j->careful];
}

static sol_status start(struct sol_ctx *ctx, struct arena *a, const struct compiler *cc, const char *work,
                        struct job *j)
{
    VECTOR(const char *) argv = {0};
    PUSH(a, argv, cc->path);
    for (int i = 0; cc->flags[i]; i++) PUSH(a, argv, cc->flags[i]);
    for (int i = 0; i < j->careful; i++) PUSH(a, argv, careful[i]);
    if (!j->nkernel) { /* the module: nothing but tables and data */
        PUSH(a, argv, "-O0");
        PUSH(a, argv, arena_printf(a, "-I%s", work));
        PUSH(a, argv, arena_printf(a, "-Wa,-I%s", work));
    }
    PUSH(a, argv, "-pipe");
    PUSH(a, argv, "-c");
    PUSH(a, argv, "-o");
    PUSH(a, argv, j->object);
    PUSH(a, argv, j->source);
    PUSH(a, argv, NULL);
    return process_start(ctx, argv.at, &j->process);
}

/* Takes the result of a compiler that has ended. */
static sol_status finish(struct sol_ctx *ctx, struct arena *a, struct job *j)
{
    const char *output = "";
    sol_status status = process_wait(ctx, j->process, &j->exit, &output);
    if (!status) j->output = arena_strdup(a, output);
    process_free(ctx, j->process);
    j->process = NULL;
    return status;
}

static sol_status run(const struct job_setup *s, const job_list *jobs, int first)
{
    int next = first, running = 0, kernels = 0;
    for (int i = 0; i < first; i++) kernels += jobs->at[i].exit ? 0 : jobs->at[i].nkernel;
    if (s->total) ctx_progress(s->ctx, "Compiling", kernels, s->total);
    while (next < jobs->n || running) {
        TRY(ctx_check(s->ctx));
        while (next < jobs->n && running < s->limit) {
            TRY(start(s->ctx, s->arena, s->cc, s->work, &jobs->at[next]));
            next++, running++;
        }
        bool ended = false;
        for (int i = first; i < next; i++) {
            struct job *j = &jobs->at[i];
            if (!j->process || !process_done(j->process)) continue;
            TRY(finish(s->ctx, s->arena, j));
            running--;
            ended = true;
            if (!j->exit) kernels += j->nkernel;
            if (s->total) ctx_progress(s->ctx, "Compiling", kernels, s->total);
        }
        if (!ended) nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return SOL_OK;
}

sol_status jobs_run(const struct job_setup *s, const job_list *jobs, int first)
{
    const sol_status status = run(s, jobs, first);
    for (int i = first; i < jobs->n; i++) /* kills what an error left running */
        process_free(s->ctx, jobs->at[i].process);
    return status;
}
