# SPDX-License-Identifier: Apache-2.0
#
# xxHash installs a package file of its own only when CMake built it; distributions mostly do not. Defines the target
# that package would: xxHash::xxhash. Sets xxHash_FOUND, xxHash_VERSION.
find_package(xxHash CONFIG QUIET)
include(FindPackageHandleStandardArgs)
if(xxHash_CONFIG)
    find_package_handle_standard_args(xxHash CONFIG_MODE)
    return()
endif()

find_path(xxHash_INCLUDE_DIR xxhash.h)
find_library(xxHash_LIBRARY NAMES xxhash)
mark_as_advanced(xxHash_INCLUDE_DIR xxHash_LIBRARY)

if(xxHash_INCLUDE_DIR)
    set(xxHash_VERSION "")
    foreach(part IN ITEMS MAJOR MINOR RELEASE)
        file(STRINGS ${xxHash_INCLUDE_DIR}/xxhash.h line REGEX "^#define +XXH_VERSION_${part} +[0-9]+")
        string(REGEX MATCH "[0-9]+$" number "${line}")
        list(APPEND xxHash_VERSION ${number})
    endforeach()
    list(JOIN xxHash_VERSION "." xxHash_VERSION)
endif()
find_package_handle_standard_args(xxHash REQUIRED_VARS xxHash_LIBRARY xxHash_INCLUDE_DIR VERSION_VAR xxHash_VERSION)

if(xxHash_FOUND AND NOT TARGET xxHash::xxhash)
    add_library(xxHash::xxhash UNKNOWN IMPORTED)
    set_target_properties(xxHash::xxhash PROPERTIES IMPORTED_LOCATION ${xxHash_LIBRARY}
                                                    INTERFACE_INCLUDE_DIRECTORIES ${xxHash_INCLUDE_DIR})
endif()
