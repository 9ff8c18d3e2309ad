# Registers tests: an executable or a pytest file, run directly or under mpirun with several rank counts.
include_guard()
include(ProcessorCount)
find_package(GTest REQUIRED)

set(WEFT_LAUNCHER "${PROJECT_SOURCE_DIR}/scripts/mpirun")
ProcessorCount(WEFT_CORES)

# weft_add_test(<folder>/<name> [RANKS <n>...] [TORCH] [LABELS <label>...] [TIMEOUT <seconds>])
#
# Compiles tests/<folder>/<name>_test.cpp. With RANKS it links tests/mpi_main.cpp and registers one ctest test
# <folder>/<name>.n<n> per rank count; otherwise it links GoogleTest's main. With TORCH it links libweft.so; otherwise only the
# objects of weft/<folder> and its dependencies, so that the test neither includes nor loads torch.
function(weft_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "TIMEOUT" "RANKS;LABELS")
  string(MAKE_C_IDENTIFIER "test_${name}" target)
  cmake_path(GET name PARENT_PATH folder)
  add_executable(${target} "${PROJECT_SOURCE_DIR}/tests/${name}_test.cpp")
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "${name}_test" RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/tests/${folder}")
  target_link_libraries(${target} PRIVATE weft_settings GTest::gmock)

  if(arg_TORCH)
    target_link_libraries(${target} PRIVATE weft::weft)
    weft_use_torch_pch(${target})
  else()
    # Tests of a subfolder may drive the whole group: a worker needs a switch.
    string(REGEX REPLACE "/.*" "" group "${folder}")
    get_target_property(type weft_${group} TYPE)
    if(type STREQUAL "INTERFACE_LIBRARY")
      set(library ${group})
    else()
      string(REPLACE "/" "_" library "${folder}")
    endif()
    get_target_property(objects weft_${library} WEFT_OBJECTS)
    target_link_libraries(${target} PRIVATE weft_${library})
    target_link_libraries(${target} PRIVATE ${objects})
  endif()

  if(arg_RANKS)
    target_link_libraries(${target} PRIVATE weft_mpi_main)
    _weft_register_ranks(${name} "${arg_RANKS}" "${folder};${arg_LABELS}" "${arg_TIMEOUT}" $<TARGET_FILE:${target}>)
  else()
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${target})
    _weft_set_test_properties(${name} 1 "${folder};${arg_LABELS}" "${arg_TIMEOUT}")
  endif()
endfunction()

# weft_add_fuzz_test(<name> SOURCES <file>... [LIBRARIES <name>...])
#
# tests/fuzz/<name>.cpp is a libFuzzer target. With clang, it searches for inputs that reach new code, starting with
# tests/fuzz/corpus/<name>. Without clang, tests/fuzz/mutate.cpp mutates that corpus at random. In both cases the sources are
# compiled with sanitizers. `make test-fuzz` runs every target for five minutes.
set(WEFT_FUZZ_SECONDS 5 CACHE STRING "Seconds for which ctest runs each fuzz target")
find_program(WEFT_FUZZ_COMPILER NAMES clang++ clang++-14 clang++-15 clang++-16 clang++-17 clang++-18 clang++-19)
mark_as_advanced(WEFT_FUZZ_COMPILER)
if(NOT WEFT_FUZZ_COMPILER)
  message(STATUS "No clang: fuzz tests mutate their corpus at random, without coverage feedback")
endif()

function(weft_add_fuzz_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  set(corpus "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  set(sources "${PROJECT_SOURCE_DIR}/tests/fuzz/${name}.cpp" ${arg_SOURCES})
  if(WEFT_FUZZ_COMPILER AND NOT WEFT_SANITIZE)
    _weft_add_libfuzzer(${name} "${sources}" "${arg_LIBRARIES}")
    set(work "${PROJECT_BINARY_DIR}/tests/fuzz/found/${name}")
    file(MAKE_DIRECTORY "${work}")
    set(command "${PROJECT_BINARY_DIR}/tests/fuzz/fuzz_${name}" "-max_total_time=${WEFT_FUZZ_SECONDS}" -max_len=8192
        -print_final_stats=1 "-artifact_prefix=${work}-" "${work}" "${corpus}")
  else()
    _weft_add_mutator(${name} "${sources}" "${arg_LIBRARIES}")
    set(command fuzz_${name} "${corpus}")
  endif()
  add_test(NAME fuzz/${name} COMMAND ${command})
  _weft_set_test_properties(fuzz/${name} 1 fuzz "")
endfunction()

# Compiles the objects with clang, which need not be the project's compiler.
function(_weft_add_libfuzzer name sources libraries)
  set(flags -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all "-I${PROJECT_SOURCE_DIR}")
  foreach(source IN LISTS sources)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE relative)
    set(object "${PROJECT_BINARY_DIR}/tests/fuzz/objects/${relative}.o")
    list(APPEND objects "${object}")
    get_property(known GLOBAL PROPERTY WEFT_FUZZ_OBJECTS)
    if(object IN_LIST known)
      continue() # another fuzz target already compiles it
    endif()
    set_property(GLOBAL APPEND PROPERTY WEFT_FUZZ_OBJECTS "${object}")
    cmake_path(GET object PARENT_PATH folder)
    file(MAKE_DIRECTORY "${folder}")
    add_custom_command(OUTPUT "${object}" DEPENDS "${source}" DEPFILE "${object}.d" VERBATIM
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${WEFT_FUZZ_COMPILER}" ${flags} -MD -MF "${object}.d" -MT "${object}"
              -c "${source}" -o "${object}")
  endforeach()
  set(program "${PROJECT_BINARY_DIR}/tests/fuzz/fuzz_${name}")
  list(TRANSFORM libraries PREPEND -l)
  add_custom_command(OUTPUT "${program}" DEPENDS ${objects} VERBATIM
    COMMAND "${WEFT_FUZZ_COMPILER}" ${flags} ${objects} -o "${program}" ${libraries})
  add_custom_target(fuzz_${name} ALL DEPENDS "${program}")
endfunction()

function(_weft_add_mutator name sources libraries)
  set(target fuzz_${name})
  add_executable(${target} "${PROJECT_SOURCE_DIR}/tests/fuzz/mutate.cpp" ${sources})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE weft_settings ${libraries})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/fuzz")
  if(NOT WEFT_SANITIZE)
    target_compile_options(${target} PRIVATE -g -fsanitize=address,undefined -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
endfunction()

# weft_add_python_test(<folder>/<name>_test [RANKS <n>...] [LABELS <label>...] [TIMEOUT <seconds>] [PROCESSORS <n>])
# weft_add_python_test(<folder>[/<topic>] FILES <name>_test... [RANKS ...] ...)
#
# Runs tests/<folder>/<name>_test.py with pytest, on each number of ranks (default: 1). FILES run one after the other in the
# same processes, which saves start-up time and shows that each file leaves the processes in a usable state. PROCESSORS is for
# tests that start their own jobs and measure time: ctest does not count the ranks of these jobs. Sanitizer builds have no
# Python tests, because a runtime that is preloaded into Python reports torch and Python themselves. Core builds have no
# Python part.
function(weft_add_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;PROCESSORS" "FILES;RANKS;LABELS")
  set(folder "${name}")
  if(NOT IS_DIRECTORY "${PROJECT_SOURCE_DIR}/tests/${folder}")
    cmake_path(GET name PARENT_PATH folder)
  endif()
  if(NOT arg_FILES)
    cmake_path(GET name FILENAME arg_FILES)
  endif()
  set(paths "")
  foreach(file IN LISTS arg_FILES)
    set(path "${PROJECT_SOURCE_DIR}/tests/${folder}/${file}.py")
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR "weft_add_python_test(${name}): ${path} does not exist")
    endif()
    list(APPEND paths "${path}")
  endforeach()
  if(WEFT_SANITIZE OR WEFT_CORE_ONLY)
    return()
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 1)
  endif()
  string(REGEX REPLACE "_test$" "" test_name "${name}")
  _weft_register_ranks(${test_name} "${arg_RANKS}" "python;${arg_LABELS}" "${arg_TIMEOUT}"
                       "${Python_EXECUTABLE}" -m pytest -q -p no:cacheprovider ${paths})
  if(arg_PROCESSORS)
    list(TRANSFORM arg_RANKS PREPEND "${test_name}.n" OUTPUT_VARIABLE tests)
    set_tests_properties(${tests} PROPERTIES PROCESSORS ${arg_PROCESSORS})
  endif()
endfunction()

# Registers one ctest test per rank count. MPICH spins while it waits, so it never gets more ranks than cores.
function(_weft_register_ranks name ranks labels timeout)
  foreach(n IN LISTS ranks)
    if(WEFT_MPI STREQUAL "mpich" AND n GREATER WEFT_CORES)
      continue()
    endif()
    add_test(NAME ${name}.n${n} COMMAND "${WEFT_LAUNCHER}" -n ${n} ${ARGN})
    _weft_set_test_properties(${name}.n${n} ${n} "${labels}" "${timeout}")
  endforeach()
endfunction()

# Each rank counts as one processor, up to the number of cores: a test with more ranks runs alone.
function(_weft_set_test_properties test ranks labels timeout)
  if(ranks GREATER WEFT_CORES)
    set(ranks ${WEFT_CORES})
  endif()
  if(NOT timeout)
    set(timeout 600)
  endif()
  set(environment "WEFT_MPI=${WEFT_MPI}" "WEFT_MPI_ROOT=${WEFT_MPI_ROOT}" "WEFT_LIBRARY_DIR=${PROJECT_BINARY_DIR}/lib"
      "OMP_NUM_THREADS=1" "OMPI_MCA_mpi_yield_when_idle=1") # tests that run at the same time share the cores
  _weft_append_sanitizer_environment(environment)
  set_tests_properties(${test} PROPERTIES
    PROCESSORS ${ranks} TIMEOUT ${timeout} LABELS "${labels}" ENVIRONMENT "${environment}")
endfunction()

function(_weft_append_sanitizer_environment variable)
  set(environment ${${variable}})
  if(WEFT_SANITIZE MATCHES "address")
    # MPI and torch keep memory until the process exits, which LeakSanitizer would report.
    list(APPEND environment "ASAN_OPTIONS=detect_leaks=0" "UBSAN_OPTIONS=print_stacktrace=1")
  elseif(WEFT_SANITIZE MATCHES "thread")
    # ThreadSanitizer's address layout conflicts with PMIx's fixed-address shared memory and with UCX's memory hooks.
    list(APPEND environment "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/sanitizer_suppressions.txt"
         "PMIX_MCA_gds=hash" "UCX_MEM_EVENTS=no")
  endif()
  set(${variable} ${environment} PARENT_SCOPE)
endfunction()

# Installs this build into a staging folder, then configures, builds and runs examples/cmake_project against it. Sanitizer
# builds skip this test: the consumer would need the sanitizer's runtime.
function(weft_add_install_test)
  if(WEFT_SANITIZE OR WEFT_CORE_ONLY)
    return()
  endif()
  set(stage "${PROJECT_BINARY_DIR}/stage")
  set(consumer "${PROJECT_BINARY_DIR}/consumer")
  add_test(NAME install/stage COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix "${stage}")
  add_test(NAME install/cmake_project
    COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${PROJECT_SOURCE_DIR}/examples/cmake_project" "${consumer}"
            --build-generator "${CMAKE_GENERATOR}"
            --build-options "-DCMAKE_PREFIX_PATH=${stage}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}"
            --test-command "${WEFT_LAUNCHER}" -n 2 "${consumer}/consumer")
  foreach(test IN ITEMS install/stage install/cmake_project)
    _weft_set_test_properties(${test} 2 install "")
  endforeach()
  set_tests_properties(install/stage PROPERTIES FIXTURES_SETUP weft_stage)
  set_tests_properties(install/cmake_project PROPERTIES FIXTURES_REQUIRED weft_stage)
endfunction()
