/* Layers from outside (sol/extend.h). They belong to a context and live as long as it does. */
#include <ctype.h>
#include <string.h>

#include "base/registry.h"
#include "hlir/opdef.h"
#include "layers/layers.h"

enum { MOST_TENSORS = 24 }; /* of a function: inputs, outputs, temporaries */

struct layer_registry {
    struct registry base;
    VECTOR(const struct layer_def *) defs;
};

static void *make(struct sol_ctx *ctx)
{
    return registry_make(ctx, sizeof(struct layer_registry));
}

static struct layer_registry *registry_of(struct sol_ctx *ctx)
{
    static const struct ctx_part kind = {.make = make, .destroy = registry_destroy};
    return ctx_part(ctx, &kind);
}

/* -- looking up */

static int number_of_name(const struct layer_registry *r, const char *name)
{
    for (int i = 0; i < r->defs.n; i++)
        if (!strcmp(r->defs.at[i]->name, name)) return i;
    return -1;
}

const struct layer_def *layer_find(struct sol_ctx *ctx, const char *name)
{
    const struct layer_def *def = strchr(name, ':') ? NULL : layer_def(name);
    struct layer_registry *r = def ? NULL : registry_of(ctx);
    if (!r) return def;
    pthread_mutex_lock(&r->base.lock);
    const int i = number_of_name(r, name);
    if (i >= 0) def = r->defs.at[i];
    pthread_mutex_unlock(&r->base.lock);
    return def;
}

const struct layer_def *layer_registered_at(struct sol_ctx *ctx, int i)
{
    struct layer_registry *r = registry_of(ctx);
    if (!r) return NULL;
    pthread_mutex_lock(&r->base.lock);
    const struct layer_def *def = i >= 0 && i < r->defs.n ? r->defs.at[i] : NULL;
    pthread_mutex_unlock(&r->base.lock);
    return def;
}

/* -- checking */

/* "mylib::scale", "com.acme::Scale": words of letters, digits, '_' and '.'. */
bool layer_is_outside(const char *name)
{
    if (!name) return false;
    static const char *const of = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    const size_t n = strspn(name, of);
    if (!n || isdigit((unsigned char)*name) || strncmp(name + n, "::", 2)) return false;
    const char *second = name + n + 2;
    const size_t m = strspn(second, of);
    return m && !second[m] && !isdigit((unsigned char)*second);
}

bool layer_has_attribute(const struct layer_def *def, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = def->defaults; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (!strncmp(at, name, n) && strchr(":= ", at[n])) return true; /* its end, too */
    }
    return false;
}

static sol_status check_attributes(struct sol_ctx *ctx, const struct layer_def *def)
{
    TRY(layer_check_attributes(ctx, def));
    for (int i = 0; i < def->row->attrs.n; i++)
        if (!layer_has_attribute(def, def->row->attrs.at[i]))
            return ctx_fail(ctx, SOL_ERR_INVALID,
                            "layer %s: its definition uses '%s', which is no attribute; the attributes are: %s",
                            def->name, def->row->attrs.at[i], *def->defaults ? def->defaults : "none");
    return SOL_OK;
}

/* A function does not know types and missing inputs. */
static sol_status check_function(struct sol_ctx *ctx, const struct layer_def *def)
{
    const struct opdef *row = def->row;
    if (row->tensors.n > MOST_TENSORS)
        return ctx_fail(ctx, SOL_ERR_INVALID, "layer %s: a function has at most %d tensors, got %d", def->name,
                        MOST_TENSORS, row->tensors.n);
    for (int i = 0; i < row->tensors.n; i++) {
        const struct opdef_tensor *t = &row->tensors.at[i];
        bool given = false;
        for (int k = 0; t->type && k < SOL_DTYPES; k++) given |= !strcmp(dtype_def((enum sol_dtype)k)->name, t->type);
        if (t->optional)
            return ctx_fail(ctx, SOL_ERR_INVALID, "layer %s: input %s: a function has no optional inputs", def->name,
                            t->name);
        if (!given)
            return ctx_fail(ctx, SOL_ERR_INVALID,
                            "layer %s: tensor %s: a function's tensors have given types, such as %s:f32[..]", def->name,
                            t->name, t->name);
    }
    return SOL_OK;
}

sol_status layer_check_numbers(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs)
{
    int n = def->row->ivars.n;
    for (int i = 0; i < def->row->tensors.n; i++) n += def->row->tensors.at[i].role == OPDEF_TEMP;
    for (int i = 0; i < attrs->n; i++)
        if (attrs->at[i].kind == ATTR_INT) n += attrs->at[i].n < 0 ? 1 : attrs->at[i].n;
    if (n <= REFERENCE_NUMBERS) return SOL_OK;
    return ctx_fail(ctx, SOL_ERR_UNSUPPORTED,
                    "%s: a function gets at most %d sizes, integers and temporaries, here it would be %d", def->name,
                    REFERENCE_NUMBERS, n);
}

static const struct opdef_tensor *named(const struct opdef *row, enum opdef_role role, const char *name)
{
    for (int i = 0; i < row->tensors.n; i++)
        if (row->tensors.at[i].role == role && !strcmp(row->tensors.at[i].name, name)) return &row->tensors.at[i];
    return NULL;
}

/* The tensors of the gradient's layer are named after those of the layer. */
static sol_status check_gradient(struct sol_ctx *ctx, const struct layer_def *def, const struct layer_def *gradient)
{
    if (!gradient)
        return ctx_fail(ctx, SOL_ERR_INVALID, "layer %s: its gradient: no layer is called '%s'; register it first",
                        def->name, def->gradient);
    if (!gradient->row)
        return ctx_fail(ctx, SOL_ERR_INVALID, "layer %s: its gradient: expected a registered layer, got '%s'",
                        def->name, def->gradient);
    for (int i = 0; i < gradient->row->tensors.n; i++) {
        const struct opdef_tensor *t = &gradient->row->tensors.at[i];
        const bool d = !strncmp(t->name, "d_", 2);
        if (t->role == OPDEF_IN && !named(def->row, OPDEF_IN, t->name) && !named(def->row, OPDEF_OUT, t->name) &&
            !(d && named(def->row, OPDEF_OUT, t->name + 2)))
            return ctx_fail(
                ctx, SOL_ERR_INVALID,
                "layer %s: its gradient %s: input %s: expected an input or output of %s, or d_ and an output",
                def->name, gradient->name, t->name, def->name);
        if (t->role == OPDEF_OUT && !(d && named(def->row, OPDEF_IN, t->name + 2)))
            return ctx_fail(ctx, SOL_ERR_INVALID,
                            "layer %s: its gradient %s: output %s: expected d_ and an input of %s", def->name,
                            gradient->name, t->name, def->name);
    }
    return SOL_OK;
}

/* -- registering */

/* "x w b? -> y: doc", as the documentation of built-in layers begins. */
static const char *signature(struct arena *a, const struct opdef *row, const char *doc)
{
    struct text t = text_new(a);
    for (int i = 0; i < row->tensors.n; i++)
        if (row->tensors.at[i].role == OPDEF_IN)
            text_put(&t, "%s%s ", row->tensors.at[i].name, row->tensors.at[i].optional ? "?" : "");
    text_put(&t, "->");
    for (int i = 0; i < row->tensors.n; i++)
        if (row->tensors.at[i].role == OPDEF_OUT) text_put(&t, " %s", row->tensors.at[i].name);
    text_put(&t, ": %s", doc && *doc ? doc : "registered");
    return t.at;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool same_layer(const struct layer_def *a, const struct layer_def *b)
{
    const struct layer_function *f = a->function, *h = b->function;
    if (!same_text(a->text, b->text) || !same_text(a->defaults, b->defaults) || !same_text(a->gradient, b->gradient))
        return false;
    if (!f || !h) return f == h;
    return f->source || h->source ? same_text(f->source, h->source) && same_text(f->symbol, h->symbol)
                                  : f->run == h->run;
}

static sol_status fill_in(struct sol_ctx *ctx, struct arena *a, const struct sol_layer_def *from, struct layer_def *def)
{
    struct opdef *row;
    const bool function = from->function != NULL;
    *def = (struct layer_def){.name = arena_strdup(a, from->name),
                              .flags = function ? LAYER_OPAQUE : 0,
                              .text = arena_strdup(a, from->definition),
                              .defaults = arena_strdup(a, from->attributes ? from->attributes : ""),
                              .gradient = arena_strdup(a, from->gradient),
                              .math = -1};
    TRY(ctx_check(ctx));
    TRY(function ? opdef_parse_head(a, def->name, def->text, &row) : opdef_parse(a, def->name, def->text, &row));
    def->row = row;
    def->doc = signature(a, row, from->doc);
    TRY(check_attributes(ctx, def));
    if (!function) return ctx_check(ctx);
    struct layer_function *f = NEW(a, struct layer_function);
    *f = (struct layer_function){from->function, arena_strdup(a, from->source), arena_strdup(a, from->symbol),
                                 arena_strdup(a, from->objects)};
    def->function = f;
    def->describe = describe_function;
    TRY(check_function(ctx, def));
    return ctx_check(ctx);
}

static sol_status enter(struct sol_ctx *ctx, struct layer_registry *r, const struct sol_layer_def *from)
{
    struct layer_def *def = NEW(r->base.arena, struct layer_def);
    TRY(fill_in(ctx, r->base.arena, from, def));
    const int at = number_of_name(r, def->name);
    if (def->gradient) {
        const int gradient = number_of_name(r, def->gradient);
        TRY(check_gradient(ctx, def, gradient < 0 ? layer_def(def->gradient) : r->defs.at[gradient]));
    }
    if (at >= 0 && same_layer(r->defs.at[at], def)) return SOL_OK;
    if (at >= 0 && !from->replace)
        return ctx_fail(ctx, SOL_ERR_INVALID,
                        "layer %s: it is registered with another definition; choose another name, or set `replace`",
                        def->name);
    if (at >= 0)
        r->defs.at[at] = def;
    else
        PUSH(r->base.arena, r->defs, def);
    return ctx_check(ctx);
}

sol_status layer_define(struct sol_ctx *ctx, const struct sol_layer_def *def, bool function)
{
    struct sol_layer_def own = *def;
    if (!function) return layer_register(ctx, &own);
    const struct layer_def *known = layer_find(ctx, def->name);
    if (!known || !known->function)
        return ctx_fail(ctx, SOL_ERR_INVALID, "layer %s: register its function first (sol_layer_register)", def->name);
    own.function = known->function->run;
    return layer_register(ctx, &own);
}

sol_status layer_register(struct sol_ctx *ctx, const struct sol_layer_def *def)
{
    struct layer_registry *r = registry_of(ctx);
    if (!r) return ctx_fail(ctx, SOL_ERR_NOMEM, "layer %s: no memory", def->name);
    if (!layer_is_outside(def->name))
        return ctx_fail(
            ctx, SOL_ERR_INVALID,
            "layer '%s': expected a namespace and a name, such as \"mylib::scale\": letters, digits, '_' and '.'",
            def->name);
    pthread_mutex_lock(&r->base.lock);
    const struct arena_mark mark = arena_mark(r->base.arena);
    const int n = r->defs.n;
    const sol_status status = enter(ctx, r, def);
    if (status) {
        r->defs.n = n;
        arena_rewind(r->base.arena, mark);
    }
    pthread_mutex_unlock(&r->base.lock);
    return status;
}
