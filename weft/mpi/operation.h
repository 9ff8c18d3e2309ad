// Operation: a communication in progress as a state machine. Any thread can advance it, and none blocks inside MPI.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "weft/mpi/request.h"
#include "weft/mpi/waiter.h"

namespace weft::mpi {

class Operation {
 public:
  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Advances as far as possible without waiting. Returns true once done. One thread at a time may call it.
  [[nodiscard]] virtual bool advance() = 0;
};

// Advances the operation until it is done. Throws like Waiter; the operation is then still in progress.
inline void complete(Operation& operation, const WaitContext& context) {
  Waiter waiter(context);
  while (!operation.advance()) waiter.idle();
}

// An operation that consists of MPI requests.
class RequestOperation final : public Operation {
 public:
  explicit RequestOperation(Request request) : request_(std::move(request)) {}
  [[nodiscard]] bool advance() override { return request_.test(); }

 private:
  Request request_;
};

// Several operations at once; done when all of them are.
class OperationList final : public Operation {
 public:
  void add(std::unique_ptr<Operation> operation) { operations_.push_back(std::move(operation)); }
  [[nodiscard]] bool advance() override {
    std::erase_if(operations_, [](const auto& operation) { return operation->advance(); });
    return operations_.empty();
  }

 private:
  std::vector<std::unique_ptr<Operation>> operations_;
};

}  // namespace weft::mpi
