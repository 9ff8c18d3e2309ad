// A file that the system does not let us read or write, and why.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace weft::files {

class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws FileError: what was to be done with which file, and the reason in errno.
[[noreturn]] void throw_errno(const std::string& what, const std::filesystem::path& path);

}  // namespace weft::files
