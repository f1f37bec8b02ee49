//! How many claims a worker takes.

/// What a worker has and has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Connections it can hold.
    pub capacity: u64,
    /// Connections it holds, or is about to.
    pub held: u64,
    /// Acquires that are under way.
    pub acquiring: u64,
    /// Descriptors that are left before the process's limit.
    pub descriptors_left: u64,
    /// Bytes of memory that are left before the container's limit; `u64::MAX` when there is none.
    pub memory_left_bytes: u64,
    /// Lag of the event loop.
    pub loop_lag_ms: u64,
}

/// A connection needs one descriptor; so many are kept for everything else.
const SPARE_DESCRIPTORS: u64 = 64;
/// What a new connection may take: the upper end of the published 2 to 5 MB.
const CONNECTION_BYTES: u64 = 5 * 1024 * 1024;
/// Above this lag a worker takes nothing new.
const MAX_LOOP_LAG_MS: u64 = 500;
/// So many acquires at once can be finished in 5 s even when each takes half a second of a slow store.
const MAX_ACQUIRING: u64 = 100;

/// Connections that one worker takes within a second at most, half of what one index key takes in writes (AWS, "Burst and adaptive capacity":
/// 1,000 units a second a partition): 700 take a second and a half, and no upstream sees them all at once.
const TAKEN_PER_S: u64 = 500;

/// Over how many ms so many connections are taken: those of claims that were received, or those that a worker takes again when its lease is
/// valid again.
#[must_use]
pub fn spread_ms(connections: u64) -> u64 {
    connections.saturating_mul(1_000) / TAKEN_PER_S
}

/// How many claims may be received now, 10 at most (the most that one ReceiveMessage returns).
#[must_use]
pub fn claims_to_take(room: &Room) -> u64 {
    if room.loop_lag_ms > MAX_LOOP_LAG_MS {
        return 0;
    }
    room.capacity
        .saturating_sub(room.held)
        .min(MAX_ACQUIRING.saturating_sub(room.acquiring))
        .min(room.descriptors_left.saturating_sub(SPARE_DESCRIPTORS))
        .min(room.memory_left_bytes / CONNECTION_BYTES)
        .min(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        capacity: 700,
        held: 0,
        acquiring: 0,
        descriptors_left: 20_000,
        memory_left_bytes: u64::MAX,
        loop_lag_ms: 0,
    };

    #[test]
    fn a_full_worker_takes_a_second_and_a_half_to_take_everything() {
        assert_eq!(spread_ms(700), 1_400);
        assert_eq!(spread_ms(10), 20);
    }

    #[test]
    fn a_worker_never_takes_more_than_it_has_room_for() {
        assert_eq!(claims_to_take(&ROOM), 10);
        assert_eq!(claims_to_take(&Room { held: 697, ..ROOM }), 3);
        assert_eq!(claims_to_take(&Room { held: 800, ..ROOM }), 0);
        assert_eq!(claims_to_take(&Room { acquiring: 98, ..ROOM }), 2);
        assert_eq!(claims_to_take(&Room { descriptors_left: 66, ..ROOM }), 2);
        assert_eq!(claims_to_take(&Room { memory_left_bytes: 11 << 20, ..ROOM }), 2);
        assert_eq!(claims_to_take(&Room { loop_lag_ms: 501, ..ROOM }), 0);
    }
}
