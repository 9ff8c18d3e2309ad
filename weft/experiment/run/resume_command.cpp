#include "weft/experiment/run/resume_command.h"

namespace weft::experiment {
namespace {

std::string shell_quoted(const std::string& word) {
  constexpr const char* kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(kSafe) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string resume_command(const RunOptions& options, int ranks, const std::filesystem::path& folder) {
  std::string command = "weft train --resume";
  if (ranks > 1) command += " -n " + std::to_string(ranks);
  for (const std::string& assignment : options.overrides) command += " --set " + shell_quoted(assignment);
  return command + " --out " + shell_quoted(folder.string()) + " " + shell_quoted(options.file.string());
}

}  // namespace weft::experiment
