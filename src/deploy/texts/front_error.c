/* Errors: the last one of each thread, as text. The text is formatted here, so no stdio is needed: %s, %.NNs, %d, %zu,
 * %lld. */
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#if defined FRONT_BARE
static char message[256];
#else
static _Thread_local char message[256];
#endif

struct line {
    char *to;
    size_t size, n; /* n: characters without the terminator */
};

static void put_characters(struct line *l, const char *text, size_t most)
{
    for (size_t i = 0; i < most && text[i] && l->n + 1 < l->size; i++) l->to[l->n++] = text[i];
}

static void put_number(struct line *l, long long v)
{
    char digits[24];
    size_t n = sizeof digits;
    unsigned long long left = v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v;
    do digits[--n] = (char)('0' + left % 10);
    while (left /= 10);
    if (v < 0) digits[--n] = '-';
    put_characters(l, digits + n, sizeof digits - n);
}

static void put_format(struct line *l, const char *format, va_list args)
{
    for (; *format; format++) {
        size_t most = (size_t)-1;
        if (*format != '%') {
            put_characters(l, format, 1);
            continue;
        }
        if (*++format == '.')
            for (most = 0, format++; *format >= '0' && *format <= '9'; format++)
                most = most * 10 + (size_t)(*format - '0');
        if (*format == 's') put_characters(l, va_arg(args, const char *), most);
        if (*format == 'd') put_number(l, va_arg(args, int));
        if (*format == 'z') put_number(l, (long long)va_arg(args, size_t)), format++;
        if (*format == 'l') put_number(l, va_arg(args, long long)), format += 2;
    }
    l->to[l->n] = 0;
}

/* Appends to the line. */
__attribute__((format(printf, 2, 3))) static void put(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_format(l, format, args);
    va_end(args);
}

__attribute__((format(printf, 2, 3))) static int fail(int error, const char *format, ...)
{
    struct line l = {message, sizeof message, 0};
    va_list args;
    va_start(args, format);
    put_format(&l, format, args);
    va_end(args);
    return error;
}

FRONT_API int front_message(char *buffer, size_t size)
{
    struct line l = {buffer, size, 0};
    if (buffer && size) put(&l, "%s", message);
    return (int)strlen(message);
}
