/* The table of helpers: their names, their texts, and which others each of them uses. It is made once for each target.
 */
#include "print/helpers.h"

#include <assert.h>
#include <string.h>

int helpers_find(const struct helpers *h, const char *name)
{
    return (int)(intptr_t)map_get(h->by_name, name) - 1;
}

struct adding {
    const struct helpers *h;
    struct helper *one;
};

static void note_use(void *user, struct text *out, const char *name)
{
    struct adding *a = user;
    const char *word = flavour_word(a->h->flavour, name);
    if (word) {
        text_put(out, "%s", word);
        return;
    }
    const int used = helpers_find(a->h, name);
    assert(used >= 0); /* helpers use only those in front of them */
    PUSH(a->h->arena, a->one->uses, used);
    text_put(out, "%s", name);
}

void helpers_add(struct helpers *h, const char *name, const char *text)
{
    struct text t = text_new(h->arena);
    struct helper one = {0};
    text_fill(&t, text, note_use, &(struct adding){h, &one});
    one.text = t.at;
    PUSH(h->arena, h->at, one);
    map_set(h->by_name, name, (void *)(intptr_t)h->at.n);
}

void helpers_add_form(struct helpers *h, const char *name, const char *text, int n, const struct token *tokens)
{
    helpers_add(h, form_fill(h->arena, name, n, tokens), form_fill(h->arena, text, n, tokens));
}

const struct helpers *helpers_make(struct arena *a, const struct target *t)
{
    struct helpers *h = NEW(a, struct helpers);
    *h = (struct helpers){.arena = a, .flavour = flavour_of(t), .by_name = map_create(a)};
    helpers_scalar(h);
    if (h->flavour->vector) helpers_quick(h);
    for (int lanes = 2; h->flavour->vector && lanes <= MAX(4, target_lanes(t, 4)); lanes *= 2) helpers_vector(h, lanes);
    return h;
}

void helpers_print(struct text *out, const struct helpers *h)
{
    for (int i = 0; i < h->at.n; i++)
        if (*h->at.at[i].text) text_put(out, "%s\n", h->at.at[i].text);
}
