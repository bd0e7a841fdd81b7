/* The helpers that a kernel uses, and no others: its text is looked through for their names, and theirs in turn. The
 * table of helpers is made once for each target from what the prelude prints, which is one declaration after the other:
 * a line, or lines up to a bracket in the first column, with the comment in front of it. */
#include <ctype.h>
#include <string.h>

#include "print/print.h"

struct helper {
    const char *text; /* `n` characters */
    size_t n;
    VECTOR(int) uses; /* helpers, all in front of it */
};
struct helpers {
    struct arena *arena;
    VECTOR(struct helper) at;
    struct map *by_name; /* number + 1 */
};

/* -- words of C text */

struct words {
    const char *at, *end;
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *skip_comment(const char *at, const char *end)
{
    for (at += 2; at < end && !(at[0] == '*' && at[1] == '/'); at++) {
    }
    return MIN(at + 2, end);
}

/* The next name and its length; NULL at the end. Numbers, comments and texts are passed over. */
static const char *next_word(struct words *w, int *out_n)
{
    while (w->at < w->end) {
        const char c = *w->at;
        if (c == '/' && w->at[1] == '*') {
            w->at = skip_comment(w->at, w->end);
        } else if (c == '"') {
            for (w->at++; w->at < w->end && *w->at != '"'; w->at++) w->at += *w->at == '\\';
            w->at++;
        } else if (isdigit((unsigned char)c)) {
            while (w->at < w->end && (is_word(*w->at) || *w->at == '.')) w->at++;
        } else if (is_word(c)) {
            const char *word = w->at;
            while (w->at < w->end && is_word(*w->at)) w->at++;
            *out_n = (int)(w->at - word);
            return word;
        } else {
            w->at++;
        }
    }
    return NULL;
}

/* -- the table */

static void add(struct helpers *h, const char *text, size_t n)
{
    struct helper one = {.text = text, .n = n};
    PUSH(h->arena, h->at, one);
}

/* Marks helpers that stand in a text. */
static void mark(const struct helpers *h, struct arena *a, const char *text, size_t n, bool *used)
{
    struct words w = {.at = text, .end = text + n};
    int length;
    for (const char *word; (word = next_word(&w, &length));) {
        const intptr_t known = (intptr_t)map_get(h->by_name, arena_printf(a, "%.*s", length, word));
        if (known) used[known - 1] = true;
    }
}

/* The name that a declaration declares: a macro's, or in front of the first bracket, or of the attributes of a type. */
static const char *declared(struct arena *a, const char *at)
{
    if (!strncmp(at, "/*", 2)) at = strchr(skip_comment(at, at + strlen(at)), '\n') + 1;
    if (*at == '#') return arena_printf(a, "%.*s", (int)strcspn(at + 8, " "), at + 8);
    const char *end = strstr(at, strncmp(at, "typedef", 7) ? "(" : " __attribute__"), *from = end;
    while (is_word(from[-1])) from--;
    return arena_printf(a, "%.*s", (int)(end - from), from);
}

static bool ends_declaration(const char *line, size_t n)
{
    if (line[0] == '}') return true;
    return n > 1 && !isspace((unsigned char)line[0]) && strncmp(line, "/*", 2) &&
           (line[n - 1] == '}' || line[n - 1] == ';');
}

static void split(struct helpers *h, const char *text)
{
    const char *from = NULL;
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        const bool macro = !from && !strncmp(line, "#define ", 8);
        if (!from && n && (*line != '#' || macro) && strncmp(line, "/* --", 5)) from = line;
        if (from && (macro || ends_declaration(line, n))) {
            add(h, from, (size_t)(line + n - from));
            map_set(h->by_name, declared(h->arena, from), (void *)(intptr_t)h->at.n);
            from = NULL;
        }
        line += n + (line[n] == '\n');
    }
}

const struct helpers *helpers_make(struct arena *a, const struct target *t)
{
    struct helpers *h = NEW(a, struct helpers);
    struct text all = text_new(a);
    *h = (struct helpers){.arena = a, .by_name = map_create(a)};
    print_prelude(&all, t);
    split(h, all.at);
    bool *used = NEW_ARRAY(a, bool, h->at.n);
    for (int i = 0; i < h->at.n; i++) {
        memset(used, 0, (size_t)h->at.n * sizeof *used);
        mark(h, a, h->at.at[i].text, h->at.at[i].n, used);
        for (int k = 0; k < i; k++)
            if (used[k]) PUSH(a, h->at.at[i].uses, k);
    }
    return h;
}

/* -- a kernel */

struct source_text kernel_text(struct arena *a, const struct target *t, const char *body)
{
    const struct helpers *h = t->helpers ? t->helpers : helpers_make(a, t);
    struct arena *scratch = arena_create(arena_ctx(a));
    if (!scratch) return (struct source_text){.text = body};
    bool *used = NEW_ARRAY(scratch, bool, h->at.n);
    size_t n = 0;
    mark(h, scratch, body, strlen(body), used);
    for (int i = h->at.n - 1; i >= 0; i--) {
        for (int k = 0; used[i] && k < h->at.at[i].uses.n; k++) used[h->at.at[i].uses.at[k]] = true;
        if (used[i]) n += h->at.at[i].n + 2;
    }
    char *text = arena_alloc(a, n + strlen(body) + 1), *at = text;
    for (int i = 0; i < h->at.n; i++) {
        if (!used[i]) continue;
        memcpy(at, h->at.at[i].text, h->at.at[i].n);
        at += h->at.at[i].n;
        *at++ = '\n', *at++ = '\n';
    }
    memcpy(at, body, strlen(body) + 1);
    arena_destroy(scratch);
    return (struct source_text){.text = text, .head = n};
}
