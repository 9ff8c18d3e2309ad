// The exception for failed file operations.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace weft::files {

class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws FileError "weft: could not <what> '<path>': <reason>", with the reason taken from errno.
[[noreturn]] void throw_errno(const std::string& what, const std::filesystem::path& path);

}  // namespace weft::files
