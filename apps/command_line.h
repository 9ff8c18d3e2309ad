// What weft's commands have in common: how a wrong command line ends.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <optional>

namespace weft {

inline constexpr int kWrongInput = 2;  // exit status

// The status to end with at once, after the parser has said why; nothing where all is well.
[[nodiscard]] inline std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == EXIT_SUCCESS ? EXIT_SUCCESS : kWrongInput;  // a request for help is no mistake
  }
  return std::nullopt;
}

}  // namespace weft
