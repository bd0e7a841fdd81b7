/* Statements as C text, several of which share a line. */
#include <string.h>

#include "dnn/problem.h"

#define LENGTH 124 /* characters of a line, about */

void lines_add(struct lines *l, const char *statement)
{
    const int n = (int)strlen(statement);
    if (l->column && l->column + n >= LENGTH) lines_end(l);
    text_put(l->out, "%*s%s", l->column ? 1 : l->indent * 4, "", statement);
    l->column += n + 1;
}

void lines_end(struct lines *l)
{
    if (l->column) text_put(l->out, "%s\n", l->end);
    l->column = 0;
}
