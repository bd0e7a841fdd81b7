/* Two deployed networks in one program, -DA=.. -DB=.., without common symbols. Each must give the same results as
 * alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include HEADER_A
#include HEADER_B

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define TRY(F)                                                                              \
    do {                                                                                    \
        float *in = calloc(1, JOIN(F, _input)(0)->bytes), *one = NULL, *two = NULL;         \
        for (size_t i = 0; i < JOIN(F, _input)(0)->bytes / 4; i++) in[i] = (float)(i % 13); \
        F(0, in, &one);                                                                     \
        F(0, in, &two);                                                                     \
        if (!one || !two || memcmp(one, two, JOIN(F, _output)(0)->bytes)) return 1;         \
        printf("%.6f\n", one[0]);                                                           \
        sol_ext_free(one);                                                                  \
        sol_ext_free(two);                                                                  \
        free(in);                                                                           \
    } while (0)

int main(void)
{
    TRY(A);
    TRY(B);
    return 0;
}
