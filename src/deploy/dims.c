/* Dimensions that vary, in a deployed library: their names in C, formulas of sizes, the header's section on them, and
 * the memory that is enough for all sizes. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/size.h"
#include "deploy/deploy.h"
#include "layers/reference_sized.h"
#include "rt/rt.h"

/* -- names and limits */

/* Parameters of the header's functions, and what their bodies declare. */
static const char taken[] = "at|block|bytes|c|ctx|deviceIdx|error|found|front_here|gradients|i|in|inputs|out|outputs|"
                            "shape|size|t|tensor|threads";

static bool is_argument(const char *name)
{
    const size_t n = !strncmp(name, "in", 2) ? 2 : !strncmp(name, "out", 3) ? 3 : 0;
    return n && name[n] && !name[n + strspn(name + n, "0123456789")];
}

static bool is_used(const struct deploy *d, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcasecmp(d->g->dims.at[i].name, name)) return true; /* macros have capital letters */
    return deploy_is_one_of(taken, name) || is_argument(name) || !deploy_is_free(name);
}

/* The name of dimension i in C: its own if possible. */
static const char *name_in_c(struct deploy *d, int i)
{
    const char *name = d->g->dims.at[i].name;
    const bool plain = isalpha((unsigned char)*name) && strlen(name) < 40;
    const char *made = plain ? text_identifier(d->arena, name) : arena_printf(d->arena, "dim%d", i);
    while (is_used(d, i, made)) made = arena_printf(d->arena, "%s_size", made);
    return made;
}

/* Formats have a limit of their own where a model says none: ONNX's reader that of an int32_t. */
static bool has_limit(const struct size_dim *s)
{
    return s->max < INT32_MAX;
}

static const struct sol_layer *setter(const struct sol_graph *g)
{
    const struct sol_layer *l = g->first;
    while (layer_sets(l) < 0) l = l->next;
    return l;
}

static sol_status check_limits(struct deploy *d)
{
    d->limited = true;
    if (graph_data_dims(d->g))
        return ctx_fail(d->ctx, SOL_ERR_UNSUPPORTED,
                        "deploy: layer '%s' (%s) sets a size while the network runs, which libraries cannot yet",
                        setter(d->g)->name, setter(d->g)->def->name);
    for (int i = 0; i < d->g->dims.n; i++) {
        const struct graph_dim *dim = &d->g->dims.at[i];
        if (has_limit(&dim->dim)) continue;
        d->limited = false;
        if (d->bare)
            return ctx_fail(d->ctx, SOL_ERR_INVALID,
                            "deploy: threads: with 0, all memory is fixed at deployment, but '%s' has no largest size: "
                            "give one, as in sol.dim(\"%s\", max=64) or --dim %s=1..64",
                            dim->name, dim->name, dim->name);
    }
    return SOL_OK;
}

/* Messages of the library name dimensions as the header does. */
static void rename_dims(struct deploy *d)
{
    for (int i = 0; i < d->g->dims.n; i++) d->g->dims.at[i].name = arena_strdup(d->g->arena, name_in_c(d, i));
    for (int k = 1; k < d->ngraph; k++)
        for (int i = 0; i < d->g->dims.n; i++)
            d->graph[k].g->dims.at[i].name = arena_strdup(d->graph[k].g->arena, d->g->dims.at[i].name);
}

static bool same_dims(const struct sol_graph *a, const struct sol_graph *b)
{
    bool same = a->dims.n == b->dims.n;
    for (int i = 0; same && i < a->dims.n; i++) same = !strcmp(a->dims.at[i].name, b->dims.at[i].name);
    return same;
}

sol_status deploy_dims(struct deploy *d)
{
    for (int k = 0; k < d->npredict; k++)
        if (d->npredict > 1 && d->graph[k].g->dims.n)
            return ctx_fail(
                d->ctx, SOL_ERR_UNSUPPORTED,
                "deploy: network '%s' has several batch sizes, and '%s' varies: let the batch vary, too, or "
                "fix the other sizes",
                d->g->name, d->graph[k].g->dims.at[0].name);
    for (int k = 1; k < d->ngraph; k++)
        if (!same_dims(d->g, d->graph[k].g))
            return ctx_fail(d->ctx, SOL_ERR_INVALID,
                            "deploy: network '%s': dimensions that vary in its graph for training are others than for "
                            "prediction",
                            d->g->name);
    for (int k = 0; k < d->ngraph; k++) d->graph[k].own = quantities_new(d->arena, d->g->dims.n, d->g->dims.n);
    TRY(check_limits(d));
    rename_dims(d);
    return ctx_check(d->ctx);
}

bool deploy_varies(const struct deploy *d)
{
    return d->g->dims.n > 0;
}

/* -- texts */

const char *deploy_dim_list(struct deploy *d, const char *before)
{
    struct text t = text_new(d->arena);
    for (int i = 0; i < d->g->dims.n; i++) text_put(&t, "%s%s%s", i ? ", " : "", before, d->g->dims.at[i].name);
    return t.at ? t.at : "";
}

const char *deploy_dim_parameters(struct deploy *d)
{
    return deploy_varies(d) ? arena_printf(d->arena, ", %s", deploy_dim_list(d, "int64_t ")) : "";
}

const char *deploy_dim_array(struct deploy *d)
{
    return arena_printf(d->arena, "(const int64_t[]){%s}", deploy_dim_list(d, ""));
}

/* "1..512, a multiple of 4" */
static const char *rule(struct deploy *d, const struct size_dim *s)
{
    const char *multiple =
        s->multiple > 1 ? arena_printf(d->arena, ", a multiple of %lld", (long long)s->multiple) : "";
    if (!has_limit(s)) return arena_printf(d->arena, "at least %lld%s", (long long)s->min, multiple);
    return arena_printf(d->arena, "%lld..%lld%s", (long long)s->min, (long long)s->max, multiple);
}

const char *deploy_dim_comment(struct deploy *d)
{
    struct text t = text_new(d->arena);
    for (int i = 0; i < d->g->dims.n; i++)
        text_put(&t, "%s *   %s: %s\n", i ? "" : " *\n", d->g->dims.at[i].name, rule(d, &d->g->dims.at[i].dim));
    return t.at ? t.at : "";
}

/* A size as C over the parameters of a macro. */
static const char *in_macro(struct deploy *d, int64_t size)
{
    struct text t = text_new(d->arena);
    for (const char *at = size_c(d->arena, size, "@"); *at;) {
        const size_t n = strcspn(at, "@");
        text_add(&t, at, n);
        if (!*(at += n)) break;
        int i = 0;
        for (at++; isdigit((unsigned char)*at); at++) i = 10 * i + (*at - '0');
        text_put(&t, "(int64_t)(%s)", d->g->dims.at[i].name);
    }
    return t.at;
}

void deploy_put_sized_tensor(struct deploy *d, struct text *t, const char *name, const struct sol_tensor *x)
{
    const char *dims = deploy_dim_list(d, "");
    const int64_t n = tensor_elements(x), bytes = tensor_bytes(x);
    text_put(t, "#define %s_DIMS %d\n#define %s_SHAPE(%s) {", name, x->ndim, name, dims);
    for (int k = 0; k < x->ndim; k++) text_put(t, "%s%s", k ? ", " : "", in_macro(d, x->dim[k].size));
    text_put(t, "}\n#define %s_ELEMENTS(%s) %s\n", name, dims, in_macro(d, n));
    text_put(t, "#define %s_BYTES(%s) %s\n", name, dims, in_macro(d, bytes));
    if (!d->limited || size_most(bytes) == INT64_MAX) return;
    text_put(t, "#define %s_MOST_ELEMENTS %lld\n#define %s_MOST_BYTES %lld\n", name, (long long)size_most(n), name,
             (long long)size_most(bytes));
}

static const char *macros(struct deploy *d)
{
    struct text t = text_new(d->arena);
    for (int i = 0; i < d->g->dims.n; i++) {
        const struct size_dim *s = &d->g->dims.at[i].dim;
        const char *name =
            deploy_upper(d, arena_printf(d->arena, "%s_%s", deploy_macro_name(d), d->g->dims.at[i].name));
        text_put(&t, "#define %s_EXAMPLE %lld\n#define %s_MIN %lld\n#define %s_MULTIPLE %lld\n", name,
                 (long long)s->hint, name, (long long)s->min, name, (long long)s->multiple);
        if (has_limit(s)) text_put(&t, "#define %s_MAX %lld\n", name, (long long)s->max);
    }
    return t.at;
}

const char *deploy_dim_section(struct deploy *d)
{
    if (!deploy_varies(d)) return "";
    const char *name = deploy_macro_name(d);
    const char *enough =
        d->bare ? ""
        : d->limited
            ? arena_printf(d->arena, " A block of %s_CONTEXT_BYTES(threads)\n * bytes is enough for all.", name)
            : "";
    return deploy_fill(d->arena, deploy_text(d->bare ? "network_sizes_bare.h" : "network_sizes.h"),
                       (const char *const[]){"func", d->keys.func_name, "list", deploy_dim_list(d, ""), "dims",
                                             deploy_dim_parameters(d), "macros", macros(d), "enough", enough, NULL});
}

/* Sizes for the example: those of the graph, and others. */
const char *deploy_dim_example(struct deploy *d, int which)
{
    struct text t = text_new(d->arena);
    for (int i = 0; i < d->g->dims.n; i++) {
        const struct size_dim *s = &d->g->dims.at[i].dim;
        const int64_t other = s->hint + s->multiple <= s->max ? s->hint + s->multiple : s->hint;
        text_put(&t, "%s%lld", i ? ", " : "", (long long)(which ? other : s->hint));
    }
    return t.at ? t.at : "";
}

/* Where the sizes of a call are found, as rows of a dict in Python. */
const char *deploy_dim_places(struct deploy *d)
{
    struct text t = text_new(d->arena);
    uint32_t known = 0;
    for (int i = 0; i < deploy_inputs(d); i++)
        for (int k = 0; k < d->g->inputs.at[i]->ndim; k++) {
            struct size_dim s;
            if (!size_is_dim(d->g->inputs.at[i]->dim[k].size, &s) || known >> s.index & 1) continue;
            known |= UINT32_C(1) << s.index;
            text_put(&t, "%s\"%s\": (%d, %d)", t.n ? ", " : "", d->g->dims.at[s.index].name, i, k);
        }
    return t.at ? t.at : "";
}

/* -- tables */

const char *deploy_dim_table(struct deploy *d)
{
    struct text t = text_new(d->arena);
    text_put(&t, "static const struct sol_ext_dim dims[] = {\n");
    for (int i = 0; i < d->g->dims.n; i++) {
        const struct size_dim *s = &d->g->dims.at[i].dim;
        text_put(&t, "    {\"%s\", %lld, %lld, %lld, %lld},\n", d->g->dims.at[i].name, (long long)s->hint,
                 (long long)s->min, (long long)(has_limit(s) ? s->max : 0), (long long)s->multiple);
    }
    text_put(&t, "};\n");
    return t.at;
}

static void put_quantities(struct text *t, struct quantities *q, const struct sol_tensor *x, struct text *bytes,
                           int *nshape)
{
    for (int k = 0; k < x->ndim; k++) text_put(t, "%s, ", quantity_text(q, x->dim[k].size));
    text_put(bytes, "%s, ", quantity_text(q, tensor_bytes(x)));
    *nshape += x->ndim;
}

void deploy_put_sizes(struct deploy *d, struct text *t, struct deploy_graph *g)
{
    struct text shapes = text_new(d->arena), bytes = text_new(d->arena);
    struct quantities *q = &g->own;
    int nshape = 0;
    for (int i = 0; i < deploy_inputs(d); i++) put_quantities(&shapes, q, g->g->inputs.at[i], &bytes, &nshape);
    for (int i = 0; i < d->noutput; i++) put_quantities(&shapes, q, deploy_output(d, g, i), &bytes, &nshape);
    g->nshape = nshape;
    quantities_put(q, t, arena_printf(d->arena, "compute%s", g->id));
    text_put(t, "static const int64_t shapes%s[] = {%s0};\nstatic const int64_t bytes%s[] = {%s0};\n", g->id,
             shapes.at ? shapes.at : "", g->id, bytes.at ? bytes.at : "");
    text_put(t, "static const struct front_sizes sizes%s = {%d, compute%s, %d, %d, shapes%s, bytes%s};\n", g->id,
             q->first + q->forms.n, g->id, deploy_inputs(d) + d->noutput, nshape, g->id, g->id);
}

/* -- memory that is enough for all sizes: blocks of the workspace have the places that are right for the largest */

static int64_t value_most(const void *none, int64_t size)
{
    (void)none;
    return size_most(size);
}

static size_t opaque_most(struct deploy *d, const struct schedule *s)
{
    size_t most = 0;
    for (int i = 0; i < s->opaque.n; i++) {
        struct reference a;
        struct reference_instance at;
        s->opaque.at[i]->def->describe(d->arena, s->opaque.at[i], &a);
        most = MAX(most, reference_scratch(reference_at(&a, value_most, NULL, &at)));
    }
    return most;
}

bool deploy_most(struct deploy *d, const struct schedule *s, struct deploy_most *out_m)
{
    const struct schedule_program *p = &s->program[PROGRAM_FORWARD];
    const int n = p->nblock;
    struct rt_block *block = NEW_ARRAY(d->arena, struct rt_block, n + 1);
    bool known = d->limited && size_most(p->scratch_bytes) < INT64_MAX;
    for (int i = 0; i < n; i++) {
        const struct sol_block *b = &p->blocks.at[i];
        block[i] = (struct rt_block){.bytes = size_most(b->bytes), .first = b->first, .last = b->last};
        known &= block[i].bytes < SIZE_POISON;
    }
    if (!known) return false;
    const struct rt_layout layout = {
        .block = block, .n = n, .memory = arena_alloc(d->arena, rt_offsets_bytes(n, 0) + sizeof(void *))};
    out_m->workspace = n ? rt_offsets(&layout) : p->workspace_bytes;
    out_m->scratch = (size_most(p->scratch_bytes) + 63) / 64 * 64;
    out_m->opaque = (int64_t)opaque_most(d, s);
    out_m->block = block;
    out_m->nblock = n;
    return true;
}

const char *deploy_put_most(struct deploy *d, struct text *t, const char *name, const struct schedule *s)
{
    struct deploy_most m;
    if (!deploy_most(d, s, &m)) return "0";
    text_put(t, "static const int64_t %s_places[] = {", name);
    for (int i = 0; i < m.nblock; i++) text_put(t, "%lld, ", (long long)m.block[i].offset);
    text_put(t, "0};\nstatic const struct front_most %s_most = {%s_places, %lld, %lld, %lld};\n", name, name,
             (long long)m.workspace, (long long)m.scratch, (long long)m.opaque);
    return arena_printf(d->arena, "&%s_most", name);
}
