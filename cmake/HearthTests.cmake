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

# In tests themselves only what they do with memory is checked: the rest takes as long to compile as
# the tests do.
function(hearth_check_memory_only name)
  if(HEARTH_SANITIZE MATCHES undefined)
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# GoogleTest's headers are parsed once for all test programs. A program itself, so that its compiler
# options are theirs.
if(NOT CMAKE_CROSSCOMPILING)
  add_executable(hearth_test_headers ${CMAKE_CURRENT_LIST_DIR}/test_headers.cc)
  target_link_libraries(hearth_test_headers PRIVATE hearth_options GTest::gmock GTest::gtest)
  hearth_optimize_lightly(hearth_test_headers)
  hearth_check_memory_only(hearth_test_headers)
  target_precompile_headers(hearth_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
endif()

# What `ctest -LE slow` runs: all that a build with sanitizers needs.
add_custom_target(fast_tests)

function(hearth_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/tests/support)
  hearth_optimize_lightly(${name})
  hearth_check_memory_only(${name})
  hearth_compile_together(${name})
  # Tests name alike what they try alike.
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 6)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest GTest::gtest_main)
  if(TARGET hearth_test_headers)
    target_precompile_headers(${name} REUSE_FROM hearth_test_headers)
    # Of precompiled headers GCC 12 forgets that std::string is the system's, and warns of it.
    target_compile_options(${name} PRIVATE 
      "$<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow;-Wno-array-bounds>")
  endif()
  set(HEARTH_TEST_SECONDS 1200)
  if(HEARTH_SANITIZE)
    set(HEARTH_TEST_SECONDS 3600)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT "slow" IN_LIST ARG_LABELS)
    add_dependencies(fast_tests ${name})
  endif()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/test-files)
  set_tests_properties(${name} PROPERTIES
    # What programs keep of a user, and files of tests, they keep beside the build: other
    # checkouts may test at the same time.
    ENVIRONMENT "HEARTH_SHARED=${HEARTH_SHARED};HEARTH_SOURCE=${CMAKE_SOURCE_DIR};XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/test-cache;XDG_STATE_HOME=${CMAKE_BINARY_DIR}/test-state;TEST_TMPDIR=${CMAKE_BINARY_DIR}/test-files"
    TIMEOUT ${HEARTH_TEST_SECONDS} LABELS "${ARG_LABELS}")
endfunction()
