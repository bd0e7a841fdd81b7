# find_package(@lib@ CONFIG) and target_link_libraries(app @lib@::@lib@)
if(NOT TARGET @lib@::@lib@)
  add_library(@lib@::@lib@ @kind@ IMPORTED)
  set_target_properties(@lib@::@lib@ PROPERTIES
    IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/@file@"
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}"@libs@)
endif()
@selftest@