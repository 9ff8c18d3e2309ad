// TypedProblem: a Problem whose states have one C++ type, written in terms of values instead of State.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "weft/multigrid/problem/problem.h"

namespace weft::multigrid {

// Vector operations and serialisation of a type. Specialise it for your own types, or override the functions of
// TypedProblem.
template <class T>
struct Algebra;

// Derive from it and implement initial_value() and step(). The rest comes from Algebra<T> unless overridden.
template <class T>
class TypedProblem : public Problem {
 public:
  [[nodiscard]] virtual T initial_value() = 0;
  [[nodiscard]] virtual T step(const T& u, const Step& step) = 0;
  [[nodiscard]] virtual T combine(double a, const T& x, double b, const T& y) {
    return Algebra<T>::combine(a, x, b, y);
  }
  [[nodiscard]] virtual double norm(const T& u) { return Algebra<T>::norm(u); }
  [[nodiscard]] virtual T zero_value(const Place& /*place*/) { lacks_zero(); }
  [[nodiscard]] virtual T guess_value(const Place& /*place*/) { lacks_guess(); }
  // Spatial coarsening: override all three. If coarsens_space() is false, levels share states instead of copying them.
  [[nodiscard]] virtual bool coarsens_space() const { return false; }
  [[nodiscard]] virtual T coarsen(const T& u, const Place& /*place*/) { return u; }
  [[nodiscard]] virtual T refine(const T& u, const Place& /*place*/) { return u; }
  virtual void access(const T& /*u*/, const Place& /*place*/) {}

  State initial() override { return State::of(initial_value()); }
  State step(const State& u, const Step& step) override { return State::of(this->step(u.as<T>(), step)); }
  State combine(double a, State x, double b, State y) override {
    return State::of(this->combine(a, x.as<T>(), b, y.as<T>()));
  }
  double norm(const State& u) override { return this->norm(u.as<T>()); }
  State zero(const Place& place) override { return State::of(zero_value(place)); }
  State guess(const Place& place) override { return State::of(guess_value(place)); }
  State coarsen(const State& u, const Place& place) override {
    return coarsens_space() ? State::of(this->coarsen(u.as<T>(), place)) : u;
  }
  State refine(const State& u, const Place& place) override {
    return coarsens_space() ? State::of(this->refine(u.as<T>(), place)) : u;
  }
  void access(const State& u, const Place& place) override { this->access(u.as<T>(), place); }

  Packed pack(const State& u, const Place& /*place*/) override { return {Algebra<T>::bytes(u.as<T>()), u.shared()}; }
  State unpack(Packed message, const Place& /*place*/) override {
    return State::of(Algebra<T>::from_bytes(message.bytes));
  }
};

template <>
struct Algebra<double> {
  static double combine(double a, double x, double b, double y) { return a * x + b * y; }
  static double norm(double u) { return std::abs(u); }
  static std::span<const std::byte> bytes(const double& u) { return std::as_bytes(std::span(&u, 1)); }
  static double from_bytes(std::span<const std::byte> bytes);
};

template <>
struct Algebra<std::vector<double>> {
  using Vector = std::vector<double>;
  static Vector combine(double a, const Vector& x, double b, const Vector& y);
  static double norm(const Vector& u);
  static std::span<const std::byte> bytes(const Vector& u) { return std::as_bytes(std::span(u)); }
  static Vector from_bytes(std::span<const std::byte> bytes);
};

}  // namespace weft::multigrid
