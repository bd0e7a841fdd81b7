/* Batch: combines several kernels in one source for the compiler.
 *
 * A compiler needs 20 ms to start and to read headers and helpers, and 20 to 50 ms for a kernel. Shared helpers are
 * written once, and names that two kernels declare get a number. The parser here understands generated C only. If it
 * makes a mistake, the compiler rejects the source, and the kernels are compiled one by one. */
#include "build/inside.h"

#include <ctype.h>
#include <string.h>

/* -- names. A walk over the words of C text that knows how deep in brackets they stand. */

struct words {
    const char *at;
    int depth;
    bool enumeration; /* within the braces of an enum, which do not count */
    bool after_enum;
};

static const char *skip_text(const char *at)
{
    if (at[0] == '/' && at[1] == '*') {
        const char *end = strstr(at + 2, "*/");
        return end ? end + 2 : at + strlen(at);
    }
    if (*at == '"' || *at == '\'') {
        const char quote = *at++;
        while (*at && *at != quote && *at != '\n') at += *at == '\\' && at[1] ? 2 : 1;
        return *at ? at + 1 : at;
    }
    return NULL;
}

static void note_bracket(struct words *w, char c)
{
    if (c == '{' && w->after_enum && !w->depth) {
        w->enumeration = true;
    } else if (c == '}' && w->enumeration && !w->depth) {
        w->enumeration = false;
    } else if (c == '{' || c == '(' || c == '[') {
        w->depth++;
    } else if (c == '}' || c == ')' || c == ']') {
        w->depth--;
    }
    if (!isspace((unsigned char)c)) w->after_enum = false;
}

/* The next name; its length in *out_n. NULL at the end. */
static const char *next_word(struct words *w, size_t *out_n)
{
    while (*w->at) {
        const char *past = skip_text(w->at);
        if (past) {
            w->at = past;
        } else if (isalpha((unsigned char)*w->at) || *w->at == '_') {
            const char *word = w->at;
            while (isalnum((unsigned char)*w->at) || *w->at == '_') w->at++;
            *out_n = (size_t)(w->at - word);
            w->after_enum = *out_n == 4 && !strncmp(word, "enum", 4);
            return word;
        } else if (isdigit((unsigned char)*w->at)) {
            while (isalnum((unsigned char)*w->at) || *w->at == '_' || *w->at == '.') w->at++;
        } else {
            note_bracket(w, *w->at++);
        }
    }
    return NULL;
}

static void learn_words(struct arena *a, struct map *known, const char *text)
{
    struct words w = {.at = text};
    size_t n;
    for (const char *word; (word = next_word(&w, &n));) {
        const char *name = arena_printf(a, "%.*s", (int)n, word);
        if (!map_get(known, name)) map_set(known, name, known);
    }
}

/* Words of the language and its headers, which kernels do not declare. */
static bool is_common(const char *name)
{
    static const char keywords[] = " auto break case char const continue default do double else enum extern float for "
                                   "goto if inline int long register restrict return short signed sizeof static "
                                   "struct switch typedef union unsigned void volatile while _Alignas _Alignof _Bool "
                                   "_Static_assert _Thread_local define undef include ifdef ifndef endif pragma ";
    const size_t n = strlen(name);
    if (!strncmp(name, "__", 2) || !strncmp(name, "sol_", 4)) return true;
    if (n > 2 && !strcmp(name + n - 2, "_t")) return true;
    const char *at = strstr(keywords, name);
    return at && at[-1] == ' ' && at[n] == ' ';
}

/* The names that the text declares: those outside of all brackets that are not shared helpers. */
static void own_names(struct arena *a, const struct map *known, const char *text, struct map *seen,
                      struct text *defines, struct text *undefines, int number)
{
    struct words w = {.at = text};
    struct map *mine = map_create(a);
    size_t n;
    for (const char *word; (word = next_word(&w, &n));) {
        if (w.depth) continue;
        const char *name = arena_printf(a, "%.*s", (int)n, word);
        if (is_common(name) || map_get(known, name) || map_get(mine, name)) continue;
        map_set(mine, name, mine);
        if (map_get(seen, name)) text_put(defines, "#define %s %s_%d\n", name, name, number);
        text_put(undefines, "#undef %s\n", name);
        map_set(seen, name, seen);
    }
}

const char *batch_source(struct arena *a, int n, const struct source_text *kernel)
{
    struct text t = text_new(a);
    struct map *heads = map_create(a), *known = map_create(a), *seen = map_create(a);
    text_put(&t, "%s", source_header());
    for (int i = 0; i < n; i++) text_heads(&t, heads, &kernel[i]);
    if (n > 1) learn_words(a, known, t.at);
    for (int i = 0; i < n; i++) {
        struct text defines = text_new(a), undefines = text_new(a);
        const char *body = kernel[i].text + kernel[i].head;
        if (n > 1) own_names(a, known, body, seen, &defines, &undefines, i);
        text_add(&t, defines.at, defines.n);
        text_put(&t, "\n");
        text_add(&t, body, strlen(body));
        text_put(&t, "\n");
        text_add(&t, undefines.at, undefines.n);
    }
    return t.at;
}
