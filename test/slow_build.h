/* Instrumented builds are slow, and compilers take most of the time of some tests: such builds run a sample of the
 * cases. test/meson.build sets the variable. */
#ifndef SOL_SLOW_BUILD_H
#define SOL_SLOW_BUILD_H

#include <stdlib.h>

/* The distance between the cases that run, if it is `step` in ordinary builds. */
static inline int step_of_cases(int step)
{
    const char *every = getenv("SOL_TEST_EVERY");
    return step * (every ? atoi(every) : 1);
}
#endif
