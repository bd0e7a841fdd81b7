/* Places: points of the dimensions that a network is measured at. The first has the hints, which is all there is where
 * sizes are fixed; the second has much smaller sizes, at which the whole network must not become slower. Kernels that
 * are versions for classes of sizes (plan/versions.c) add the points that they are made for. */
#include <string.h>

#include "tune/tune.h"

#define SMALLER 8 /* times: the sizes of the second place */

int tune_place(struct tune_places *p, struct arena *a, const struct sol_graph *g, const int64_t *point)
{
    const size_t bytes = (size_t)g->dims.n * sizeof *point;
    int64_t *at = NEW_ARRAY(a, int64_t, g->dims.n + 1);
    for (int i = 0; i < g->dims.n; i++) at[i] = point ? point[i] : g->dims.at[i].dim.hint;
    for (int i = 0; i < p->n; i++)
        if (!bytes || !memcmp(p->at[i].dims, at, bytes)) return i;
    if (p->n == TUNE_MOST_PLACES) return -1;
    p->at[p->n] = (struct trial_data){.dims = bytes ? at : NULL};
    return p->n++;
}

void tune_places_begin(struct tune_places *p, struct arena *a, const struct sol_graph *g)
{
    int64_t small[SIZE_MOST_DIMS] = {0};
    for (int i = 0; i < g->dims.n; i++) {
        const struct size_dim *d = &g->dims.at[i].dim;
        small[i] = ceil_div(MAX(MAX(d->min, 1), d->hint / SMALLER), d->multiple) * d->multiple;
        if (small[i] > d->max) small[i] = d->hint;
    }
    p->n = 0;
    tune_place(p, a, g, NULL);
    tune_place(p, a, g, small);
}

bool tune_places_data(struct tune_places *p, struct arena *a, const struct sol_net *net)
{
    bool good = true;
    for (int i = 0; i < p->n && good; i++) {
        p->at[i].params = p->at[0].params;
        good = trial_data_make(a, net, &p->at[i]);
    }
    return good;
}

double tune_place_ns(const struct plan *p, const struct trial_data *at)
{
    double ns = 0;
    for (int i = 0; i < p->units.n; i++) {
        const struct unit *u = p->units.at[i];
        if (!u->dead && u->program == PROGRAM_FORWARD)
            ns += u->kernel.cost * (double)size_at(unit_when(u, 1), at->dims);
    }
    return ns;
}
