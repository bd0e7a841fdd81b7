/* Progress: the application's callback, or a bar in the last line of a terminal. The bar is removed when the work is
 * done, and before each log line (log.c). The lock of stderr guards the screen, because libc resets that lock in a
 * child process. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/context.h"

enum { BAR = 30, LEAST_BAR = 5, BESIDES = 32, ROOM = 512, EVERY_MS = 50 }; /* besides: what stands behind the bar */

static bool wanted(struct sol_ctx *ctx)
{
    const char *key = ctx_config(ctx, "progress"), *terminal = getenv("TERM");
    if (strcmp(key, "auto") != 0) return !strcmp(key, "on");
    return ctx_on_progress(ctx) || (isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0);
}

static int columns(void)
{
    struct winsize w = {0};
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col >= 20 ? w.ws_col : 80;
}

/* "Compiling  [#########.....................]  12 of 41, 3 s", cut at the end of the line. */
static void draw(const struct bar *b, const char *what, int done, int total, int64_t now)
{
    char text[ROOM], cells[BAR + 1];
    const int room = MIN(columns(), ROOM) - 1;
    const int width = MAX(MIN(room - (int)strlen(what) - BESIDES, BAR), LEAST_BAR);
    const int filled = total > 0 ? (int)((int64_t)MIN(done, total) * width / total) : 0;
    const double seconds = (double)(now - b->begin_ns) * 1e-9;
    for (int i = 0; i < width; i++) cells[i] = i < filled ? '#' : '.';
    cells[width] = 0;
    if (total > 0)
        snprintf(text, sizeof text, "%s  [%s]  %d of %d, %.0f s", what, cells, done, total, seconds);
    else
        snprintf(text, sizeof text, "%s  %.0f s", what, seconds);
    fprintf(stderr, "\r\033[K%.*s", room, text);
    fflush(stderr);
}

/* Draws new work immediately, and then limits the rate of updates. */
static void show(struct sol_ctx *ctx, const char *what, int done, int total)
{
    struct bar *b = &ctx->bar;
    const int64_t now = clock_ns();
    flockfile(stderr);
    if (!b->begin_ns) b->begin_ns = now;
    const bool other = strncmp(b->what, what, sizeof b->what - 1) != 0;
    if (!b->shown || other || done == total || now - b->drawn_ns >= (int64_t)EVERY_MS * 1000000) {
        draw(b, what, done, total, now);
        b->drawn_ns = now;
        snprintf(b->what, sizeof b->what, "%s", what);
        b->shown = true;
    }
    funlockfile(stderr);
}

void bar_wipe(struct sol_ctx *ctx)
{
    if (!ctx->bar.shown) return;
    fputs("\r\033[K", stderr);
    ctx->bar.shown = false;
}

static void end(struct sol_ctx *ctx)
{
    const on_progress_fn tell = ctx_on_progress(ctx);
    if (!atomic_exchange(&ctx->progressing, false)) return;
    if (tell) {
        tell(ctx->options.user, NULL, 0, 0);
        return;
    }
    flockfile(stderr);
    bar_wipe(ctx);
    ctx->bar.begin_ns = 0;
    funlockfile(stderr);
    fflush(stderr);
}

void ctx_progress(struct sol_ctx *ctx, const char *what, int done, int total)
{
    if (!what) {
        end(ctx);
        return;
    }
    if (!wanted(ctx)) return;
    const on_progress_fn tell = ctx_on_progress(ctx);
    atomic_store(&ctx->progressing, true);
    if (tell)
        tell(ctx->options.user, what, done, total);
    else
        show(ctx, what, done, total);
}

void sol_progress(struct sol_ctx *ctx, const char *what, int done, int total)
{
    ctx_progress(ctx, what, done, total);
}

void sol_on_progress(struct sol_ctx *ctx, void (*progress)(void *user, const char *what, int done, int total))
{
    atomic_store(&ctx->on_progress, progress);
}
