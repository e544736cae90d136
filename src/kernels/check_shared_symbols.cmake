# cmake -DNM=<nm> -DOBJECTS=<list> -P check_shared_symbols.cmake
# Fails where an object of x86/ or arm/ defines a weak symbol outside hearth::kernels: the linker
# keeps one copy of those for the whole program, and it could be one that older processors cannot
# run. What compilers themselves add is none: it names the handler of exceptions, or calls terminate.
set(checked 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "/(x86|arm)/[^/]*$")
    continue()
  endif()
  execute_process(COMMAND ${NM} --demangle --defined-only ${object}
                  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]*" weak "${symbols}")
  list(FILTER weak EXCLUDE REGEX
       "hearth::kernels::|DW\\.ref\\.__gxx_personality| __clang_call_terminate$")
  if(weak)
    message(SEND_ERROR "${object} shares: ${weak}")
  endif()
  math(EXPR checked "${checked} + 1")
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no ISA objects among ${OBJECTS}")
endif()
