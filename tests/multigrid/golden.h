// The cases of data/mgrit-golden.json: XBraid's residual histories, step counts and outputs.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::multigrid {

struct GoldenCase {
  std::int64_t steps = 0;
  int levels = 0;
  std::int64_t cfactor = 0;
  int iterations = 0;
  bool skip = false;
  int relax_fine = 0;
  int relax_coarse = 0;
  bool fmg = false;
  std::vector<std::string> residuals;  // as printed; "null" if missing
  std::vector<double> output;
  std::int64_t step_evaluations = 0;
};

// The text between `"key": ` and its end. The file is flat, so this suffices.
inline std::string golden_value(const std::string& line, const std::string& key) {
  const std::string quoted = "\"" + key + "\": ";
  const auto found = line.find(quoted);
  if (found == std::string::npos) throw std::runtime_error("golden case lacks " + key);
  const auto first = found + quoted.size();
  const auto last = line[first] == '[' ? line.find(']', first) : line.find_first_of(",}", first);
  return line[first] == '[' ? line.substr(first + 1, last - first - 1) : line.substr(first, last - first);
}

inline std::vector<std::string> golden_list(const std::string& line, const std::string& key) {
  std::vector<std::string> items;
  std::istringstream in(golden_value(line, key));
  for (std::string item; std::getline(in, item, ',');) items.push_back(item.substr(item.find_first_not_of(' ')));
  return items;
}

inline GoldenCase golden_case(const std::string& line) {
  const auto number = [&](const char* key) { return std::stoi(golden_value(line, key)); };
  const auto flag = [&](const char* key) { return golden_value(line, key) == "true"; };
  GoldenCase result{number("steps"),
                    number("levels"),
                    number("cfactor"),
                    number("iterations"),
                    flag("skip"),
                    number("relax_fine"),
                    number("relax_coarse"),
                    flag("fmg"),
                    golden_list(line, "residuals"),
                    {},
                    number("step_evaluations")};
  for (const std::string& item : golden_list(line, "output")) result.output.push_back(std::stod(item));
  return result;
}

inline std::vector<GoldenCase> golden_cases(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file);
  std::vector<GoldenCase> cases;
  for (std::string line; std::getline(in, line);) {
    if (line.find("\"steps\"") != std::string::npos) cases.push_back(golden_case(line));
  }
  return cases;
}

}  // namespace weft::multigrid
