#include "weft/mpi/message/message_channel.h"

#include <utility>

#include "weft/mpi/agreement.h"
#include "weft/mpi/fingerprint.h"
#include "weft/mpi/message/exchange.h"

namespace weft::mpi {
namespace {

void complete(std::unique_ptr<Operation> operation, Communicator& communicator, const char* name) {
  alarm_on_timeout(communicator,
                   [&] { mpi::complete(*operation, {.operation = name, .communicator = &communicator}); });
}

}  // namespace

MessageChannel MessageChannel::open(Communicator& communicator, const char* operation) {
  // No rank has used the largest of the ranks' next transfer numbers yet, so no other message has its tag.
  const auto result = require_agreement(
      communicator, {.signature = Fingerprint(operation).value(), .value = communicator.next_transfer()}, operation);
  return {communicator, operation, communicator.control(), communicator.transfer_tag(result.value_max)};
}

void MessageChannel::send(std::span<const std::byte> bytes, int dest, std::shared_ptr<const void> owner) const {
  complete(exchange({{dest, bytes.data(), std::ssize(bytes)}}, {}, tag_, comm_,
                    std::const_pointer_cast<void>(std::move(owner))),
           communicator_, operation_);
}

void MessageChannel::receive_into(std::span<std::byte> bytes, int source, std::shared_ptr<void> owner) const {
  complete(exchange({}, {{source, bytes.data(), std::ssize(bytes)}}, tag_, comm_, std::move(owner)), communicator_,
           operation_);
}

std::string MessageChannel::receive(std::int64_t bytes, int source) const {
  const auto buffer = std::make_shared<std::string>(static_cast<std::size_t>(bytes), '\0');
  receive_into(std::as_writable_bytes(std::span(*buffer)), source, buffer);
  return std::move(*buffer);
}

void MessageChannel::send_sized(std::span<const std::byte> bytes, int dest, std::shared_ptr<const void> owner) const {
  struct Sized {
    std::int64_t length;
    std::shared_ptr<const void> owner;
  };
  const auto kept = std::make_shared<Sized>(Sized{std::ssize(bytes), std::move(owner)});
  complete(
      exchange({{dest, &kept->length, sizeof kept->length}, {dest, bytes.data(), kept->length}}, {}, tag_, comm_, kept),
      communicator_, operation_);
}

std::string MessageChannel::receive_sized(int source) const {
  return receive(receive_value<std::int64_t>(source), source);
}

void MessageChannel::send_text(std::string text, int dest) const {
  const auto kept = std::make_shared<const std::string>(std::move(text));
  send_sized(std::as_bytes(std::span(*kept)), dest, kept);
}

}  // namespace weft::mpi
