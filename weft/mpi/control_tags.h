// Tags below those of transfers (see Communicator::transfer_tag()). They belong to the control channel unless stated
// otherwise.
#pragma once

namespace weft::mpi {

// An agreement uses one tag per round and direction; 64 rounds suffice for 2^64 ranks.
inline constexpr int kAgreementRounds = 64;
inline constexpr int kAlarmTag = 2 * kAgreementRounds;
// Messages between ranks that close a communicator; see closing.h. Farewells are sent on every channel.
inline constexpr int kFarewellTag = kAlarmTag + 1;
inline constexpr int kFarewellReceivedTag = kFarewellTag + 1;
inline constexpr int kClosingRoundTag = kFarewellReceivedTag + 1;  // one tag per round, as in an agreement
// Tags from here on belong to transfers.
inline constexpr int kFirstTransferTag = 256;
static_assert(kClosingRoundTag + kAgreementRounds <= kFirstTransferTag);

}  // namespace weft::mpi
