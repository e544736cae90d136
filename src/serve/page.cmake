# The chat page: its own files in page/, and what it loads of Debian's JavaScript libraries, inside the
# program. All but index.html are compressed.
#   hearth_page_file(PATH TYPE FILE)   FILE is answered at PATH
set(PAGE_EMBEDDED "")
set(PAGE_TABLE "")
set(page_outputs "")
function(hearth_page_file path type file)
  string(MAKE_C_IDENTIFIER "hearth_page${path}" symbol)
  set(gzip true)
  if(path STREQUAL "/")
    set(gzip false)
  endif()
  string(APPEND PAGE_EMBEDDED
    "asm(\".pushsection .rodata.hearth_page,\\\"a\\\"\\n\"\n"
    "    \"${symbol}_begin:\\n.incbin \\\"${file}\\\"\\n${symbol}_end:\\n.byte 0\\n.popsection\");\n"
    "extern \"C\" const char ${symbol}_begin[];\nextern \"C\" const char ${symbol}_end[];\n")
  string(APPEND PAGE_TABLE
    "    {\"${path}\", \"${type}\", ${gzip}, ${symbol}_begin, ${symbol}_end},\n")
  set(PAGE_EMBEDDED "${PAGE_EMBEDDED}" PARENT_SCOPE)
  set(PAGE_TABLE "${PAGE_TABLE}" PARENT_SCOPE)
  set(page_outputs ${page_outputs} ${file} PARENT_SCOPE)
endfunction()

set(page_built ${CMAKE_CURRENT_BINARY_DIR}/page)
file(MAKE_DIRECTORY ${page_built})
set(text "charset=utf-8")
set(script "text/javascript; ${text}")
hearth_page_file(/ "text/html; ${text}" ${CMAKE_CURRENT_SOURCE_DIR}/page/index.html)
file(GLOB page_own CONFIGURE_DEPENDS page/*.js page/*.css)
foreach(file ${page_own})
  get_filename_component(name ${file} NAME)
  add_custom_command(OUTPUT ${page_built}/${name}.gz
    COMMAND gzip -9nc ${file} > ${page_built}/${name}.gz DEPENDS ${file} VERBATIM)
  set(type "${script}")
  if(name MATCHES "\\.css$")
    set(type "text/css; ${text}")
  endif()
  hearth_page_file(/page/${name} "${type}" ${page_built}/${name}.gz)
endforeach()

# Libraries: as Debian 12 has them (scripts/install_deps.sh build).
set(marked /usr/share/javascript/marked/marked.min.js)
set(katex /usr/share/javascript/katex/katex.min.js)
set(highlight /usr/share/nodejs/highlight.js/lib)
set(licenses /usr/share/doc/libjs-marked/copyright /usr/share/doc/libjs-katex/copyright
             /usr/share/doc/node-highlight.js/copyright)
set(languages bash cmake cpp cs css diff dockerfile go haskell ini java javascript json julia kotlin
              lua makefile markdown perl php python r ruby rust scala shell sql swift tex typescript
              xml yaml)
foreach(file ${marked} ${katex} ${highlight}/highlight.js ${licenses})
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "The chat page needs ${file}: run scripts/install_deps.sh build (Debian's "
                        "packages libjs-marked, libjs-katex, node-highlight.js)")
  endif()
endforeach()
foreach(library marked katex)
  add_custom_command(OUTPUT ${page_built}/${library}.gz
    COMMAND gzip -9nc ${${library}} > ${page_built}/${library}.gz DEPENDS ${${library}} VERBATIM)
  hearth_page_file(/page/lib/${library}.js "${script}" ${page_built}/${library}.gz)
endforeach()
set(bundle ${CMAKE_CURRENT_SOURCE_DIR}/page/bundle_highlight.sh)
add_custom_command(OUTPUT ${page_built}/highlight.gz
  COMMAND ${bundle} ${highlight} ${languages} | gzip -9nc > ${page_built}/highlight.gz
  DEPENDS ${bundle} ${highlight}/highlight.js VERBATIM)
hearth_page_file(/page/lib/highlight.js "${script}" ${page_built}/highlight.gz)
add_custom_command(OUTPUT ${page_built}/licenses.gz
  COMMAND cat ${licenses} | gzip -9nc > ${page_built}/licenses.gz DEPENDS ${licenses} VERBATIM)
hearth_page_file(/page/lib/licenses.txt "text/plain; ${text}" ${page_built}/licenses.gz)

configure_file(page_files.cc.in page_files.cc @ONLY)
set(page_source ${CMAKE_CURRENT_BINARY_DIR}/page_files.cc)
set_source_files_properties(${page_source} PROPERTIES
  OBJECT_DEPENDS "${page_outputs}" SKIP_UNITY_BUILD_INCLUSION ON)
target_sources(hearth_serve PRIVATE ${page_source})
