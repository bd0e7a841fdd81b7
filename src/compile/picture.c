/* Draws memory over the kernels of a network: a stacked bar for each kernel of forward and backward, by kind. The SVG
 * is written directly; any browser shows it, and a tooltip names the layers of each bar. */
#include "compile/compile.h"

#include <string.h>

enum { LEFT = 70, TOP = 60, HEIGHT = 300, BOTTOM = 50, GAP = 24, WIDTH = 1000, LEAST_BAR = 4, MOST_BAR = 24 };

static const struct {
    const char *name, *color;
} kinds[] = {
    [MEMORY_PARAMS] = {"parameters", "#4c72b0"},
    [MEMORY_PREPARED] = {"packed parameters", "#8da0cb"},
    [MEMORY_INPUTS] = {"inputs", "#64b5cd"},
    [MEMORY_OUTPUTS] = {"outputs", "#55a868"},
    [MEMORY_SAVED] = {"saved for backward", "#dd8452"},
    [MEMORY_WORK] = {"working memory", "#c44e52"},
};
_Static_assert(COUNT_OF(kinds) == MEMORY_KINDS, "a color for each kind");

struct picture {
    struct text t;
    double scale;     /* pixels a byte */
    int bar;          /* pixels */
    double unit;      /* bytes, of all numbers shown */
    const char *word; /* for the unit */
};

static void choose_unit(struct picture *p, double most)
{
    static const char *const words[] = {"B", "KB", "MB", "GB"};
    int i = 0;
    for (p->unit = 1; most >= 1000 * p->unit && i < 3; i++) p->unit *= 1000;
    p->word = words[i];
}

/* The distance of lines: a round number of which `most` has three to eight. */
static double round_step(double most)
{
    static const double factors[] = {2, 2.5, 2}; /* 1, 2, 5, 10, .. */
    double step = 1;
    while (step * 8 > most && step > 1e-3) step /= 10;
    for (int i = 0; step * 8 < most; i++) step *= factors[i % 3];
    return step;
}

static void put_escaped(struct text *t, const char *s)
{
    for (; *s; s++) {
        const char *as = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;" : NULL;
        if (as)
            text_put(t, "%s", as);
        else
            text_put(t, "%c", *s);
    }
}

static int64_t whole(const struct memory_bar *b)
{
    int64_t bytes = 0;
    for (int k = 0; k < MEMORY_KINDS; k++) bytes += b->bytes[k];
    return bytes;
}

static void put_bar(struct picture *p, const struct memory_bar *b, int x)
{
    double y = TOP + HEIGHT;
    text_put(&p->t, "<g><title>");
    put_escaped(&p->t, b->label);
    text_put(&p->t, ": %.2f %s", (double)whole(b) / p->unit, p->word);
    for (int k = 0; k < MEMORY_KINDS; k++)
        if (b->bytes[k]) text_put(&p->t, ", %s %.2f", kinds[k].name, (double)b->bytes[k] / p->unit);
    text_put(&p->t, "</title>\n");
    for (int k = 0; k < MEMORY_KINDS; k++) {
        const double height = (double)b->bytes[k] * p->scale;
        if (!b->bytes[k]) continue;
        y -= height;
        text_put(&p->t, "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" fill=\"%s\"/>\n", x, y, p->bar - 1,
                 height, kinds[k].color);
    }
    text_put(&p->t, "</g>\n");
}

static void put_axis(struct picture *p, double most, int right)
{
    const double step = round_step(most / p->unit);
    for (double at = 0; at * p->unit <= most; at += step) {
        const double y = TOP + HEIGHT - at * p->unit * p->scale;
        text_put(&p->t, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, right, y, y);
        text_put(&p->t, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g %s</text>\n", LEFT - 6, y + 4, at, p->word);
    }
}

static void put_legend(struct picture *p)
{
    for (int k = 0, x = LEFT; k < MEMORY_KINDS; k++) {
        text_put(&p->t, "<rect x=\"%d\" y=\"32\" width=\"12\" height=\"12\" fill=\"%s\"/>", x, kinds[k].color);
        text_put(&p->t, "<text x=\"%d\" y=\"42\">%s</text>\n", x + 16, kinds[k].name);
        x += 30 + 7 * (int)strlen(kinds[k].name);
    }
}

const char *picture_memory(struct arena *a, const char *name, const struct memory_bar *bars, int n)
{
    int64_t most = 1;
    int nforward = 0, peak = 0;
    for (int i = 0; i < n; i++) {
        if (whole(&bars[i]) > most) most = whole(&bars[i]), peak = i;
        nforward += !bars[i].backward;
    }
    struct picture p = {.t = text_new(a), .scale = HEIGHT / (double)most};
    choose_unit(&p, (double)most);
    p.bar = MIN(MAX(WIDTH / MAX(n, 1), LEAST_BAR), MOST_BAR);
    const int right = MAX(LEFT + n * p.bar + GAP, 760);
    text_put(&p.t,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
             "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"18\" "
             "font-size=\"14\">",
             right + 20, TOP + HEIGHT + BOTTOM, LEFT);
    put_escaped(&p.t, name);
    text_put(&p.t, ": memory while each kernel runs; at most %.2f %s, in kernel %d of %s</text>\n",
             (double)most / p.unit, p.word, bars[peak].backward ? peak - nforward : peak,
             bars[peak].backward ? "backward" : "forward");
    put_legend(&p);
    put_axis(&p, (double)most, right);
    for (int i = 0; i < n; i++) put_bar(&p, &bars[i], LEFT + i * p.bar + (bars[i].backward ? GAP : 0));
    text_put(&p.t, "<text x=\"%d\" y=\"%d\">forward: %d kernels</text>\n", LEFT, TOP + HEIGHT + 18, nforward);
    if (nforward < n)
        text_put(&p.t, "<text x=\"%d\" y=\"%d\">backward: %d kernels</text>\n", LEFT + nforward * p.bar + GAP,
                 TOP + HEIGHT + 18 + 16 * (nforward * p.bar < 120), n - nforward);
    text_put(&p.t, "</svg>\n");
    return p.t.at;
}
