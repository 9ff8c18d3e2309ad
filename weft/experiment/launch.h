// Starting other programs on behalf of the weft command: the ranks of a job, and its parts in Python. No torch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace weft::experiment {

// The launcher of the environment that this program belongs to: WEFT_MPIRUN, mpirun beside the program or in the
// scripts or .venv/bin of a folder above it, or the one that PATH finds.
[[nodiscard]] std::filesystem::path find_launcher();
// Likewise the Python interpreter: WEFT_PYTHON, ...
[[nodiscard]] std::filesystem::path find_python();

// Whether a launcher started this process as one of several ranks.
[[nodiscard]] bool under_launcher();

// Runs a program to its end and returns its exit status (128 + n for signal n). Until then SIGINT and SIGTERM are
// passed on as `forward_as`, which asks the ranks to stop between two steps; the third one kills.
[[nodiscard]] int run_program(const std::vector<std::string>& command, int forward_as);
// Whether run_program() did so.
[[nodiscard]] bool passed_a_signal_on() noexcept;

// Becomes another program; returns only where that is not possible.
void become(const std::vector<std::string>& command);

}  // namespace weft::experiment
