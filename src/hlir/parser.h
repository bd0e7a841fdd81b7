/* The parser of operator definitions: tokens and expressions. Private to expression.c and opdef.c. */
#ifndef SOL_PARSER_H
#define SOL_PARSER_H

#include "hlir/opdef.h"

enum token { T_END, T_INT, T_REAL, T_IVAR, T_NAME, T_OP };
struct lexer {
    const char *at;   /* after the token */
    const char *from; /* the token's first character */
    enum token kind;
    int length;
    bool space; /* there is white space in front */
};
struct parser {
    struct lexer t;
    struct opdef *r;
    const char *text;
    bool tight;
    int depth;
    sol_status status;
};

/* expression.c. After an error (parser_fail keeps the first one), the rest of the text reads as its end. */
struct parser parser_begin(struct arena *a, const char *name, const char *text);
sol_status parser_fail(struct parser *p, const char *expected);
void parser_next(struct parser *p);
bool parser_is(const struct parser *p, const char *text); /* is the token this operator or name? */
bool parser_take(struct parser *p, const char *text);     /* takes the token if it is this one */
void parser_need(struct parser *p, const char *text);
char *parser_text(const struct parser *p); /* the token's text */
/* The number of an index variable, a tensor, an attribute of the definition. New names get new numbers. */
int parser_ivar(struct parser *p);
int parser_tensor(struct parser *p, const char *name);
int parser_attr(struct parser *p, const char *name);
int32_t parser_expr(struct parser *p);
int32_t parser_cond(struct parser *p);
int32_t parser_indices(struct parser *p); /* [index index], as a list */

#endif
