/* Names in generated code: those of the graph, unless C, the prelude or a letter has taken them. Names that end in "_"
 * are the printers' own. */
#include <inttypes.h>
#include <string.h>

#include "print/print.h"

#define SAY(p, ...) arena_printf((p)->out->arena, __VA_ARGS__)

static bool reserved(const char *name)
{
    static const char *const words[] = {
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
        "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
        "sizeof", "static", "struct", "switch", "typedef", "typeof", "union", "unsigned", "void", "volatile", "while",
        "asm", "bool",
        /* parameters of a kernel and functions that expressions call */
        "p", "f", "task0", "task1", "worker", "scratch", "exp", "expf", "log", "logf", "sqrt", "sqrtf", "sin", "sinf",
        "cos", "cosf", "tan", "tanf", "tanh", "tanhf", "erf", "erff", "pow", "powf", "floor", "floorf", "ceil", "ceilf",
        "round", "roundf", "trunc", "truncf", "fabs", "fabsf", "fmod", "fmodf", "unix", "linux", "main", "index_check",
        "main", "memcpy", "memset", "isnan", "isinf", "signbit", "copysign", "copysignf"};
    for (int i = 0; i < COUNT_OF(words); i++)
        if (!strcmp(words[i], name)) return true;
    return false;
}

/* Names ending in "_" are our own, "_t" marks a name that was changed, so that two tensors never get one name. */
const char *expr_tensor(const struct loops *l, struct arena *a, int tensor)
{
    const char *name = l->tensors.at[tensor].name;
    const size_t n = strlen(name);
    bool change =
        reserved(name) || name[0] == '_' || (n && name[n - 1] == '_') || (n > 1 && !strcmp(name + n - 2, "_t"));
    /* helpers and vector types carry a type in their name */
    static const char *const marks[] = {"f32", "f64", "i64", "i32", "u8x", "i8x", "16x", "u32", "u64", "__", "KERNEL"};
    for (int i = 0; i < COUNT_OF(marks); i++) change = change || strstr(name, marks[i]);
    static const char *const ends[] = {"f", "l", "p"}; /* libm: acosf, j0l, ... are as good as reserved */
    static const char *const libm[] = {"acos",   "asin",   "atan",  "atan2",     "acosh", "asinh", "atanh", "cosh",
                                       "sinh",   "cbrt",   "exp2",  "expm1",     "log2",  "log10", "log1p", "erfc",
                                       "lgamma", "tgamma", "rint",  "nearbyint", "fmax",  "fmin",  "hypot", "remainder",
                                       "fma",    "ldexp",  "frexp", "abs",       "labs",  "llabs", "div"};
    for (int i = 0; i < COUNT_OF(libm); i++) {
        const size_t k = strlen(libm[i]);
        if (!strncmp(name, libm[i], k)) {
            change = change || !name[k];
            for (int e = 0; e < COUNT_OF(ends); e++) change = change || !strcmp(name + k, ends[e]);
        }
    }
    for (int i = 0; i < l->letters.n; i++) change = change || !strcmp(l->letters.at[i].name, name);
    return change ? arena_printf(a, "%s_t", name) : name;
}

/* The name of a letter, without what is added to it. */
const char *expr_letter_base(struct print_expr *p, int letter)
{
    const struct print_letter *known = p->letters && p->letters[letter].known ? &p->letters[letter] : NULL;
    const char *name = known ? known->base : p->letter ? p->letter(p->user, letter) : NULL;
    if (!name) name = p->loops->letters.at[letter].name;
    return p->lane && letter == p->vector_letter ? SAY(p, "(%s + %s)", name, p->lane) : name;
}

const char *expr_letter(struct print_expr *p, int letter)
{
    const struct print_letter *known = p->letters && p->letters[letter].known ? &p->letters[letter] : NULL;
    const char *name = p->letter ? p->letter(p->user, letter) : NULL;
    if (known)
        name = known->base;
    else if (!name)
        name = p->loops->letters.at[letter].name;
    if (known && !name) return SAY(p, "%" PRId64, known->plus);
    if (known && known->plus) name = SAY(p, "(%s + %" PRId64 ")", name, known->plus);
    if (p->lane && letter == p->vector_letter) return SAY(p, "(%s + %s)", name, p->lane);
    return name;
}
