// A communication under way as a state machine: any thread can carry it on, and none blocks inside MPI.
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

  // Goes on as far as it can without waiting; true once done. Called by one thread at a time.
  [[nodiscard]] virtual bool advance() = 0;
};

// Carries it on until it is done. Throws as the waiter does; the operation is then still under way.
inline void complete(Operation& operation, const WaitContext& context) {
  Waiter waiter(context);
  while (!operation.advance()) waiter.idle();
}

// MPI's own non-blocking calls.
class RequestOperation final : public Operation {
 public:
  explicit RequestOperation(Request request) : request_(std::move(request)) {}
  [[nodiscard]] bool advance() override { return request_.test(); }

 private:
  Request request_;
};

// Several at once, done when all are.
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
