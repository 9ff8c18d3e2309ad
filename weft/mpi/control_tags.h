// Tags on a communicator's control channel.
#pragma once

namespace weft::mpi {

// An agreement uses one tag per round and direction; 64 rounds suffice for 2^64 ranks.
inline constexpr int kAgreementRounds = 64;
inline constexpr int kAlarmTag = 2 * kAgreementRounds;
// Tags from here on belong to transfers; see Communicator::transfer_tag().
inline constexpr int kFirstTransferTag = 256;

}  // namespace weft::mpi
