# SPDX-License-Identifier: Apache-2.0
#
# ISA-L installs a package file of its own only when CMake built it; distributions mostly use its other build. Defines
# the target that package would: ISAL::isal. Sets ISAL_FOUND.
find_package(ISAL CONFIG QUIET)
include(FindPackageHandleStandardArgs)
if(ISAL_CONFIG)
    find_package_handle_standard_args(ISAL CONFIG_MODE)
    return()
endif()

find_path(ISAL_INCLUDE_DIR isa-l/crc.h)
find_library(ISAL_LIBRARY NAMES isal)
mark_as_advanced(ISAL_INCLUDE_DIR ISAL_LIBRARY)
find_package_handle_standard_args(ISAL REQUIRED_VARS ISAL_LIBRARY ISAL_INCLUDE_DIR)

if(ISAL_FOUND AND NOT TARGET ISAL::isal)
    add_library(ISAL::isal UNKNOWN IMPORTED)
    set_target_properties(ISAL::isal PROPERTIES IMPORTED_LOCATION ${ISAL_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${ISAL_INCLUDE_DIR})
endif()
