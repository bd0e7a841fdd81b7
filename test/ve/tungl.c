/* libtungl, which libveda links and uses for messages. */
#define API __attribute__((visibility("default")))

API int tungl_is_active(void)
{
    return 0;
}
API void tungl_log(void) {}
API void tungl_throw(void) {}
