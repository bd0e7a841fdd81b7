/* The table of solvers. To add one, write its file and a row here. Its other properties are in struct solver. If two
 * candidates cost the same, the first is chosen. */
#include <stdio.h>
#include <string.h>

#include "dfp/dfp.h"
#include "dnn/solvers.h"
#include "plan/plan.h"

const struct solver *const solvers[] = {&dnn_attention,
                                        &dnn_attention_grad,
                                        &dnn_blas,
                                        &dnn_conv,
                                        &dnn_direct,
                                        &dnn_gemv,
                                        &dnn_matmul,
                                        &dnn_mma,
                                        &dnn_simt,
                                        &dnn_attention_simt,
                                        &dnn_attention_grad_simt,
                                        &dnn_winograd,
                                        &dnn_weights,
                                        &dnn_weights_winograd,
#define X(name) &dnn_##name,
#include "dnn/plugins.def"
#undef X
                                        &dfp_solver,
                                        &nest_solver,
                                        NULL};

const struct solver *solver_named(const char *name)
{
    for (int i = 0; solvers[i]; i++)
        if (!strcmp(solvers[i]->name, name)) return solvers[i];
    return NULL;
}

bool solver_prints(const struct solver *s, const struct target *t)
{
    return s->lanes == FOR_ANY || (s->lanes == FOR_VECTORS && target_has_vectors(t)) ||
           (s->lanes == FOR_ITEMS && target_has_items(t)) || (s->lanes == FOR_MMA && t->core_mma);
}

static const char *library_of(const struct plugins *plugins, const char *name)
{
    for (int i = 0; plugins && i < plugins->n; i++)
        if (!strcmp(plugins->at[i].name, name)) return plugins->at[i].library;
    return NULL;
}

/* The library of the device's maker that a solver calls; "": it is not there; NULL: the solver calls none. */
static const char *makers(const struct solver *s, const struct sol_device_info *info)
{
    return s == &dnn_blas ? info->blas : s == &dnn_conv ? info->dnn : NULL;
}

const char *solvers_text(struct arena *a, const struct target *t, const struct plugins *plugins,
                         const struct sol_device_info *info)
{
    struct text out = text_new(a);
    for (int i = 0; solvers[i]; i++) {
        const struct solver *s = solvers[i];
        const char *of_maker = makers(s, info), *library = s->foreign ? library_of(plugins, s->name) : "";
        if (of_maker) library = *of_maker ? of_maker : NULL;
        if (!library || !solver_prints(s, t)) continue;
        text_put(&out, *library ? "%s%s (%s)" : "%s%s", out.n ? ", " : "", s->name, library);
    }
    return out.at;
}

sol_status solver_forced(struct sol_ctx *ctx, const struct solver **out)
{
    const char *name = ctx_config(ctx, "solver");
    char list[256] = "";
    *out = strcmp(name, "auto") ? solver_named(name) : NULL;
    if (*out || !strcmp(name, "auto")) return SOL_OK;
    for (int i = 0; solvers[i]; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), ", %s", solvers[i]->name);
    return ctx_fail(ctx, SOL_ERR_INVALID, "solver: there is none called '%s'; expected auto%s", name, list);
}
