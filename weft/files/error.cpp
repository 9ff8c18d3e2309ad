#include "weft/files/error.h"

#include <cerrno>
#include <system_error>

namespace weft::files {

void throw_errno(const std::string& what, const std::filesystem::path& path) {
  const int reason = errno;
  throw FileError("weft: could not " + what + " '" + path.string() + "': " + std::generic_category().message(reason));
}

}  // namespace weft::files
