/* Memory of deployed networks. The two functions are weak symbols, so an application can define its own. */
#ifndef SOL_EXT_H
#define SOL_EXT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void *sol_ext_malloc(size_t bytes); /* NULL: out of memory */
void sol_ext_free(void *p);         /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
