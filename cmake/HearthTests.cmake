# hearth_test(<name> SOURCES ... LIBS ... LABELS ...): a GoogleTest program run by ctest.
# HEARTH_SHARED tells tests where the shared data lies (default: beside the repository).
if(CMAKE_CROSSCOMPILING)
  # The library of the build machine cannot be linked; Debian's googletest has the sources.
  set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
else()
  find_package(GTest REQUIRED)
endif()
if(DEFINED ENV{HEARTH_SHARED})
  set(HEARTH_SHARED $ENV{HEARTH_SHARED})
else()
  set(HEARTH_SHARED ${CMAKE_SOURCE_DIR}/../shared)
endif()

function(hearth_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "HEARTH_SHARED=${HEARTH_SHARED};HEARTH_SOURCE=${CMAKE_SOURCE_DIR}"
    TIMEOUT 600 LABELS "${ARG_LABELS}")
endfunction()
