/* What every C test runs in, whether meson or a person starts it: its own cache and wisdom in the build folder, choices
 * by the cost model for an assumed machine, and plans checked after each phase. A cache that the caller names stays. */
#include <stdlib.h>

__attribute__((constructor)) static void surroundings(void)
{
    setenv("SOL_CACHE", BUILD_ROOT "/cache", 0);
    setenv("XDG_STATE_HOME", BUILD_ROOT "/state", 0);
    setenv("SOL_AUTOTUNE", "off", 1);
    setenv("SOL_MACHINE", "assumed", 1);
    setenv("SOL_VERIFY", "1", 1);
}
