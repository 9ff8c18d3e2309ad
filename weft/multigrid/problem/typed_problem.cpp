#include "weft/multigrid/problem/typed_problem.h"

#include <stdexcept>
#include <string>

namespace weft::multigrid {
namespace {

[[noreturn]] void reject(std::size_t bytes, const char* expected) {
  throw std::invalid_argument("multigrid: expected a message of " + std::string(expected) + " bytes, got " +
                              std::to_string(bytes));
}

}  // namespace

double Algebra<double>::from_bytes(std::span<const std::byte> bytes) {
  double value = 0;
  if (bytes.size() != sizeof value) reject(bytes.size(), "8");
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::vector<double> Algebra<std::vector<double>>::combine(double a, const Vector& x, double b, const Vector& y) {
  if (x.size() != y.size()) {
    throw std::invalid_argument("multigrid: vectors to add must have equal sizes, got " + std::to_string(x.size()) +
                                " and " + std::to_string(y.size()));
  }
  Vector sum(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) sum[i] = a * x[i] + b * y[i];
  return sum;
}

double Algebra<std::vector<double>>::norm(const Vector& u) {
  double sum = 0;
  for (const double value : u) sum += value * value;
  return std::sqrt(sum);
}

std::vector<double> Algebra<std::vector<double>>::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(double) != 0) reject(bytes.size(), "a multiple of 8");
  Vector u(bytes.size() / sizeof(double));
  if (!u.empty()) std::memcpy(u.data(), bytes.data(), bytes.size());
  return u;
}

}  // namespace weft::multigrid
