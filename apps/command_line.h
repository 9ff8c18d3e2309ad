// Command-line parsing that weft and weft-switch share: invalid input exits with status 2.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <optional>

namespace weft {

inline constexpr int kWrongInput = 2;  // exit status

// Returns the exit status if the program should end now: after --help, or after an error that CLI11 has printed.
[[nodiscard]] inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == EXIT_SUCCESS ? EXIT_SUCCESS : kWrongInput;  // --help is a success
  }
  return std::nullopt;
}

}  // namespace weft
