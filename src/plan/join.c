/* Joins the sources of several kernels (bands, recurrences) to one. Their common beginning is kept once, their own
 * names get the stage's number, and KERNEL_i of stage s becomes the static function stage<s>_<i>. */
#include <ctype.h>
#include <string.h>

#include "plan/band.h"

/* Only whole declarations are common: up to the end of a line behind which no bracket is open. Comments do not count,
 * and equal stages remain two functions. */
size_t join_common(const char *a, const char *b)
{
    const char *kernel = strstr(a, "void KERNEL");
    size_t safe = 0, end = kernel ? (size_t)(kernel - a) : strlen(a);
    int depth = 0;
    bool comment = false;
    for (size_t n = 0; n < end && a[n] == b[n]; n++) {
        if (a[n] == '/' && a[n + 1] == '*') comment = true;
        if (n && a[n] == '/' && a[n - 1] == '*') comment = false;
        if (comment) continue;
        depth += (a[n] == '{' || a[n] == '(') - (a[n] == '}' || a[n] == ')');
        if (a[n] == '\n' && !depth && n && (a[n - 1] == '}' || a[n - 1] == ';' || a[n - 1] == '\n')) safe = n + 1;
    }
    return safe;
}

/* The name that a line at the outermost level declares: the word in front of its first bracket, not counting
 * attributes. */
static char *declared(struct arena *a, const char *line)
{
    static const char *const begins[] = {"static", "__attribute__", "void KERNEL", "typedef", "#define"};
    const char *attribute = "__attribute__((", *from, *end;
    bool declares = false;
    for (int i = 0; i < COUNT_OF(begins); i++) declares |= !strncmp(line, begins[i], strlen(begins[i]));
    if (!declares) return NULL;
    const char *newline = line + strcspn(line, "\n"), *skip = strstr(line, attribute);
    const char *begin = skip && skip < newline ? strstr(skip, "))") + 2 : line;
    end = *line == '#' ? line + 8 + strcspn(line + 8, " (\n") : begin + strcspn(begin, "([=;\n");
    while (end > line && !(isalnum((unsigned char)end[-1]) || end[-1] == '_')) end--;
    for (from = end; from > line && (isalnum((unsigned char)from[-1]) || from[-1] == '_'); from--) {
    }
    char *name = arena_alloc(a, (size_t)(end - from) + 1);
    memcpy(name, from, (size_t)(end - from));
    return name;
}

static struct map *own_names(struct arena *a, const char *text)
{
    struct map *names = map_create(a);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char *name = declared(a, line);
        if (name && *name) map_set(names, name, name);
    }
    return names;
}

void join_put(struct text *out, int stage, const char *text)
{
    struct map *names = own_names(out->arena, text);
    const char *at = text;
    while (*at) {
        size_t n = 0;
        while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
        if (!n) {
            text_add(out, at++, 1);
            continue;
        }
        char *word = arena_alloc(out->arena, n + 1);
        memcpy(word, at, n);
        bool line_begins = at == text || at[-1] == '\n';
        if (line_begins && !strcmp(word, "void")) text_put(out, "static ");
        if (!strncmp(word, "KERNEL_", 7))
            text_put(out, "stage%d_%s", stage, word + 7);
        else if (map_get(names, word) && strncmp(word, "sol_", 4))
            text_put(out, "%s_s%d", word, stage);
        else
            text_add(out, at, n);
        at += n;
    }
}
