// The life of MPI in this process: initialised only if nobody has, finalised only by who initialised it.
#pragma once

#include <functional>
#include <string>

namespace weft::mpi {

// Owner. The first Environment of a process that finds MPI uninitialised initialises it (asking for
// MPI_THREAD_MULTIPLE) and finalises it in its destructor.
class Environment {
 public:
  Environment() : Environment(nullptr, nullptr) {}
  Environment(int* argc, char*** argv);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  // Makes sure that MPI runs, for libraries that cannot hold an Environment: finalised at process exit.
  static void ensure();
  // Finalises what ensure() initialised; further calls do nothing. Collective.
  static void finalize();
  // Runs before MPI is finalised by any Environment: for threads that communicate and must stop first.
  static void before_finalize(std::function<void()> stop);

  [[nodiscard]] static bool initialized() noexcept;
  [[nodiscard]] static bool finalized() noexcept;
  // True between initialisation and finalisation: when handles may be freed.
  [[nodiscard]] static bool alive() noexcept { return initialized() && !finalized(); }

  // The level that MPI gives, as "MPI_THREAD_MULTIPLE" etc.
  [[nodiscard]] static std::string thread_level();
  // Whether threads may call MPI at the same time. Throws nothing: the caller decides what it needs.
  [[nodiscard]] static bool thread_multiple() noexcept;
  // For parts that own a communicating thread: throws MpiError naming the level given unless MULTIPLE.
  static void require_thread_multiple(const char* who);

  [[nodiscard]] static std::string library_version();
  [[nodiscard]] static std::string standard_version();
  [[nodiscard]] static std::string processor_name();

 private:
  bool owner_ = false;
};

}  // namespace weft::mpi
