
# @id@_add_selftest(): the self-test as a test of the project that calls it, behind enable_testing().
function(@id@_add_selftest)
  get_target_property(folder @target@ INTERFACE_INCLUDE_DIRECTORIES)
  add_executable(@id@_selftest "${folder}/check.c")
  target_compile_options(@id@_selftest PRIVATE@flags@)
  target_link_libraries(@id@_selftest PRIVATE @target@)
  add_test(NAME @id@_selftest COMMAND @id@_selftest)
endfunction()
