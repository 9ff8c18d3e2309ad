// Removes the banners that Open MPI's launcher prints after a rank has reported its error. No torch.
#pragma once

#include <string>
#include <string_view>

namespace weft::command {

// A banner is a block between two lines of dashes. Blocks that only repeat that a rank failed are removed. Others stay,
// for example the one about a rank that a signal killed.
class BannerFilter {
 public:
  // Returns the part of the output so far that can be shown.
  [[nodiscard]] std::string add(std::string_view output);
  // Returns the rest: an incomplete line or block.
  [[nodiscard]] std::string finish();

 private:
  void take_line(const std::string& line, std::string& shown);

  std::string line_;   // incomplete
  std::string block_;  // lines since the first line of dashes; empty outside of a block
};

}  // namespace weft::command
