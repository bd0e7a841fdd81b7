/* Flavours: which one a target has, and what it writes for a mark. */
#include "print/flavour.h"

#include <stddef.h>
#include <string.h>

static const struct flavour flavours[] = {
#define X(name, ...) [FLAVOUR_##name] = {#name, __VA_ARGS__},
#include "print/flavour.def"
#undef X
};

const struct flavour *flavour_of(const struct target *t)
{
    return &flavours[t->device->flavour];
}

bool target_has_vectors(const struct target *t)
{
    return flavour_of(t)->vector;
}

bool target_has_items(const struct target *t)
{
    return *flavour_of(t)->item;
}

bool target_is_card(const struct target *t)
{
    enum { TURNS = 16 }; /* a device of at most so many lanes is a processor */
    return target_has_items(t) && t->simd > TURNS;
}

double target_step_ns(const struct target *t)
{
    return target_is_card(t) ? 2000 : KERNEL_STEP_NS;
}

bool target_calls(const struct target *t)
{
    return *flavour_of(t)->call;
}

bool target_launches(const struct target *t)
{
    return flavour_of(t)->parameter;
}

bool target_has_trees(const struct target *t)
{
    return flavour_of(t)->inner;
}

const char *flavour_word(const struct flavour *f, const char *mark)
{
    const struct {
        const char *mark, *word;
    } words[] = {
        {"INLINE", f->inlined}, {"NOINLINE", f->called},   {"HELPER", f->helper},       {"FUNCTION", f->function},
        {"TABLE", f->table},    {"CONSTANT", f->constant}, {"RESTRICT", f->restricted}, {"MEMSET", f->memset},
        {"ITEM", f->item},      {"GROUP", f->group},       {"SHARED", f->shared},       {"BARRIER", f->barrier},
        {"CALL", f->call},      {"GLOBAL", f->global},     {"ASSUME", f->assume},       {"NEIGHBOUR", f->neighbour}};
    for (int i = 0; i < COUNT_OF(words); i++)
        if (!strcmp(words[i].mark, mark)) return words[i].word;
    return NULL;
}

const char *form_fill(struct arena *a, const char *form, int n, const struct token *tokens)
{
    struct text t = text_new(a);
    const char *from = form; /* not added yet */
    for (const char *s = form; (s = strchr(s, '$')); s++) {
        int i = 0;
        while (i < n && tokens[i].name != s[1]) i++;
        if (i == n) continue;
        text_add(&t, from, (size_t)(s - from));
        text_add(&t, tokens[i].text, strlen(tokens[i].text));
        from = ++s + 1;
    }
    text_add(&t, from, strlen(from));
    return t.at;
}
