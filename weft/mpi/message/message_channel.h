// MessageChannel: messages between pairs of ranks, whose waits end if a rank fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "weft/mpi/communicator.h"

namespace weft::mpi {

// Every call blocks until its message is sent or received. It throws TimeoutError if the peer does not take part, and
// PeerLost if a rank raises an alarm. Messages between two ranks arrive in the order in which they are sent.
class MessageChannel {
 public:
  // Local. Uses `tag` of `comm`, one of the communicator's channels. `operation` is a string literal for errors.
  MessageChannel(Communicator& communicator, const char* operation, CommView comm, int tag) noexcept
      : communicator_(communicator), operation_(operation), comm_(comm), tag_(tag) {}
  // Collective. Opens a channel under a tag that no other message uses. All ranks throw Disagreement if they name
  // different operations.
  [[nodiscard]] static MessageChannel open(Communicator& communicator, const char* operation);

  [[nodiscard]] int rank() const noexcept { return communicator_.rank(); }
  [[nodiscard]] int size() const noexcept { return communicator_.size(); }

  // Sends bytes whose number the receiver knows. `owner` keeps them alive.
  void send(std::span<const std::byte> bytes, int dest, std::shared_ptr<const void> owner) const;
  [[nodiscard]] std::string receive(std::int64_t bytes, int source) const;
  // Sends the number of bytes first, so that the receiver need not know it.
  void send_sized(std::span<const std::byte> bytes, int dest, std::shared_ptr<const void> owner) const;
  [[nodiscard]] std::string receive_sized(int source) const;

  void send_text(std::string text, int dest) const;
  [[nodiscard]] std::string receive_text(int source) const { return receive_sized(source); }

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void send_value(const T& value, int dest) const {
    const auto kept = std::make_shared<const T>(value);
    send(std::as_bytes(std::span(kept.get(), 1)), dest, kept);
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T receive_value(int source) const {
    const auto value = std::make_shared<T>();
    receive_into(std::as_writable_bytes(std::span(value.get(), 1)), source, value);
    return *value;
  }

 private:
  void receive_into(std::span<std::byte> bytes, int source, std::shared_ptr<void> owner) const;

  Communicator& communicator_;
  const char* operation_;
  CommView comm_;
  int tag_;
};

}  // namespace weft::mpi
