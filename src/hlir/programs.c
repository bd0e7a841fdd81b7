/* Assigns each layer to a program by reachability. Only graph inputs and outputs are marked `backward`. */
#include "hlir/graph.h"

/* A layer belongs to `prepare` if it depends on parameters and constants alone, has the same sizes in every call, and
 * none of its results is an output of the graph: outputs are written in every call. */
static bool is_prepare(const struct sol_layer *l, const bool *written, const uint8_t *program)
{
    for (int i = 0; i < l->nout; i++)
        if (written[l->out[i]->id]) return false;
    for (int i = 0; i < l->nin; i++) {
        const struct sol_tensor *t = l->in[i];
        if (t && t->role == TENSOR_INPUT) return false;
        if (t && t->role == TENSOR_VALUE && program[t->from->id] != PROGRAM_PREPARE) return false;
    }
    return l->nin > 0 && !loops_vary(l->loops);
}

const char *program_name(enum program program)
{
    static const char *const names[] = {
        [PROGRAM_PREPARE] = "prepare", [PROGRAM_FORWARD] = "forward", [PROGRAM_BACKWARD] = "backward"};
    return names[program];
}

bool graph_is_joint(const struct sol_graph *g)
{
    bool joint = false;
    for (int i = 0; i < g->outputs.n; i++) joint |= g->outputs.at[i].backward;
    return joint;
}

static sol_status check(struct sol_graph *g, const struct sol_layer *l)
{
    for (int i = 0; i < l->nin; i++)
        if (l->in[i] && l->in[i]->role == TENSOR_INPUT && l->in[i]->backward)
            return ctx_fail(g->ctx, SOL_ERR_INVALID,
                            "layer '%s' (%s): an output of the forward program depends on input '%s', which only the "
                            "backward program is given: mark the output as backward too",
                            l->name, l->def->name, l->in[i]->name);
    return SOL_OK;
}

sol_status graph_programs(struct sol_graph *g, uint8_t *by_layer_id)
{
    bool *written = NEW_ARRAY(g->arena, bool, g->ntensors + 1), *forward = NEW_ARRAY(g->arena, bool, g->ntensors + 1);
    bool joint = graph_is_joint(g);
    for (int i = 0; i < g->outputs.n; i++) {
        written[g->outputs.at[i].t->id] = true;
        if (!g->outputs.at[i].backward) forward[g->outputs.at[i].t->id] = true;
    }
    for (struct sol_layer *l = g->last; l; l = l->prev) {
        bool needed = !joint;
        for (int i = 0; i < l->nout; i++) needed |= forward[l->out[i]->id];
        for (int i = 0; i < l->nin && needed; i++)
            if (l->in[i]) forward[l->in[i]->id] = true;
        by_layer_id[l->id] = needed ? PROGRAM_FORWARD : PROGRAM_BACKWARD;
    }
    for (struct sol_layer *l = g->first; l; l = l->next) {
        if (by_layer_id[l->id] == PROGRAM_FORWARD && joint) TRY(check(g, l));
        if (is_prepare(l, written, by_layer_id)) by_layer_id[l->id] = PROGRAM_PREPARE;
    }
    return SOL_OK;
}
