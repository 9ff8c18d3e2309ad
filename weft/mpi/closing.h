// Frees the MPI communicators of closed Communicators once no message to this rank is in flight.
//
// MPI libraries keep a message for a freed communicator and deliver it to a later one with the same context id. A rank
// must therefore not free its handles while peers may still send to it, or while their messages are in flight. Closing
// takes three steps, and none of them blocks:
//   1. The rank sends a farewell to each rank that it has sent messages to, on every channel. Messages between two
//      ranks arrive in order, so a farewell is the last one. The receiver, which closes the same communicator, drops
//      the messages before it and confirms it.
//   2. When all its farewells are confirmed, the rank joins a barrier.
//   3. When the barrier is complete, no message is left, and the rank frees its handles.
#pragma once

#include <cstddef>
#include <vector>

#include "weft/mpi/comm.h"

namespace weft::mpi {

struct ClosedChannels {
  // Channels of the same ranks that messages may be in flight on; the first one is the control channel.
  std::vector<UniqueComm> channels;
  std::vector<UniqueComm> idle;  // freed together with the channels; carry no messages
  std::vector<int> contacts;     // ranks that this rank has sent messages to
};

// Local. Takes ownership of the channels and starts to close them. Every rank of the channels must call it eventually.
// The channels are leaked if a peer raised an alarm, because unfinished operations may then use them.
void close_channels(ClosedChannels closed) noexcept;

// Local. Continues the closing of all channels as far as possible without waiting.
void advance_closing() noexcept;

// The number of communicators of this process that are not closed completely, for tests and diagnostics.
[[nodiscard]] std::size_t closing_count();

}  // namespace weft::mpi
