/* Growing text in an arena, for printers. Doubling keeps the waste below the size of the text. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text text_new(struct arena *a)
{
    struct text t = {.arena = a, .room = 64};
    t.at = arena_alloc(a, t.room);
    return t;
}

/* Makes room for n more bytes and a terminator. */
static void reserve(struct text *t, size_t n)
{
    if (t->n + n < t->room) return;
    size_t room = MAX(t->room * 2, t->n + n + 1);
    char *at = arena_alloc(t->arena, room);
    if (t->n) memcpy(at, t->at, t->n);
    t->at = at;
    t->room = room;
}

void text_add(struct text *t, const char *bytes, size_t n)
{
    reserve(t, n);
    if (n) memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = 0;
}

static void put(struct text *t, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(t->at + t->n, t->room - t->n, format, args);
    if (n > 0 && (size_t)n >= t->room - t->n) {
        reserve(t, (size_t)n);
        vsnprintf(t->at + t->n, t->room - t->n, format, again);
    }
    va_end(again);
    if (n > 0) t->n += (size_t)n;
}

static void line(struct text *t, const char *format, va_list args)
{
    for (int i = 0; i < t->indent; i++) text_add(t, "    ", 4);
    put(t, format, args);
    text_add(t, "\n", 1);
}

void text_put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(t, format, args);
    va_end(args);
}

void text_string(struct text *t, const char *s)
{
    text_put(t, "\"");
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        const bool comment = (c == '*' && s[1] == '/') || (c == '/' && s[1] == '*');
        const bool plain = c >= ' ' && c < 127 && c != '"' && c != '\\' && c != '?' && c != '@' && !comment;
        text_put(t, "%c", plain ? c : '_');
    }
    text_put(t, "\"");
}

void text_literal(struct text *t, const char *s)
{
    text_put(t, "\"");
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        const bool plain = c >= ' ' && c < 127 && c != '"' && c != '\\' && c != '?' && c != '@';
        text_put(t, plain ? "%c" : "\\%03o", c);
    }
    text_put(t, "\"");
}

void text_line(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    line(t, format, args);
    va_end(args);
}

void text_open(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    line(t, format, args);
    va_end(args);
    t->indent++;
}

void text_close(struct text *t, const char *format, ...)
{
    t->indent--;
    va_list args;
    va_start(args, format);
    line(t, format, args);
    va_end(args);
}

/* -- C expressions */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

const char *text_plus(struct arena *a, const char *x, int64_t n)
{
    if (!n) return x;
    if (!strcmp(x, "0")) return arena_printf(a, "%lld", (long long)n);
    return arena_printf(a, n < 0 ? "%s - %lld" : "%s + %lld", x, llabs(n));
}

const char *text_times(struct arena *a, const char *x, int64_t n)
{
    if (!n || !strcmp(x, "0")) return "0";
    return n == 1 ? x : arena_printf(a, "%s * %lld", x, (long long)n);
}

const char *text_over(struct arena *a, const char *x, int64_t n)
{
    return n == 1 || !strcmp(x, "0") ? x : arena_printf(a, "%s / %lld", x, (long long)n);
}

const char *text_modulo(struct arena *a, const char *x, int64_t n)
{
    return n == 1 || !strcmp(x, "0") ? "0" : arena_printf(a, "%s %% %lld", x, (long long)n);
}

const char *text_address(struct arena *a, const char *base, const char *offset)
{
    return strcmp(offset, "0") ? arena_printf(a, "%s + %s", base, offset) : base;
}

/* Does the first parenthesis end at the end of the text? */
static bool is_enclosed(const char *x)
{
    int depth = 0;
    if (*x != '(') return false;
    for (; *x; x++) {
        depth += (*x == '(') - (*x == ')');
        if (!depth) return !x[1];
    }
    return false;
}

const char *text_real(struct arena *a, double v, int digits)
{
    const char *text = arena_printf(a, "%.*g", digits, v);
    return strpbrk(text, ".e") ? text : arena_printf(a, "%s.0", text);
}

const char *text_bare(struct arena *a, const char *x)
{
    while (is_enclosed(x)) x = arena_printf(a, "%.*s", (int)strlen(x) - 2, x + 1);
    return x;
}

const char *text_enclosed(struct arena *a, const char *x)
{
    const char *s = x;
    while (is_name(*s) || *s == '@' || *s == '.') s++;
    return !*s || is_enclosed(s) ? x : arena_printf(a, "(%s)", x);
}

static bool is_keyword(const char *name)
{
    static const char *const words[] = {
        "auto",     "break",  "case",     "char",   "const",  "continue", "default", "do",     "double",  "else",
        "enum",     "extern", "float",    "for",    "goto",   "if",       "inline",  "int",    "long",    "register",
        "restrict", "return", "short",    "signed", "sizeof", "static",   "struct",  "switch", "typedef", "union",
        "unsigned", "void",   "volatile", "while",  "asm",    "typeof",   "main"};
    for (int i = 0; i < COUNT_OF(words); i++)
        if (!strcmp(words[i], name)) return true;
    return false;
}

char *text_identifier(struct arena *a, const char *name)
{
    enum { MOST = 63 };
    char *out = arena_alloc(a, MOST + 1);
    size_t n = 0;
    if (!*name || (*name >= '0' && *name <= '9')) out[n++] = '_';
    for (; *name && n < MOST; name++) {
        char c = *name;
        out[n++] = is_name(c) ? c : '_';
    }
    out[n] = 0;
    if (is_keyword(out)) memcpy(out + n, "_", 2);
    return out;
}

/* -- templates */

void text_fill(struct text *t, const char *template, mark_function *put, void *user)
{
    const char *from = template; /* not appended yet */
    for (const char *mark; (mark = strchr(from, '@'));) {
        char name[128];
        size_t n = 0;
        text_add(t, from, (size_t)(mark - from));
        for (from = mark + 1; is_name(*from) && n < sizeof name - 1; from++) name[n++] = *from;
        name[n] = 0;
        put(user, t, name);
    }
    text_add(t, from, strlen(from));
}

void source_helpers(struct text *t, struct map *seen, const struct source_text *s)
{
    for (int i = 0; i < s->nhelper; i++) {
        if (!*s->helper[i] || map_get(seen, s->helper[i])) continue;
        map_set(seen, s->helper[i], seen);
        text_put(t, "%s\n\n", s->helper[i]);
    }
}

struct naming {
    const char *symbol, *suffix;
};

static void put_name(void *user, struct text *out, const char *name)
{
    static const char step[] = "KERNEL";
    const struct naming *n = user;
    if (!strncmp(name, step, sizeof step - 1) && name[sizeof step - 1] == '_')
        text_put(out, "%s%s", n->symbol, name + sizeof step - 1);
    else
        text_put(out, "%s%s", name, n->suffix);
}

void source_body(struct text *t, const struct source_text *s, const char *symbol, const char *suffix)
{
    struct naming n = {symbol, suffix};
    text_fill(t, s->body, put_name, &n);
}
