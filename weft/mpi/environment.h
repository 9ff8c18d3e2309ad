// Environment: initialises MPI if the program has not done so, and finalises it only if it initialised it.
#pragma once

#include <functional>
#include <string>

namespace weft::mpi {

// The first Environment of a process initialises MPI with MPI_THREAD_MULTIPLE, unless MPI is initialised already. Its
// destructor then finalises MPI.
class Environment {
 public:
  Environment() : Environment(nullptr, nullptr) {}
  Environment(int* argc, char*** argv);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  // Initialises MPI if necessary, for libraries that cannot hold an Environment. MPI is finalised at process exit.
  static void ensure();
  // Collective. Finalises MPI if ensure() initialised it; further calls have no effect.
  static void finalize();
  // Registers a function that runs before MPI is finalised, for threads that communicate and must stop first.
  static void before_finalize(std::function<void()> stop);

  [[nodiscard]] static bool initialized() noexcept;
  [[nodiscard]] static bool finalized() noexcept;
  // True between initialisation and finalisation, while handles may be freed. Always false in a child of fork(), which
  // shares the parent's connections but must not use them.
  [[nodiscard]] static bool alive() noexcept { return initialized() && !finalized() && !forked(); }
  // Whether this process is a child of the process that initialised MPI.
  [[nodiscard]] static bool forked() noexcept;

  // The thread level that MPI provides, e.g. "MPI_THREAD_MULTIPLE".
  [[nodiscard]] static std::string thread_level();
  // Whether threads may call MPI at the same time.
  [[nodiscard]] static bool thread_multiple() noexcept;
  // Throws MpiError unless the level is MPI_THREAD_MULTIPLE. For components that own a communicating thread.
  static void require_thread_multiple(const char* who);

  [[nodiscard]] static std::string library_version();
  [[nodiscard]] static std::string standard_version();
  [[nodiscard]] static std::string processor_name();

 private:
  bool owner_ = false;
};

}  // namespace weft::mpi
