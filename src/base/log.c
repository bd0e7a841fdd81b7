/* The log: one line for each message, `[INFO ][  8.79][core] Compiler (63): text`. A line is one write, so lines of
 * several threads do not mix. The time is in seconds since the context was created. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

#include "base/context.h"

static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG", "TRACE"};

enum log_level log_level_named(const char *name)
{
    for (int i = 0; i < COUNT_OF(level_names); i++)
        if (!strcmp(level_names[i], name)) return (enum log_level)i;
    return LOG_INFO;
}

/* "src/build/compiler.c" -> "Compiler" */
static void stem(const char *file, char out[32])
{
    const char *slash = strrchr(file, '/');
    if (slash) file = slash + 1;
    size_t n = MIN(strcspn(file, "."), 31);
    memcpy(out, file, n);
    out[n] = 0;
    if (out[0] >= 'a' && out[0] <= 'z') out[0] = (char)(out[0] - 'a' + 'A');
}

void log_put(struct sol_ctx *ctx, enum log_level level, const char *module, const char *file, int line,
             const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&ctx->level, memory_order_relaxed)) return;
    char text[16384], name[32];
    stem(file, name);
    int n = snprintf(text, sizeof text, "[%-5s][%6.2f][%s] %s (%d): ", level_names[level],
                     (double)(clock_ns() - ctx->start_ns) * 1e-9, module, name, line);
    va_list args;
    va_start(args, format);
    int m = n < 0 ? -1 : vsnprintf(text + n, sizeof text - 1 - (size_t)n, format, args);
    va_end(args);
    if (m < 0) return;
    const on_log_fn tell = atomic_load(&ctx->on_log);
    if (tell) {
        tell(ctx->options.user, (int)level, text);
        return;
    }
    size_t length = strlen(text);
    text[length] = '\n';
    flockfile(stderr);
    bar_wipe(ctx);
    fwrite(text, 1, length + 1, stderr);
    funlockfile(stderr);
}

void sol_on_log(struct sol_ctx *ctx, void (*log)(void *user, int level, const char *line))
{
    atomic_store(&ctx->on_log, log);
}

void sol_log(struct sol_ctx *ctx, int level, const char *module, const char *file, int line, const char *text)
{
    log_put(ctx, (enum log_level)MIN(MAX(level, LOG_ERROR), LOG_TRACE), module, file, line, "%s", text);
}
