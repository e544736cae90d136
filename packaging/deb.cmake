# Debian packages: cmake --preset deb && cmake --build --preset deb && cpack --preset deb
# (docs/howto/package.md). Of three components: the program with its service, the library, and what
# compiling against the library takes.
configure_file(hearth.service.in hearth.service @ONLY)
configure_file(hearth@.service.in hearth@.service @ONLY)

# Pages and changelogs are compressed without a time in them: the same build, the same package.
set(built ${CMAKE_CURRENT_BINARY_DIR})
set(changelog ${CMAKE_CURRENT_SOURCE_DIR}/changelog)
add_custom_command(OUTPUT ${built}/man1.compressed
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${hearth_pages}.gz
  COMMAND ${CMAKE_COMMAND} -E copy_directory ${hearth_pages} ${hearth_pages}.gz
  COMMAND gzip -9nr ${hearth_pages}.gz
  COMMAND ${CMAKE_COMMAND} -E touch ${built}/man1.compressed
  DEPENDS ${hearth_pages}.made VERBATIM)
add_custom_command(OUTPUT ${built}/changelog.Debian.gz
  COMMAND gzip -9nc ${changelog} > ${built}/changelog.Debian.gz DEPENDS ${changelog} VERBATIM)
add_custom_target(hearth_package_files ALL
                  DEPENDS ${built}/man1.compressed ${built}/changelog.Debian.gz)

# What a plain `cmake --install` has no business with: files outside its prefix, and what Debian's
# policy wants.
function(hearth_install_for_deb component destination)
  install(FILES ${ARGN} DESTINATION ${destination} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
install(DIRECTORY ${hearth_pages}.gz/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT hearth
        EXCLUDE_FROM_ALL)
hearth_install_for_deb(hearth /lib/systemd/system ${built}/hearth.service
                       ${built}/hearth@.service)
hearth_install_for_deb(hearth /etc/hearth hearth.conf)
hearth_install_for_deb(hearth ${CMAKE_INSTALL_DOCDIR} ${CMAKE_SOURCE_DIR}/docs/howto/package.md
                       ${CMAKE_SOURCE_DIR}/docs/server.md)
hearth_install_for_deb(libhearth-dev ${CMAKE_INSTALL_DATADIR}/doc/libhearth-dev/examples
                       ${CMAKE_SOURCE_DIR}/examples/story.c
                       ${CMAKE_SOURCE_DIR}/examples/tools.c ${CMAKE_SOURCE_DIR}/examples/chat.cc)
set(library_package libhearth${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
foreach(component hearth libhearth libhearth-dev)
  set(package ${component})
  if(component STREQUAL libhearth)
    set(package ${library_package})
  endif()
  hearth_install_for_deb(${component} ${CMAKE_INSTALL_DATADIR}/doc/${package}
                         copyright ${built}/changelog.Debian.gz)
endforeach()
install(FILES hearth.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions
        RENAME _hearth COMPONENT hearth)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hearth)
set(CPACK_PACKAGE_CONTACT "Hearth maintainers <maintainers@hearth.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL hearth libhearth libhearth-dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY =)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_HEARTH_PACKAGE_NAME hearth)
set(CPACK_DEBIAN_HEARTH_PACKAGE_SECTION science)
# Loaded by the commands that need them (src/base/system_library.h): get, and plan.
set(CPACK_DEBIAN_HEARTH_PACKAGE_RECOMMENDS
    "libcurl4, libssl3, ca-certificates, libz3-4, coinor-libcbc3")
set(CPACK_DEBIAN_HEARTH_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_SOURCE_DIR}/conffiles ${CMAKE_CURRENT_SOURCE_DIR}/postinst
    ${CMAKE_CURRENT_SOURCE_DIR}/prerm ${CMAKE_CURRENT_SOURCE_DIR}/postrm)
set(CPACK_DEBIAN_HEARTH_DESCRIPTION
    "large language models inside a memory limit
Hearth runs language models on one machine whose memory is smaller than the
model. Of models that are sparse by nature it keeps the neurons that fire often
in memory and reads the others from disk while it computes.

This package has the program, which packs, measures, chats and serves the
OpenAI API, and a service that is not started until it is told a model.")

set(CPACK_DEBIAN_LIBHEARTH_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBHEARTH_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBHEARTH_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_SOURCE_DIR}/triggers)
set(CPACK_DEBIAN_LIBHEARTH_DESCRIPTION
    "large language models inside a memory limit (library)
Hearth runs language models on one machine whose memory is smaller than the
model.

This package has the shared library.")

set(CPACK_DEBIAN_LIBHEARTH-DEV_PACKAGE_NAME libhearth-dev)
set(CPACK_DEBIAN_LIBHEARTH-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBHEARTH-DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_LIBHEARTH-DEV_PACKAGE_DEPENDS
    "${library_package} (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_LIBHEARTH-DEV_DESCRIPTION
    "large language models inside a memory limit (development)
Hearth runs language models on one machine whose memory is smaller than the
model.

This package has the headers for C and C++, a pkg-config file, a CMake package
and examples.")
include(CPack)
