// Starts other programs for the weft command: mpirun with the ranks of a job, and Python modules. No torch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace weft::command {

// Returns $WEFT_MPIRUN if it is set. Otherwise searches for mpirun, scripts/mpirun or .venv/bin/mpirun in the parent
// folders of this program, then in PATH.
[[nodiscard]] std::filesystem::path find_launcher();
// Returns $WEFT_PYTHON if it is set. Otherwise searches for python or .venv/bin/python in the parent folders of this
// program, then for python3 in PATH.
[[nodiscard]] std::filesystem::path find_python();

// Returns whether an MPI launcher started this process.
[[nodiscard]] bool under_launcher();

// Runs a program and returns its exit status, or 128 + n if signal n killed it. Forwards SIGINT and SIGTERM as
// `forward_as`, which asks ranks to stop after the current step; the third signal kills the program. Removes the
// launcher's banners about failed ranks from stderr.
[[nodiscard]] int run_program(const std::vector<std::string>& command, int forward_as);
// Returns whether run_program() forwarded a signal.
[[nodiscard]] bool forwarded_signal() noexcept;

// Replaces this process with another program. Returns only on failure, after printing the reason.
void exec_program(const std::vector<std::string>& command);

}  // namespace weft::command
