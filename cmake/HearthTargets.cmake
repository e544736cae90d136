# hearth_library(<folder> ROOMS ... DEPS ... LIBS ... TEST_LIBS ... MODEL_TESTS ...): the static
# library of one folder of src/, or of one of its rooms (<folder>_<room>), and its test programs.
#   ROOMS        sub-folders that belong to it
#   DEPS         folders it may include (targets hearth_<dep>)
#   LIBS         third-party targets; TEST_LIBS those that only tests use
#   MODEL_TESTS  test files that run whole models for many seconds
#   ALONE        compiles every file alone (see hearth_compile_together)
# Sources are the folder's .cc files but *_test.cc; each *_test.cc becomes part of <folder>_test, or
# of <folder>_models_test, labelled "slow", where MODEL_TESTS names it. The lists follow the folder,
# so that adding a file needs no edit here.
add_library(hearth_options INTERFACE)
target_include_directories(hearth_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(hearth_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-qual -Wno-missing-field-initializers
  # GCC 12 sees overlapping copies in std::string concatenation where there are none.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # Products and sums are fused only where a kernel says so: results must not depend on
  # what the compiler found convenient (docs/architecture.md, invariant 3).
  -ffp-contract=off)
if(HEARTH_WERROR)
  target_compile_options(hearth_options INTERFACE -Werror)
endif()
if(HEARTH_SANITIZE)
  target_compile_options(hearth_options INTERFACE
    -fsanitize=${HEARTH_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(hearth_options INTERFACE -fsanitize=${HEARTH_SANITIZE})
  if(HEARTH_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_definitions(hearth_options INTERFACE __SANITIZE_ADDRESS__)  # as GCC says it
    # Calls through pointers are what GCC does not check either; their types would be shared by the
    # objects of all instruction sets (src/kernels/check_shared_symbols.cmake).
    target_compile_options(hearth_options INTERFACE -fno-sanitize=function)
  endif()
endif()

if(HEARTH_FUZZ)
  # Coverage for the fuzzer in every library; the main function only in the targets (fuzz/).
  target_compile_options(hearth_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# For targets whose own code is not what takes time: two thirds of the compile time of -O3, half of
# that of -O1 with sanitizers.
function(hearth_optimize_lightly name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1> $<$<CONFIG:Debug>:-O0>)
endfunction()

# For targets whose files spend most of their compile time in the same headers: files are compiled a
# few together, which costs a third to a half. Their names in anonymous namespaces must differ then.
# More at once would save little, and a change would compile longer; HEARTH_UNITY=OFF compiles every file alone.
function(hearth_compile_together name)
  # Types in anonymous namespaces are in nobody else's sight, though GCC takes the files for headers.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${HEARTH_UNITY} UNITY_BUILD_BATCH_SIZE 14)
endfunction()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

find_package(Threads REQUIRED)

function(hearth_library name)
  cmake_parse_arguments(ARG "ALONE" "" "ROOMS;DEPS;LIBS;TEST_LIBS;MODEL_TESTS" ${ARGN})
  list(TRANSFORM ARG_ROOMS REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*.cc" OUTPUT_VARIABLE in_rooms)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${in_rooms})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  add_library(hearth_${name} STATIC ${sources})
  list(TRANSFORM ARG_DEPS PREPEND hearth_)
  target_link_libraries(hearth_${name} PUBLIC hearth_options ${ARG_DEPS} ${ARG_LIBS})
  if(NOT ARG_ALONE)
    hearth_compile_together(hearth_${name})
  endif()
  hearth_folder_tests(${name} ROOMS ${ARG_ROOMS} LIBS ${ARG_TEST_LIBS}
                      MODEL_TESTS ${ARG_MODEL_TESTS})
  if(ARG_ALONE AND TARGET ${name}_test)
    set_target_properties(${name}_test PROPERTIES UNITY_BUILD OFF)
  endif()
endfunction()

# The test programs of the folder, where it has *_test.cc files.
function(hearth_folder_tests name)
  if(NOT HEARTH_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "ROOMS;LIBS;MODEL_TESTS" ${ARGN})
  list(TRANSFORM ARG_ROOMS REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*_test.cc" OUTPUT_VARIABLE in_rooms)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc ${in_rooms})
  if(ARG_MODEL_TESTS)
    list(TRANSFORM ARG_MODEL_TESTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    list(REMOVE_ITEM tests ${ARG_MODEL_TESTS})
    hearth_test(${name}_models_test SOURCES ${ARG_MODEL_TESTS} LIBS hearth_${name} ${ARG_LIBS}
                LABELS slow)
  endif()
  if(tests)
    hearth_test(${name}_test SOURCES ${tests} LIBS hearth_${name} ${ARG_LIBS})
  endif()
endfunction()
